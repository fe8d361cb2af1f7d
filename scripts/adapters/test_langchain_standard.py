"""LangChain's own tests for stores, unmodified, against ours."""

from __future__ import annotations

import pytest
from langchain_tests.integration_tests.base_store import BaseStoreAsyncTests, BaseStoreSyncTests

import commonplace
from commonplace.adapters.langchain import CommonplaceByteStore


class TestSync(BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self, book: commonplace.Book) -> CommonplaceByteStore:
        return CommonplaceByteStore(book.space("cache"))

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"one", b"\x00\xff", b""


class TestAsync(BaseStoreAsyncTests[bytes]):
    @pytest.fixture
    async def kv_store(self, book: commonplace.Book) -> CommonplaceByteStore:
        return CommonplaceByteStore(book.space("cache"))

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"one", b"\x00\xff", b""
