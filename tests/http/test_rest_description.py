"""`/openapi.json` tells the truth about `/v1`, and enough to call it without reading anything else."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from commonplace.api.problems import KINDS
from commonplace.server.http.answers import FIELDS
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


def fields_of(schema: Any, forms: dict[str, Any], name: str = "", seen: frozenset[str] = frozenset()) -> Iterator[Any]:
    """The fields of a body with the form that they are in, also those of the forms within it."""
    if isinstance(schema, list):
        for one in schema:
            yield from fields_of(one, forms, name, seen)
    if not isinstance(schema, dict):
        return
    if (form := schema.get("$ref", "").rpartition("/")[2]) and form not in seen:
        yield from fields_of(forms[form], forms, form, seen | {form})
    for field, one in schema.get("properties", {}).items():
        yield name, field, one
    for part in ("properties", "items", "anyOf", "oneOf", "allOf"):
        found = schema.get(part)
        yield from fields_of(list(found.values()) if part == "properties" and found else found, forms, name, seen)


@pytest.mark.promise("rest-described")
def test_every_parameter_and_every_field_of_a_body_is_described(description: dict[str, Any]) -> None:
    forms = description["components"]["schemas"]
    used, wanting, count = set(), [], 0
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                count += 1
                wanting += [] if parameter.get("description") else [(method, path, parameter["name"])]
            body = operation.get("requestBody", {})
            for content in body.get("content", {}).values():
                found = list(fields_of(content.get("schema", {}), forms))
                wanting += [] if found or body.get("description") else [(method, path, "body")]
                for form, field, schema in found:
                    count += 1
                    wanting += [] if schema.get("description") else [(method, path, form, field)]
                    used |= {field, f"{form}.{field}"}
    assert wanting == []
    assert count > 600
    assert FIELDS.keys() - used == set()


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


def test_the_reference_has_every_code_and_every_operation(description: dict[str, Any]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "rest.md").read_text(encoding="utf-8")
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


def test_the_page_of_documentation_shows_every_operation_and_needs_nothing_from_elsewhere(
    http: httpx.Client, description: dict[str, Any]
) -> None:
    answer = http.get("/docs")
    shown = re.findall(r"<summary><code>([A-Z]+) (\S+)</code>", answer.text)
    described = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    assert set(shown) == described
    assert len(shown) == len(described)
    links = set(re.findall(r'(?:href|src)="([^"]*)"', answer.text))
    anchors = {f"#{anchor}" for anchor in re.findall(r'id="([^"]*)"', answer.text)}
    assert links == anchors & links | {"/openapi.json"}
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    [script] = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    assert f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


def test_the_page_of_documentation_begins_with_search_and_has_a_form_for_every_get(
    http: httpx.Client, description: dict[str, Any]
) -> None:
    shown = http.get("/docs", params={"q": '"><script>alert(1)</script>'}).text
    assert '<input type="search" id="find" name="q" value="&quot;&gt;&lt;script&gt;' in shown
    assert shown.index('id="find"') < shown.index('id="search-and-history"') < shown.index('id="messages"')
    gets = {path: methods["get"] for path, methods in description["paths"].items() if "get" in methods}
    forms = dict(re.findall(r'<form data-path="([^"]*)">(.*?)</form>', shown, re.DOTALL))
    assert forms.keys() == gets.keys()
    for path, operation in gets.items():
        fields = re.findall(r'name="([^"]*)" data-in="(\w+)"', forms[path])
        assert fields == [(one["name"], one["in"]) for one in operation.get("parameters", ())], path
