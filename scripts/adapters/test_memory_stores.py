"""Anthropic's SDK, unmodified, with `base_url` at our service: all 14 operations on memory stores.

The SDK's own tests of them expect the fixed ids of a mock server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anthropic import Anthropic

from conftest import command, serving
from memory_store_calls import check_memories, check_stores, check_versions

NAMES = ("ana", "bob", "cleo")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The address of a service, and keys of it. `admin` is for redactions."""
    book = tmp_path_factory.mktemp("served") / "book.db"
    keys = [command(book, "keys", "create", name, "--actions", "read,write,delete,admin").split()[0] for name in NAMES]
    with serving(book) as address:
        yield address, keys


@pytest.mark.parametrize("number", range(3))
def test_the_sdk_drives_the_operations(served: tuple[str, list[str]], number: int) -> None:
    address, keys = served
    with Anthropic(base_url=address, api_key=keys[number]) as client:
        (check_stores, check_memories, check_versions)[number](client)
