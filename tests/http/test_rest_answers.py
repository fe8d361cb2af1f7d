"""The wire format of `/v1`: a scripted conversation with every route gets the answers that are recorded in a file.

    UPDATE_REST_ANSWERS=1 pytest tests/http/test_rest_answers.py     records them again

A change of the file is a change of the interface: tell of it in the changelog.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from commonplace import __version__

RECORDED = Path(__file__).with_name("rest_answers.jsonl")
HEADERS = ("content-type", "etag", "location", "allow", "retry-after", "cache-control")

RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=stored-data )[0-9a-f]{24}")

Request = tuple[Any, ...]
"""Method, address, body (text or JSON) and headers; the last two may be left out."""

FILES: list[Request] = [
    ("GET", "/v1"),
    ("GET", "/v1/problems"),
    ("PUT", "/v1/files/notes/today", "Deploys go out on Tuesdays"),
    ("PUT", "/v1/files/notes/today", "again", {"If-None-Match": "*"}),
    ("PUT", "/v1/files/notes/today?overwrite=false", "again"),
    ("PUT", "/v1/files/notes/today?overwrite=perhaps", "again"),
    ("PUT", "/v1/files/notes/short?ttl_seconds=60", "lives a minute"),
    ("PUT", "/v1/files/notes/short?ttl_seconds=-1", "x"),
    ("PUT", "/v1/files/notes/short?ttl_seconds=x", "x"),
    ("PUT", "/v1/files/..", "x"),
    ("PUT", "/v1/files/a%0Ab", "x"),
    ("PUT", "/v1/files/bytes", b"\xff"),
    ("POST", "/v1/files/notes/today", "Not in the holidays", {"Idempotency-Key": "k-1"}),
    ("POST", "/v1/files/notes/today", "Not in the holidays", {"Idempotency-Key": "k-1"}),
    ("POST", "/v1/files/notes/today", "Something else", {"Idempotency-Key": "k-1"}),
    ("POST", "/v1/files/notes/log", "a line"),
    ("POST", "/v1/files/notes/log", "b", {"If-Match": '"7"'}),
    ("POST", "/v1/files/notes/log", "b", {"If-Match": '"1"'}),
    ("POST", "/v1/files/notes/log", "b", {"If-Match": "nonsense"}),
    ("POST", "/v1/files/notes/log", "c", {"If-None-Match": '"1"'}),
    ("POST", "/v1/files/notes/log", "c", {"If-Revision": "file %2Fnotes%2Ftoday 2, file %2Fnotes%2Flog 2,3"}),
    ("POST", "/v1/files/notes/log", "c", {"If-Revision": "file %2Fnotes%2Ftoday 9"}),
    ("POST", "/v1/files/notes/log", "c", {"If-Revision": "nonsense"}),
    ("GET", "/v1/files/notes/today"),
    ("HEAD", "/v1/files/notes/today"),
    ("GET", "/v1/files/notes/today", None, {"If-None-Match": '"2.1750000000000002"'}),
    ("GET", "/v1/files/notes/today", None, {"If-None-Match": "*"}),
    ("GET", "/v1/files/notes/today?as_of=2025-06-15T15:06:40Z"),
    ("GET", "/v1/files/notes/today?as_of=yesterday"),
    ("GET", "/v1/files/notes"),
    ("GET", "/v1/files/missing"),
    ("PATCH", "/v1/files/notes/today", {"replace": {"old": "Tuesdays", "new": "Thursdays"}}),
    ("PATCH", "/v1/files/notes/today", {"replace": {"old": "o", "new": "0", "unique": True}}),
    ("PATCH", "/v1/files/notes/today", {"replace": {"old": "absent", "new": "0"}}),
    ("PATCH", "/v1/files/notes/today", {"replace": {"old": 5, "new": "0"}}),
    ("PATCH", "/v1/files/notes/today", {"replace": {"old": "o", "new": "0", "unique": 1}}),
    ("PATCH", "/v1/files/notes/today", {"replace": {"old": "o"}}),
    ("PATCH", "/v1/files/notes/today", {"insert": {"line": 0, "text": "Top"}}),
    ("PATCH", "/v1/files/notes/today", {"insert": {"line": "0", "text": "Top"}}),
    ("PATCH", "/v1/files/notes/today", {"text": "whole"}, {"If-Match": '"1"'}),
    ("PATCH", "/v1/files/notes/today", {"text": "whole"}),
    ("PATCH", "/v1/files/notes/today", {"text": None}),
    ("PATCH", "/v1/files/notes/today", {}),
    ("PATCH", "/v1/files/notes/today", {"text": "a", "insert": {"line": 0, "text": "b"}}),
    ("PATCH", "/v1/files/notes/today", {"other": 1}),
    ("PATCH", "/v1/files/notes/today", "no json", {"Content-Type": "application/json"}),
    ("PATCH", "/v1/files/notes/today"),
    ("GET", "/v1/info/notes/today"),
    ("GET", "/v1/info/notes"),
    ("GET", "/v1/info/missing"),
    ("GET", "/v1/info/notes", None, {"If-None-Match": "*"}),
    ("PUT", "/v1/directories/empty"),
    ("PUT", "/v1/directories/empty", None, {"If-None-Match": "*"}),
    ("PUT", "/v1/directories/notes/today"),
    ("GET", "/v1/directories/"),
    ("GET", "/v1/directories/notes?limit=1"),
    ("GET", "/v1/directories/notes?limit=1&cursor=file:log"),
    ("GET", "/v1/directories/notes?limit=0"),
    ("GET", "/v1/directories/missing"),
    ("GET", "/v1/tree/"),
    ("GET", "/v1/tree/?limit=2"),
    ("GET", "/v1/tree/?cursor=nonsense"),
    ("POST", "/v1/move", {"source": "/notes/log", "target": "/notes/journal"}),
    ("POST", "/v1/move", {"source": "/missing", "target": "/x"}),
    ("POST", "/v1/move", {"source": 5, "target": "/x"}),
    ("POST", "/v1/move", {"source": "/x"}),
    ("DELETE", "/v1/files/empty", None, {"If-Match": '"9"'}),
    ("DELETE", "/v1/files/empty", None, {"If-Match": '"1"'}),
    ("DELETE", "/v1/files/missing", None, {"If-Match": "*"}),
    ("DELETE", "/v1/files/missing"),
    ("DELETE", "/v1/files/notes/journal"),
]
NOTE = {"type": "note", "content": {"text": "Ana prefers tea", "size": 3}, "source": "chat", "confidence": 0.9}
RECORDS: list[Request] = [
    ("POST", "/v1/records", {**NOTE, "id": "r-1", "tags": ["Person:Ana"]}),
    ("POST", "/v1/records", {**NOTE, "tags": ["drink:tea"]}),
    ("POST", "/v1/records", {**NOTE, "id": "r/2", "content": "a text", "ttl_seconds": 3600}),
    ("POST", "/v1/records", {**NOTE, "id": "r-3", "content": [1, None, "x"]}, {"Idempotency-Key": "r"}),
    ("POST", "/v1/records", {**NOTE, "id": "r-3", "content": [1, None, "x"]}, {"Idempotency-Key": "r"}),
    ("POST", "/v1/records", {**NOTE, "confidence": 2}),
    ("POST", "/v1/records", {**NOTE, "confidence": "high"}),
    ("POST", "/v1/records", {**NOTE, "tags": "a"}),
    ("POST", "/v1/records", {**NOTE, "tags": ["in valid"]}),
    ("POST", "/v1/records", {**NOTE, "ttl_seconds": 0}),
    ("POST", "/v1/records", {**NOTE, "content": None}),
    ("POST", "/v1/records", {**NOTE, "unknown": 1}),
    ("POST", "/v1/records", {"type": "note"}),
    ("POST", "/v1/records", [1]),
    ("POST", "/v1/records", "{", {"Content-Type": "application/json"}),
    ("GET", "/v1/records"),
    ("GET", "/v1/records?limit=1&type=note"),
    ("GET", "/v1/records?tag=person:ana&tag=drink:tea"),
    ("GET", "/v1/records?tag=person:ana&tag=absent&match=any"),
    ("GET", "/v1/records?match=none"),
    ("GET", "/v1/records", None, {}, {"filter": '{"size":{"$gt":2}}'}),
    ("GET", "/v1/records?filter=nonsense"),
    ("GET", "/v1/records", None, {}, {"filter": '{"size":{"$near":2}}'}),
    ("GET", "/v1/records?limit=x"),
    ("GET", "/v1/records?cursor=nonsense"),
    ("GET", "/v1/records/r-1"),
    ("GET", "/v1/records/r/2"),
    ("GET", "/v1/records/missing"),
    ("GET", "/v1/records/r-1?as_of=2020-01-01T00:00:00Z"),
    ("GET", "/v1/records/r-1", None, {"If-None-Match": "*"}),
    ("PATCH", "/v1/records/r-1", {"confidence": 1, "tags": ["x"]}),
    ("PATCH", "/v1/records/r-1", {"confidence": 1}, {"If-Match": '"1"'}),
    ("PATCH", "/v1/records/r-1", {"ttl_seconds": 50}),
    ("PATCH", "/v1/records/r-1", {"id": "other"}),
    ("PATCH", "/v1/records/r-1", {}),
    ("PATCH", "/v1/records/missing", {"confidence": 1}),
    ("DELETE", "/v1/records/r-3", None, {"If-Match": '"9"'}),
    ("DELETE", "/v1/records/r-3"),
    ("DELETE", "/v1/records/r-3"),
    ("POST", "/v1/records", {**NOTE, "id": "r-4", "type": "instruction", "content": "always answer in metric"}),
    ("PUT", "/v1/standing/r-4"),
    ("PUT", "/v1/standing/r-1"),
    ("PUT", "/v1/standing/missing"),
    ("GET", "/v1/standing"),
    ("DELETE", "/v1/standing/r-4"),
    ("DELETE", "/v1/standing/r-4"),
    ("DELETE", "/v1/records/r-4"),
]
THREADS: list[Request] = [
    ("POST", "/v1/threads", {"id": "t-1", "title": "Deploys", "metadata": {"team": "a"}}),
    ("POST", "/v1/threads", {"id": "t-1"}),
    ("POST", "/v1/threads", {"id": "t/2", "resource": "u-9"}),
    ("POST", "/v1/threads", {"id": "t-3", "title": 5}),
    ("POST", "/v1/threads", {"id": "t-3", "metadata": [1]}),
    ("POST", "/v1/threads", {"id": ""}),
    ("GET", "/v1/threads"),
    ("GET", "/v1/threads?limit=1"),
    ("GET", "/v1/threads?resource=u-9"),
    ("GET", "/v1/threads?limit=1001"),
    ("GET", "/v1/numbered-threads?per_page=1"),
    ("GET", "/v1/numbered-threads?page=1&per_page=1&order_by=createdAt&direction=ASC"),
    ("GET", "/v1/numbered-threads", None, {}, {"metadata": '{"team":"a"}'}),
    ("GET", "/v1/numbered-threads?order_by=size"),
    ("GET", "/v1/threads/t-1"),
    ("GET", "/v1/threads/t/2?resource=u-9"),
    ("GET", "/v1/threads/t-1?resource=u-9"),
    ("GET", "/v1/threads/t-1", None, {"If-None-Match": "*"}),
    ("PATCH", "/v1/threads/t-1", {"title": "Deployments", "metadata": {"team": None, "on": 1}}),
    ("PATCH", "/v1/threads/t-1", {"title": "x"}, {"If-Match": '"1"'}),
    ("PATCH", "/v1/threads/t-1", {"resource": "x"}),
    ("POST", "/v1/title-suggestions", {"thread": "t/2", "title": "Suggested"}),
    ("POST", "/v1/title-suggestions", {"thread": "t-1", "title": "Suggested"}),
    ("POST", "/v1/title-suggestions", {"thread": "t-1"}),
]
HELLO = [
    {"id": "m-1", "role": "user", "content": "When do we deploy?"},
    {"id": "m-2", "role": "assistant", "content": "Tuesday"},
]
MESSAGES: list[Request] = [
    ("POST", "/v1/messages?thread=t-1", {"messages": HELLO}),
    ("POST", "/v1/messages?thread=t-1", {"messages": HELLO}, {"Idempotency-Key": "m"}),
    ("POST", "/v1/messages?thread=t-1&entries=true", {"messages": [{**HELLO[0], "id": "m/3", "extra": 1}]}),
    ("POST", "/v1/messages?thread=t-1", {"messages": [{"id": "m-4", "kind": "x"}], "verbatim": True}),
    ("POST", "/v1/messages?thread=t-1", {"messages": [{"role": 5}]}),
    ("POST", "/v1/messages?thread=t-1", {"messages": "x"}),
    ("POST", "/v1/messages?thread=t-1", {"messages": [], "verbatim": "yes"}),
    ("POST", "/v1/messages", {"messages": HELLO}),
    ("POST", "/v1/messages?thread=missing", {"messages": HELLO}),
    ("GET", "/v1/messages?thread=t-1"),
    ("GET", "/v1/messages?thread=t-1&limit=1&entries=true"),
    ("GET", "/v1/messages?thread=t-1&last=2"),
    ("GET", "/v1/messages?thread=t-1&last=x"),
    ("GET", "/v1/messages?thread=t-1&after=2025-06-15T15:06:40Z&before=2030-01-01T00:00:00Z"),
    ("GET", "/v1/messages?thread=t-1&after=noon"),
    ("GET", "/v1/messages?thread=missing"),
    ("GET", "/v1/messages"),
    ("GET", "/v1/numbered-messages?thread=t-1&per_page=2"),
    ("GET", "/v1/numbered-messages?thread=t-1&per_page=1&page=1&direction=DESC&entries=1"),
    ("GET", "/v1/messages/m-1"),
    ("GET", "/v1/messages/m/3?entries=true"),
    ("GET", "/v1/messages/m-1?resource=u-9"),
    ("GET", "/v1/messages/missing"),
    ("GET", "/v1/messages/m-1", None, {"If-None-Match": "*"}),
    ("PATCH", "/v1/messages/m-1", {"content": "When?", "metadata": {"a": 1}}),
    ("PATCH", "/v1/messages/m-1?entries=true", {"metadata": {"a": None}}),
    ("PATCH", "/v1/messages/m-1", {"content": "x"}, {"If-Match": '"1"'}),
    ("PATCH", "/v1/messages/m-1", {"role": "x"}),
    ("GET", "/v1/around/m-2?before=1&after=5"),
    ("GET", "/v1/around/m-2?before=-1"),
    ("GET", "/v1/around/missing"),
    ("GET", "/v1/recall?thread=t-1&query=deploy&last=1&top=1"),
    ("GET", "/v1/recall?thread=t-1&scope=all"),
    ("GET", "/v1/recall?thread=missing"),
    ("POST", "/v1/recall?entries=true", {"thread": "t-1", "query": "Tuesday", "last": 0, "top": 1, "neighbours": 0}),
    ("POST", "/v1/recall", {"thread": "t-1", "last": -1}),
    ("POST", "/v1/recall", {"query": "x"}),
    (
        "POST",
        "/v1/conversations",
        {"messages": [{"id": "n-1", "role": "user", "content": "Hi"}], "title": "New", "resource": "r"},
    ),
    ("POST", "/v1/conversations", {"messages": 5}),
    ("POST", "/v1/clones", {"thread": "t-1", "new_id": "t-4", "last": 1, "title": "Copy"}),
    ("POST", "/v1/clones", {"thread": "t-1", "new_id": "t-5", "only": ["m-1"], "to": "u-7", "metadata": {"x": 1}}),
    ("POST", "/v1/clones", {"thread": "t-1", "upto": "noon"}),
    ("POST", "/v1/clones", {"thread": "t-1", "only": 5}),
    ("POST", "/v1/transfers", {"thread": "t-4", "to": "u-8"}),
    ("POST", "/v1/transfers?resource=u-1", {"thread": "t-4", "to": "u-9"}),
    ("DELETE", "/v1/threads/t-4", None, {"If-Match": '"99"'}),
    ("DELETE", "/v1/threads/t-4"),
    ("DELETE", "/v1/threads/t-4"),
    ("POST", "/v1/message-deletions", {"ids": ["m-4", "missing"]}),
    ("POST", "/v1/message-deletions", {"ids": ["missing"]}),
    ("POST", "/v1/message-deletions", {"ids": "m-1"}),
    ("POST", "/v1/message-replacements?thread=t-1", {"messages": [{"id": "m-5", **HELLO[0]}], "seen": {"missing": 1}}),
    ("POST", "/v1/message-replacements?thread=t-1", {"messages": HELLO, "seen": ["m-1"]}),
    ("POST", "/v1/message-replacements?thread=missing", {"messages": HELLO}),
]
WORKING: list[Request] = [
    ("GET", "/v1/working-memory"),
    ("PUT", "/v1/working-memory", {"content": {"name": "Ana"}}),
    ("PUT", "/v1/working-memory", {"content": {"city": "Bonn", "name": None}, "revision": 1}),
    ("PUT", "/v1/working-memory", {"content": {"city": "Köln"}, "revision": 1}),
    ("PUT", "/v1/working-memory", {"content": {"city": "Köln"}, "revision": -1}),
    ("PUT", "/v1/working-memory", {"content": 5}),
    ("PUT", "/v1/working-memory", {"content": {"a": 1}}, {"If-Match": '"9"'}),
    ("PUT", "/v1/working-memory?thread=t-1", {"content": "# Notes\n- tea", "template": "# Notes"}),
    ("PUT", "/v1/working-memory?thread=missing", {"content": "x"}),
    ("GET", "/v1/working-memory"),
    ("GET", "/v1/working-memory?thread=t-1"),
    ("GET", "/v1/working-memory?resource=u-9"),
    ("GET", "/v1/working-memory", None, {"If-None-Match": "*"}),
    ("GET", "/v1/working-memory/history?limit=1"),
    ("GET", "/v1/working-memory/history?cursor=1"),
    ("POST", "/v1/context", {"thread": "t-1", "query": "deploy"}),
    ("POST", "/v1/context", {"thread": "t-1", "max_tokens": 10, "working": False}),
    ("POST", "/v1/context", {"thread": "t-1", "max_tokens": 0}),
    ("POST", "/v1/context", {"thread": "t-1", "working": 0}),
    ("DELETE", "/v1/working-memory?thread=t-1", None, {"If-Match": '"9"'}),
    ("DELETE", "/v1/working-memory?thread=t-1"),
    ("DELETE", "/v1/messages?thread=t/2"),
    ("DELETE", "/v1/messages?thread=missing"),
]
SEARCH: list[Request] = [
    ("GET", "/v1/search?q=tea"),
    ("GET", "/v1/search?q=tea&limit=1&wrapped=true"),
    ("GET", "/v1/search?q=deploy&kind=message&kind=file&below=true"),
    ("GET", "/v1/search?q=deploy&kind=message&kind=file&limit=2&full=true"),
    ("GET", "/v1/search?q=tea&kind=thing"),
    ("GET", "/v1/search?q=tea&type=note&tag=x&match=any&offset=0"),
    ("GET", "/v1/search?q=tea&offset=-1"),
    ("GET", "/v1/search?q=tea&min_relevance=0.9"),
    ("GET", "/v1/search?q=tea&min_relevance=9"),
    ("GET", "/v1/search?q=tea&now=noon"),
    ("GET", "/v1/search?q="),
    ("GET", "/v1/search"),
    ("POST", "/v1/search", {"query": "tea", "kinds": ["record"], "filter": {"size": 3}}),
    ("POST", "/v1/search?full=true", {"query": "tea", "kinds": ["record"]}),
    ("POST", "/v1/search", {"query": "tea", "limit": 0}),
    ("POST", "/v1/search", {"query": "tea", "limit": "1"}),
    ("POST", "/v1/search", {"query": "tea", "kinds": "record"}),
    ("POST", "/v1/search", {"query": 5}),
    ("POST", "/v1/search", {"query": "tea", "match": "none"}),
    ("GET", "/v1/thread-search?q=deploy"),
    ("GET", "/v1/thread-search?q=deploy&limit=0"),
    ("POST", "/v1/thread-search", {"query": "deploy", "limit": 1, "resource": "default"}),
    ("POST", "/v1/thread-search", {"limit": 1}),
]
HISTORY: list[Request] = [
    ("GET", "/v1/history/file/notes/today"),
    ("GET", "/v1/history/file/notes/today?limit=2"),
    ("GET", "/v1/history/file/notes/today?limit=2&cursor=2"),
    ("GET", "/v1/history/record/r-1"),
    ("GET", "/v1/history/thing/r-1"),
    ("GET", "/v1/states/file/notes/today?revision=1"),
    ("GET", "/v1/states/record/r-1?revision=1"),
    ("GET", "/v1/states/message/m-1?revision=1"),
    ("GET", "/v1/states/file/notes/today?revision=99"),
    ("GET", "/v1/states/file/notes/today"),
    ("POST", "/v1/restore", {"kind": "file", "key": "/notes/today", "revision": 1}),
    ("POST", "/v1/restore", {"kind": "file", "key": "/notes/today", "revision": "1"}),
    ("POST", "/v1/restore", {"kind": "thing", "key": "/notes/today", "revision": 1}),
    ("POST", "/v1/undo", {"commit": 2}),
    ("POST", "/v1/undo", {"commit": 999}),
    ("POST", "/v1/undo", {"commit": True}),
    ("GET", "/v1/recent"),
    ("GET", "/v1/recent?kind=record&kind=thread&limit=2"),
    ("GET", "/v1/recent?kind=thing"),
    ("GET", "/v1/recent?limit=0"),
    ("GET", "/v1/changes"),
    ("GET", "/v1/changes?after=3&limit=2"),
    ("GET", "/v1/changes?after=-1"),
    ("GET", "/v1/changes?after=9999"),
    ("GET", "/v1/stats"),
    ("GET", "/v1/namespaces"),
    ("GET", "/v1/namespaces?below=user&limit=1"),
    ("GET", "/v1/namespaces?below=//"),
    ("GET", "/v1/stats?namespace=user/other"),
    ("GET", "/v1/stats?namespace="),
    ("GET", "/v1/export"),
    ("GET", "/v1/export?namespace=user/missing"),
    ("POST", "/v1/import", '{"line":"header"}', {"Content-Type": "application/jsonl"}),
    ("POST", "/v1/purge", {}),
    ("POST", "/v1/purge", {"kind": "file", "key": "/notes/today"}),
    ("POST", "/v1/purge", {"history_before": "2025-01-01T00:00:00Z"}),
    ("POST", "/v1/purge", {"kind": "record"}),
    ("POST", "/v1/purge", {"key": "x"}),
    ("POST", "/v1/purge", {"everything": True}),
    ("GET", "/v1/changes?after=1"),
    ("GET", "/v1/missing"),
    ("DELETE", "/v1/search"),
    ("PUT", "/v1/messages/m-1", {}),
    (
        "POST",
        "/v1/import-memory?dry_run=true&name=memory.jsonl",
        '{"type":"entity","name":"Ana","entityType":"person","observations":["prefers tea"]}',
        {"Content-Type": "application/octet-stream"},
    ),
    ("POST", "/v1/import-memory?format=nothing", "x", {"Content-Type": "application/octet-stream"}),
]
SEVERAL: list[Request] = [
    ("POST", "/v1/records", {"id": "s-1", "type": "note", "content": "one", "source": "s", "confidence": 1}),
    ("POST", "/v1/records", {"id": "s-2", "type": "note", "content": "two", "source": "s", "confidence": 1}),
    ("POST", "/v1/record-tags", {"ids": ["s-1", "s-2", "s-1", "missing"], "add": ["New"], "remove": ["old"]}),
    ("POST", "/v1/record-tags", {"ids": ["s-1"], "add": ["new"]}),
    ("POST", "/v1/record-tags", {"ids": ["s-1"], "add": ["no tag"]}),
    ("POST", "/v1/record-tags", {"ids": "s-1"}),
    ("GET", "/v1/records?tag=new"),
    ("GET", "/v1/records?as_of=2025-01-01T00:00:00Z"),
    ("POST", "/v1/record-deletions", {"ids": ["s-1", "s-2"]}),
    ("POST", "/v1/record-deletions", {"ids": ["s-1", "s-2"]}),
    ("POST", "/v1/record-deletions", {"ids": [""]}),
    ("POST", "/v1/conversations", {"messages": [{"role": "user", "content": "a", "id": "s-m"}], "title": "s"}),
    ("POST", "/v1/message-counts", {"ids": ["missing"]}),
    ("POST", "/v1/message-counts", {"ids": [1]}),
    ("GET", "/v1/threads?as_of=2025-01-01T00:00:00Z"),
    ("GET", "/v1/around/s-m?as_of=2025-01-01T00:00:00Z"),
    ("GET", "/v1/working-memory?as_of=2025-01-01T00:00:00Z"),
]
ITEMS: list[Request] = [
    ("PUT", "/v1/items/theme", {"value": {"color": "dark", "of": {"user": "ana"}}}),
    ("PUT", "/v1/items/theme", {"value": {"color": "light"}, "revision": 0}),
    ("PUT", "/v1/items/theme", {"value": {"color": "light", "of": {"user": "ana"}}, "revision": 1}),
    ("PUT", "/v1/items/theme", {"value": 1}, {"If-None-Match": "*"}),
    ("PUT", "/v1/items/a/b%20c", {"value": ["x"], "fields": [], "ttl_seconds": 60}),
    ("PUT", "/v1/items/token", {"value": "s", "history": False}),
    ("PUT", "/v1/items/token", {"value": "s", "history": False, "fields": ["a"]}),
    ("PUT", "/v1/items/mine", {"value": {"text": "tea"}, "model": "m", "vectors": [[1, 0]]}),
    ("PUT", "/v1/items/mine", {"value": {"text": "tea"}, "vectors": [[1, 0]]}),
    ("PUT", "/v1/items/mine", {"value": None}),
    ("PUT", "/v1/items/mine", {"text": "tea"}),
    ("GET", "/v1/items/theme"),
    ("GET", "/v1/items/missing"),
    ("GET", "/v1/items?prefix=a/"),
    ("GET", '/v1/items?filter={"of.user":"ana"}&order=updated&descending=true'),
    ("GET", "/v1/items?order=size"),
    ("GET", "/v1/items-below?limit=2"),
    ("GET", "/v1/items-below?everywhere=true&limit=1"),
    ("POST", "/v1/item-reads", {"keys": ["theme", "missing"]}),
    ("POST", "/v1/item-reads", {"keys": "theme"}),
    ("POST", "/v1/item-refreshes", {"keys": ["a/b c"]}),
    ("POST", "/v1/item-writes", {"puts": [{"key": "k", "value": 1}], "deletes": ["token"]}),
    ("POST", "/v1/item-writes", {"puts": [{"key": "k"}]}),
    ("POST", "/v1/search", {"vector": [1, 0], "model": "m"}),
    ("POST", "/v1/search", {"vector": [1, 0, 0], "model": "m"}),
    ("POST", "/v1/search", {"vector": [1, 0]}),
    ("POST", "/v1/search", {"query": "tea", "kinds": ["item"], "everywhere": True}),
    ("GET", "/v1/search?q=tea&kind=item&everywhere=true"),
    ("DELETE", "/v1/items/k"),
    ("DELETE", "/v1/items/k"),
    ("DELETE", "/v1/items/theme?revision=1"),
    ("POST", "/v1/item-deletions", {"prefix": "a/"}),
    ("GET", "/v1/namespaces?emptied=true"),
]
SCRIPT = [*FILES, *RECORDS, *THREADS, *MESSAGES, *WORKING, *SEARCH, *HISTORY, *SEVERAL, *ITEMS]


def ask(http: httpx.Client, request: Request) -> dict[str, Any]:
    method, address, body, headers, query = [*request, None, None, None][:5]
    content: Any = {} if body is None else {"content": body} if isinstance(body, (str, bytes)) else {"json": body}
    answer = http.request(
        method, address, headers={"User-Agent": "test", **(headers or {})}, params=query or None, **content
    )
    shown = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    return {
        "asked": f"{method} {answer.request.url.raw_path.decode()}",
        "status": answer.status_code,
        **shown,
        "body": answer.text,
    }


def settled(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers with random ids by their number, and without the version and the wording of problems."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"random-{len(names) + 1}")

    for answer in answers:
        if answer.get("content-type") == "application/problem+json" and answer["body"]:
            problem = json.loads(answer["body"])
            assert problem["detail"]
            answer["body"] = json.dumps({**problem, "detail": "…"}, ensure_ascii=False)
    text = json.dumps(answers, ensure_ascii=False).replace(__version__, "VERSION")
    found: list[dict[str, Any]] = json.loads(RANDOM.sub(named, text))
    return found


@pytest.mark.promise("rest-answers-recorded")
def test_every_route_answers_as_it_is_recorded(http: httpx.Client) -> None:
    answers = settled([ask(http, request) for request in SCRIPT])
    if os.environ.get("UPDATE_REST_ANSWERS"):
        lines = (json.dumps(answer, ensure_ascii=False) for answer in answers)
        RECORDED.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    recorded = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").split("\n") if line]
    for answer, known in zip(answers, recorded, strict=True):
        assert answer == known


def test_the_script_takes_every_route(http: httpx.Client) -> None:
    left = {
        (method.upper(), path)
        for path, methods in http.get("/openapi.json").json()["paths"].items()
        for method in methods
        if path.startswith("/v1") and not path.startswith("/v1/memory_stores")  # random ids: test_memory_stores.py
    }
    asked = [(request[0], request[1].partition("?")[0]) for request in SCRIPT]
    left -= {
        (method, path)
        for method, path in left
        if any(
            verb == method and address.startswith(path.partition("{")[0]) and ("{" in path or address == path)
            for verb, address in asked
        )
    }
    assert left == {("GET", "/v1/store"), ("GET", "/v1/changes/stream")}  # of the whole book's files, and without end
