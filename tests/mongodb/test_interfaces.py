"""One book on MongoDB through the library, a service, the command line and MCP: each finds what another wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from commonplace.cli import main
from doubles import OpenBook
from mongodb_server import empty, shared_book

if TYPE_CHECKING:
    from over_http import Services


def test_every_interface_finds_what_the_others_wrote(
    open_book: OpenBook,
    own_services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = shared_book()
    library = open_book(url, clock=None)
    empty(url)
    environment = {"DATABASE_URL": url, "COMMONPLACE_MODELS": str(tmp_path), "COMMONPLACE_NAMESPACE": "user/u1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    space = library.space("user", "u1")
    space.files.write("/library", "a pineapple of the library")

    served = own_services.connect(library).space("user", "u1")
    assert served.files.read("/library") == "a pineapple of the library"
    served.files.write("/service", "a pineapple of the service")

    assert main(["add", "--file", "/command", "a pineapple of the command line"]) == 0
    capsys.readouterr()

    async def over_mcp() -> Any:
        words = ["-m", "commonplace.cli", "mcp"]
        server = stdio_client(StdioServerParameters(command=sys.executable, args=words, env=environment))
        async with Client(server) as client:
            note = {"type": "note", "content": "a pineapple of MCP", "source": "user", "confidence": 1.0}
            saved = await client.call_tool("memory_create", note)
            assert not saved.is_error
            return (await client.call_tool("memory_search", {"query": "pineapple"})).structured_content

    found = anyio.run(over_mcp)
    assert len(found["items"]) >= 1
    for reader in (space, served):
        assert {hit.key for hit in reader.search("pineapple", kinds=["file"])} == {"/library", "/service", "/command"}
        assert len(reader.search("pineapple", kinds=["record"])) == 1
    assert main(["search", "pineapple"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("/library", "/service", "/command", "of MCP"))
    main(["doctor"])
    told = capsys.readouterr().out
    assert all(f"ok       {part}" in told for part in ("book", "schema", "writable", "integrity"))
    assert main(["stats"]) == 0
    own_services.release()
