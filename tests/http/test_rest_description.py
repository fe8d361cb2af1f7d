"""`/openapi.json` tells the truth about `/v1`, and enough to call it without reading anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from commonplace.api.operations import markdown
from commonplace.api.problems import KINDS
from commonplace.server.http.memory_store_routes import PREFIX as MEMORY_STORES


@pytest.fixture
def description(http: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/openapi.json").json()
    return found


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Our own operations. Those on memory stores have the form that Anthropic's SDK reads."""
    for path, methods in description["paths"].items():
        if path.startswith("/v1") and not path.startswith(MEMORY_STORES):
            for method, operation in methods.items():
                yield method, path, operation


@pytest.mark.promise("rest-described")
def test_every_operation_has_a_name_a_summary_and_a_description(description: dict[str, Any]) -> None:
    assert description["openapi"].startswith("3.1")
    found = list(operations(description))
    assert len(found) > 50
    wanting = [
        (method, path)
        for method, path, operation in found
        if not all(operation.get(part) for part in ("operationId", "summary", "description", "tags"))
    ]
    assert wanting == []
    names = [operation["operationId"] for _, _, operation in found]
    assert len(set(names)) == len(names)


def test_every_operation_tells_of_its_problems_in_one_form(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        failures = {code: told for code, told in operation["responses"].items() if code >= "400"}
        assert {"400", "401", "403", "413", "422", "429", "503"} <= failures.keys(), (method, path)
        for code, told in failures.items():
            reference = {"$ref": "#/components/schemas/Problem"}
            assert told["content"] == {"application/problem+json": {"schema": reference}}, (method, path, code)
            assert told["description"], (method, path, code)


def test_every_link_leads_to_an_operation_and_to_parameters_that_it_has(description: dict[str, Any]) -> None:
    known = {operation["operationId"]: operation for _, _, operation in operations(description)}
    links = [
        link
        for _, _, operation in operations(description)
        for told in operation["responses"].values()
        for link in told.get("links", {}).values()
    ]
    assert len(links) > 20
    for link in links:
        parameters = {parameter["name"] for parameter in known[link["operationId"]].get("parameters", ())}
        assert link["parameters"].keys() <= parameters, link


def test_every_body_has_an_example_or_fields_that_explain_themselves(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            if media_type == "application/json":
                name = content["schema"]["$ref"].rpartition("/")[2]
                body = description["components"]["schemas"][name]
                assert body["additionalProperties"] is False, (method, path)
                assert body["properties"], (method, path)


def test_no_schema_is_named_after_a_module(description: dict[str, Any]) -> None:
    """Generated clients have types of these names, and two models of one name get the paths of their modules."""
    assert [name for name in description["components"]["schemas"] if "__" in name] == []


def test_every_code_is_listed_with_an_example(http: httpx.Client) -> None:
    listed = http.get("/v1/problems").json()["problems"]
    assert [(one["code"], one["status"], one["title"]) for one in listed] == [
        (kind.code, kind.status, kind.title) for kind in KINDS
    ]
    assert all(one["example"]["type"] == f"/v1/problems#{one['code']}" for one in listed)


def test_the_document_on_rest_tells_of_every_code_and_every_operation(description: dict[str, Any]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "rest.md").read_text(encoding="utf-8")
    codes = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))
    assert codes == {kind.code for kind in KINDS}
    addresses = set(re.findall(r"`([A-Z]+) (/v1[^`?]*)`", text))
    described = [
        (method.upper(), path, one)
        for path, methods in description["paths"].items()
        if path.startswith("/v1")
        for method, one in methods.items()
    ]
    assert addresses == {(method, path) for method, path, _ in described}
    for method, path, one in described:
        if path.startswith(MEMORY_STORES):
            summary = one["summary"][0].lower() + one["summary"][1:]
            assert f"| `{method} {path}` | {summary} |" in text


def test_the_document_on_rest_has_the_table_of_operations() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rest.md").read_text(encoding="utf-8")
    assert text.endswith("\n".join(markdown()) + "\n"), "print it with `make rest-table`"


def test_the_page_of_documentation_shows_every_operation_and_needs_nothing_from_elsewhere(
    http: httpx.Client, description: dict[str, Any]
) -> None:
    """On a screen 390 pixels wide, the page's tables ran out of it."""
    answer = http.get("/docs")
    shown = re.findall(r"<summary><code>([A-Z]+) (\S+)</code>", answer.text)
    described = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    assert set(shown) == described
    assert len(shown) == len(described)
    links = set(re.findall(r'(?:href|src)="([^"]*)"', answer.text))
    anchors = {f"#{anchor}" for anchor in re.findall(r'id="([^"]*)"', answer.text)}
    assert links == anchors & links | {"/openapi.json"}
    assert "<script" not in answer.text
    assert "@media (max-width: 40rem)" in answer.text  # on a telephone the tables ran out of the screen
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
