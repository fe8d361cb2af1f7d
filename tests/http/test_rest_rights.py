"""What the table says that an operation needs is what a key needs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from real_server import Server
from test_rest_answers import SCRIPT, ask

from commonplace.api.operations import OPERATIONS

ACTIONS = ("read", "write", "delete", "admin")


def needs(method: str, address: str) -> tuple[str, ...]:
    path = address.partition("?")[0]
    for operation in OPERATIONS:
        start, brace, _ = operation.address.partition("{")
        if operation.method == method and (path.startswith(start) if brace else path == start):
            return operation.needs
    return ()


@pytest.mark.parametrize("lacking", ["write", "delete", "admin"])
def test_a_key_without_an_action_is_refused_where_the_table_names_it(
    server: Server, make_key: Any, lacking: str
) -> None:
    allowed = {"Authorization": f"Bearer {make_key('all', actions=ACTIONS)}"}
    limited = {"Authorization": f"Bearer {make_key('some', actions=[one for one in ACTIONS if one != lacking])}"}
    with server.client() as http:
        for request in SCRIPT:
            is_needed = lacking in needs(request[0], request[1])
            refused = _ask(http, request, limited) if is_needed else None
            answer = _ask(http, request, allowed)
            if answer["status"] < 300 and refused is not None:
                assert refused["status"] == 403, (request, refused)


def _ask(http: httpx.Client, request: tuple[Any, ...], credentials: dict[str, str]) -> dict[str, Any]:
    method, address, body, headers, query = [*request, None, None, None][:5]
    return ask(http, (method, address, body, {**(headers or {}), **credentials}, query))
