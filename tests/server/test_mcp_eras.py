"""Each revision of the protocol gets what it can parse."""

from __future__ import annotations

import pytest

from commonplace.errors import ConfigurationError
from commonplace.server.mcp.jsonrpc import HANDSHAKE, check_version, completed_initialize

from .conftest import NOTE

NEWEST = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.promise("mcp-eras")
@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_client_gets_the_revision_it_names_and_links_only_where_it_knows_them(stdio, version):
    assert stdio.initialize(version)["protocolVersion"] == version
    stdio.call("memory_create", **NOTE)
    for tool, arguments in (("memory_create", NOTE), ("memory_search", {"query": "deploys"}), ("memory_list", {})):
        result = stdio.call(tool, **arguments)
        # Without a model, a search says so in a text of its own.
        kinds = [block["type"] for block in result["content"] if not block.get("text", "").startswith("Note: ")]
        assert kinds == (["text", "resource_link"] if version >= "2025-06-18" else ["text"])
        assert len(result["structuredContent"]["items"]) == 1
    assert "mem://item/" in result["content"][0]["text"]


@pytest.mark.promise("mcp-eras")
def test_the_newest_revision_needs_no_handshake(stdio):
    def ask(method, **params):
        return stdio.ask(method, {**params, "_meta": ENVELOPE})["result"]

    assert ask("server/discover")["supportedVersions"] == [NEWEST]
    assert len(ask("tools/list")["tools"]) == 5
    result = ask("tools/call", name="memory_create", arguments=NOTE)
    assert [block["type"] for block in result["content"]] == ["text", "resource_link"]
    id = result["structuredContent"]["items"][0]["id"]
    assert id in ask("resources/read", uri=f"mem://item/{id}")["contents"][0]["text"]


@pytest.mark.promise("mcp-eras")
@pytest.mark.parametrize(
    ("named", "configured", "given"),
    [
        (None, None, "2024-11-05"),
        (None, "2025-06-18", "2025-06-18"),
        ("1999-01-01", None, "2025-11-25"),
        ("1999-01-01", "2025-03-26", "2025-03-26"),
        ("2025-03-26", "2025-06-18", "2025-03-26"),
    ],
)
def test_a_client_that_names_no_known_revision_gets_the_configured_one(named, configured, given):
    params = {} if named is None else {"protocolVersion": named}
    assert completed_initialize(params, configured)["protocolVersion"] == given


@pytest.mark.promise("mcp-eras")
def test_an_unknown_revision_over_the_wire_gets_the_newest_that_has_a_handshake(stdio):
    assert stdio.initialize("1999-01-01")["protocolVersion"] == "2025-11-25"


def test_a_configured_revision_must_be_known():
    assert check_version("2025-06-18") == "2025-06-18"
    with pytest.raises(ConfigurationError, match="MCP_PROTOCOL_VERSION"):
        check_version("2023-01-01")
