"""The records of a namespace of a service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from commonplace.checks import JSON, check_json, check_number, check_text
from commonplace.remote.caller import Caller, tail, time_argument
from commonplace.space.conversation import check_id
from commonplace.space.records import _UNSET, Record, RecordPage, Records
from commonplace.wire.forms import thing_of


class RemoteRecords(Records):
    """`Records` of a service."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limits = caller.limits

    def create(
        self,
        *,
        type: str,
        content: JSON,
        source: str,
        confidence: float,
        tags: Sequence[str] = (),
        ttl_seconds: float | None = None,
        id: str | None = None,
    ) -> Record:
        body = {
            "type": type,
            "content": check_json("content", content),
            "source": source,
            "confidence": confidence,
            "tags": self.clean_tags(tags),
            "ttl_seconds": ttl_seconds,
            "id": id,
        }
        return thing_of(Record, self._caller.make("POST", "/records", None, body))

    def get(self, id: str, *, as_of: datetime | str | None = None) -> Record:
        return thing_of(Record, self._caller.read(_at(id), {"as_of": time_argument("as_of", as_of)}))

    def update(
        self,
        id: str,
        *,
        type: str = _UNSET,
        content: JSON = _UNSET,
        source: str = _UNSET,
        confidence: float = _UNSET,
        tags: Sequence[str] = _UNSET,
        ttl_seconds: float | None = _UNSET,
    ) -> Record:
        fields: dict[str, Any] = {
            "type": type,
            "content": content if content is _UNSET else check_json("content", content),
            "source": source,
            "confidence": confidence,
            "tags": tags if tags is _UNSET else self.clean_tags(tags),
            "ttl_seconds": ttl_seconds,
        }
        body = {name: value for name, value in fields.items() if value is not _UNSET}
        return thing_of(Record, self._caller.make("PATCH", _at(id), None, body))

    def delete(self, id: str) -> int:
        return int(self._caller.change("DELETE", _at(id))["commit"])

    def list(
        self,
        *,
        type: str | None = None,
        tags: Sequence[str] = (),
        match: Literal["all", "any"] = "all",
        filter: Mapping[str, object] | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> RecordPage:
        if type is not None:
            check_text("type", type)
        all_tags, any_tags = self.wanted_tags(tags, match)
        query = {
            "type": type,
            "tag": all_tags or any_tags,
            "match": match,
            "filter": None if filter is None else json.dumps(check_json("filter", filter), default=dict),
            "limit": check_number("limit", limit),
            "cursor": cursor,
        }
        return thing_of(RecordPage, self._caller.read("/records", query))


def _at(id: str) -> str:
    return f"/records/{tail(check_id('id', id))}"
