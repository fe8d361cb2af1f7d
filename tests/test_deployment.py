"""The files that deploy a server: they fit their schemas, agree with the program, and use the image of this checkout.

`make image-steps` carries out the Dockerfile, and checks compose.yaml against the Compose Specification.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from commonplace.server.http.observability import WAIT_SECONDS
from commonplace.settings import Settings

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGE = f"commonplace-memory:{PROJECT['version']}"
OBJECTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def of_kind(kind: str) -> dict[str, Any]:
    return next(each for each in OBJECTS if each["kind"] == kind)


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("described", OBJECTS, ids=lambda each: each["kind"])
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_takes_every_object_of_the_manifest(described, version):
    kubernetes_validate.validate(described, version, strict=True)


def test_the_schema_would_find_a_misspelt_field():
    wrong = {**of_kind("Service"), "spec": {"selectr": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="selectr"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.promise("deployed-from-this-repository")
def test_servers_run_in_the_image_that_is_built_from_this_checkout():
    """The manifests installed `commonplace` from the index at each start: somebody else's program, with our database's
    address in its environment."""
    containers = [*pod()["initContainers"], *pod()["containers"]]
    assert {each["image"].rsplit("/", 1)[-1] for each in containers} == {IMAGE}
    server = COMPOSE["services"]["server"]
    assert (server["build"], server["image"], server["pull_policy"]) == (".", IMAGE, "build")
    for name in ("compose.yaml", "deploy/kubernetes.yaml"):
        assert "pip install" not in (ROOT / name).read_text()
    assert "'.[postgres,server,tracing]'" in DOCKERFILE
    assert "--constraint constraints.txt" in DOCKERFILE


def test_the_manifest_can_be_applied_again():
    """A Job's template cannot be changed: to apply the file again with a new image was refused. The database is now
    migrated by an init container of the servers."""
    assert {each["kind"] for each in OBJECTS} == {"Secret", "Deployment", "Service", "PodDisruptionBudget"}
    assert [each["args"] for each in pod()["initContainers"]] == [["migrate"]]


def test_probes_wait_longer_than_an_answer_may_take():
    """Without a time-out of its own a probe waited one second, less than /readyz may take with a slow database."""
    (server,) = pod()["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert server[probe]["timeoutSeconds"] > WAIT_SECONDS


def test_a_stopping_server_has_the_time_that_it_gives_to_requests_under_way():
    """Kubernetes killed it after 30 seconds, and compose after 10, while it still waited for requests."""
    (server,) = pod()["containers"]
    paused = int(server["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] > paused + Settings.stop_seconds
    assert int(COMPOSE["services"]["server"]["stop_grace_period"].removesuffix("s")) > Settings.stop_seconds


@pytest.mark.promise("deployed-without-root")
def test_the_image_runs_as_a_user_that_is_not_root():
    (user,) = (line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("USER "))
    assert all(int(number) > 0 for number in user.split(":"))
    assert pod()["securityContext"]["runAsNonRoot"] is True
    for each in (*pod()["initContainers"], *pod()["containers"]):
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert each["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_image_starts_the_server_and_says_how_it_is():
    last = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in DOCKERFILE.splitlines() if line[:1].isupper()}
    assert json.loads(last["ENTRYPOINT"]) + json.loads(last["CMD"]) == ["commonplace", "serve"]
    assert "HEALTHCHECK" in last
    assert "/healthz" in DOCKERFILE
    assert "commonplace model pull" in DOCKERFILE
