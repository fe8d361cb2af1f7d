"""All of `/v1` in one flat list: included in each other, routers look twice through every route before a request."""

from __future__ import annotations

from fastapi import APIRouter

from commonplace.server.http.rest import feed, files, messages, namespaces, records, search, threads, transfer

router = APIRouter()
for _part in (messages, search, records, files, threads, namespaces, feed, transfer):  # the busiest first
    router.routes.extend(_part.router.routes)
