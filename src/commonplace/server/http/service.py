"""What the routes share: the open book, the gate, the settings, and the space of a request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, cast

from fastapi import Depends, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from commonplace.book import Book
from commonplace.server.http.auth import Gate, Principal
from commonplace.server.mcp.lazy_memory import client_word
from commonplace.server.usage import CommitDays, SearchCounters
from commonplace.settings import Settings
from commonplace.space.space import Space


class Tail(Convertor[str]):
    """`{name:tail}`, the rest of a path as one parameter. Starlette's own `path` ends at a newline."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("tail", Tail())


@dataclass(frozen=True)
class Service:
    """The service, in `app.state.service`."""

    book: Book
    access: Gate
    settings: Settings

    @cached_property
    def searches(self) -> SearchCounters:
        """Counts the searches; the app starts and ends it."""
        return SearchCounters(self.book.store)

    @cached_property
    def commit_days(self) -> CommitDays:
        return CommitDays()


def service_of(request: Request) -> Service:
    return cast("Service", request.app.state.service)


def principal_of(request: Request) -> Principal:
    """The caller, which the middleware has authenticated."""
    return cast("Principal", request.state.principal)


def client_of(request: Request) -> str | None:
    """The name in the User-Agent header, as one short word for the history."""
    return client_word(request.headers.get("user-agent", ""))


async def space_of(  # not `def`: a worker thread would cost more than the function itself
    request: Request,
    namespace: Annotated[
        str | None,
        Query(description="The namespace, such as `user/u-123`; left out, the caller's own.", examples=["user/u-123"]),
    ] = None,
) -> Space:
    book = service_of(request).book
    return principal_of(request).space(book, namespace, interface="rest", client=client_of(request))


SpaceOf = Annotated[Space, Depends(space_of)]
