"""Every operation of `/v1`, once: its address, arguments, result, and what a caller needs.

The routes, their OpenAPI description, the Python client and docs/reference/rest.md are made from this table. To add an
operation that calls one method of a space, add a row. An operation that does more has no `call`, and a
handler in `commonplace.server.http.rest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from commonplace.api import forms
from commonplace.api.forms import KindName
from commonplace.api.parameters import (
    ABSENT,
    CONFIDENCE,
    CONTENT,
    COUNT,
    ENTRY_KIND,
    FILE_TEXT,
    FILTER,
    FILTER_TEXT,
    FLAG,
    ITEM_PUTS,
    ITEM_VALUE,
    KINDS,
    MESSAGE_CONTENT,
    MESSAGE_LIST,
    METADATA,
    MOMENT,
    OPTIONAL_COUNT,
    OPTIONAL_METADATA,
    OPTIONAL_TEXT,
    OPTIONAL_TEXT_LIST,
    PATH,
    PATH_TEXT,
    POSITIVE,
    RELEVANCE,
    REQUIRED,
    REVISION,
    SECONDS,
    SEEN,
    STRICT_TEXT,
    TAGS,
    TEXT,
    TEXT_LIST,
    TTL,
    TYPE_NAME,
    VECTOR,
    VECTORS,
    WORKING_CONTENT,
    WORKING_TEMPLATE,
    Argument,
    Kind,
    Link,
    Nested,
    Operation,
    Subject,
    body,
    choice,
    count,
    header,
    id_of,
    in_group,
    number,
    optional_id,
    path,
    query,
    time,
)
from commonplace.errors import NotFound
from commonplace.space.items import check_item_key
from commonplace.space.names import DIRECTORY, FILE, ITEM, MESSAGE, RECORD, THREAD, WORKING
from commonplace.space.space import Recent, Space


def named(kind: str, argument: str) -> Subject:
    return lambda space, arguments: (kind, arguments[argument])


def at_path(space: Space, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """A file, unless a directory is there."""
    path = arguments["path"]
    try:
        return space.files.stat(path).kind, path
    except NotFound:
        return FILE, path


def working_memory(space: Space, arguments: Mapping[str, Any]) -> tuple[str, str]:
    thread, resource = arguments.get("thread"), arguments.get("resource")
    owner = f"thread/{thread}" if thread is not None else f"resource/{resource or space.threads.default_resource}"
    return WORKING, owner


# Arguments that several operations have

UNDO = {"undo": Link("undo")}
PATH_ARGUMENT = path("path", PATH)
AS_OF = query("as_of", time("as_of"), None, "The state at this time, ISO 8601.")
CURSOR = query("cursor", STRICT_TEXT, None, "The `cursor` of the previous page.")
RECORD_ID = path("id", id_of("id"))
THREAD_ID = path("id", id_of("thread id"))
MESSAGE_ID = path("id", id_of("message id"))
OF_THREAD = query("thread_id", id_of("thread id"), wire="thread", about="The thread's id.", examples=["t-1"])
RESOURCE = query(
    "resource",
    optional_id("resource"),
    None,
    "The resource that must own it; a thread of another resource is refused (403).",
)
WORKING_THREAD = query("thread", optional_id("thread"), None, "Of this thread; by default, of the resource.")
ENTRIES = query("entries", FLAG, False, "Include how each message is stored.", sent=True)
FULL = query("full", FLAG, False, "Give each hit with its whole entry.", sent=True)
MIN_RELEVANCE = query("min_relevance", RELEVANCE, None, "Leave out hits that are less likely to be relevant, 0 to 1.")
MIN_RELEVANCE_IN_BODY = body("min_relevance", RELEVANCE, None)
PAGE_NUMBER = query("page", count("page", 0, 10_000_000), 0)
MATCH = choice("match", "all", "any")


def limit(default: int, most: int = 1_000, kind: Kind | None = None) -> Argument:
    return query("limit", kind or count("limit", 1, most), default, "How many at most.")


def wide_limit(default: int) -> Argument:
    return limit(default, kind=number("limit", 1, 10_000))


def moment(name: str) -> Argument:
    return query(name, time(name), None, "ISO 8601, with an offset or `Z`.", examples=[MOMENT])


# Options that several operations have

CHANGE: Mapping[str, Any] = {"needs": ("write",), "etag": True, "keyed": True}
"""A change of one entry, whose new state is the answer."""
DELETION: Mapping[str, Any] = {"needs": ("delete",), "links": UNDO}


# The table

SERVICE = in_group(
    "namespaces",
    Operation(
        "get_caller",
        "GET ",
        "Show the service and the caller",
        "The caller that the credentials identify: its namespace, reach and actions, and the limits on sizes.",
        result=forms.CALLER,
        in_namespace=False,
    ),
    Operation(
        "list_problems",
        "GET /problems",
        "List the codes of problems",
        "Every `code` that an `application/problem+json` of this service can have.",
        result=forms.PROBLEM_KINDS,
        in_namespace=False,
    ),
    Operation(
        "list_namespaces",
        "GET /namespaces",
        "List namespaces",
        "The namespaces that the caller reaches and that hold something, in order.",
        arguments=(
            query("below", STRICT_TEXT, None, "Only those at or below this one, such as `user`."),
            query("after", STRICT_TEXT, None, "The last one of the previous page."),
            wide_limit(1_000),
            query("emptied", FLAG, False, "Also those that hold nothing any more."),
            query("kinds", KINDS, (), "Only those that hold an entry of one of these kinds.", wire="kind"),
            query("history", FLAG, False, "Entries without history do not count."),
        ),
        result=forms.NAMESPACES,
        in_namespace=False,
    ),
    Operation(
        "get_stats",
        "GET /stats",
        "Count what a namespace holds",
        "Live entries by kind, former states, the last commit, and pending vectors.",
        "stats",
        result=forms.NAMESPACE_STATS,
    ),
    Operation(
        "get_store_stats",
        "GET /store",
        "Count what the whole store holds",
        "Only for a caller that reaches every namespace.",
        result=forms.STORE_STATS,
        in_namespace=False,
    ),
)

_FILE_LINKS = {
    "read": Link("read_file", {"path": "$response.body#/path"}),
    "stat": Link("stat_path", {"path": "$response.body#/path"}),
    "delete": Link("delete_path", {"path": "$response.body#/path"}),
}
_REPLACEMENT = Nested(
    "Replacement",
    "Replace every occurrence of a text; `unique` refuses more than one.",
    (body("old", TEXT), body("new", TEXT), body("unique", FLAG, False)),
)
_INSERTION = Nested("Insertion", "Insert after a line; 0 is the top.", (body("line", COUNT), body("text", TEXT)))
_FILE_EXAMPLE = "Deploys go out on Tuesdays\n"
_FILE_BODY = Argument("text", "text", FILE_TEXT, wire="text")
_FILE_CHANGE: Mapping[str, Any] = {
    **CHANGE,
    "result": forms.FILE_FORM,
    "links": _FILE_LINKS,
    "text": "text/plain",
    "example": _FILE_EXAMPLE,
    "if_match": named(FILE, "path"),
    "if_new": True,
}
FILES = in_group(
    "files",
    Operation(
        "read_file",
        "GET /files/{path}",
        "Read a file",
        "The text of a file, now or at an earlier time, byte for byte. `ETag` is its revision and time.",
        "files.read",
        (PATH_ARGUMENT, AS_OF),
        statuses=(404, 409),
        text="text/plain",
        example=_FILE_EXAMPLE,
        done="The text.",
        etag=True,
    ),
    Operation(
        "write_file",
        "PUT /files/{path}",
        "Write a file",
        "Put the body at a path, with the directories above it.",
        "files.write",
        (
            PATH_ARGUMENT,
            _FILE_BODY,
            query("overwrite", FLAG, True, "`false` refuses a file that exists (409)."),
            query("ttl_seconds", TTL, None, "The time to live of the file."),
        ),
        **_FILE_CHANGE,
    ),
    Operation(
        "append_to_file",
        "POST /files/{path}",
        "Append to a file",
        "Add the body to the end of a file, on a new line. Creates the file if it does not exist.",
        "files.append",
        (PATH_ARGUMENT, _FILE_BODY),
        **_FILE_CHANGE,
    ),
    Operation(
        "edit_file",
        "PATCH /files/{path}",
        "Edit a file",
        "Replace a text in a file, insert after a line, or replace the whole text; the file must exist.",
        arguments=(
            PATH_ARGUMENT,
            body("replace", Kind(_REPLACEMENT), ABSENT),
            body("insert", Kind(_INSERTION), ABSENT),
            body("text", STRICT_TEXT, ABSENT),
        ),
        result=forms.EDITED_FILE,
        needs=("write",),
        body="FileEdit",
        body_about="One of the three. The whole `text` keeps the file's time to live, which a PUT ends.",
        body_extra={
            "oneOf": [{"required": ["replace"]}, {"required": ["insert"]}, {"required": ["text"]}],
            "examples": [{"replace": {"old": "Tuesday", "new": "Thursday"}}],
        },
        if_match=named(FILE, "path"),
    ),
    Operation(
        "delete_path",
        "DELETE /files/{path}",
        "Delete a file or a directory",
        "Delete a file, or a directory with everything in it, in one commit. The empty path deletes everything.\n\n"
        "A path that does not exist is not an error; nothing is removed.",
        "files.delete",
        (PATH_ARGUMENT,),
        forms.REMOVED,
        **DELETION,
        if_match=at_path,
    ),
    Operation(
        "stat_path",
        "GET /info/{path}",
        "Show a file or a directory",
        "Size, lines, revision and times, without the text.",
        "files.stat",
        (PATH_ARGUMENT, AS_OF),
        forms.FILE_FORM,
        statuses=(404, 409),
        links=_FILE_LINKS,
        etag=True,
    ),
    Operation(
        "list_directory",
        "GET /directories/{path}",
        "List a directory",
        "The entries directly in it: directories first, then files, each by name. The empty path is the root.",
        "files.list_page",
        (PATH_ARGUMENT, wide_limit(1_000), CURSOR, AS_OF),
        forms.FILES_PAGE,
        statuses=(404, 409),
    ),
    Operation(
        "make_directory",
        "PUT /directories/{path}",
        "Make a directory",
        "Make a directory and its parents. It may exist already.",
        "files.make_directory",
        (PATH_ARGUMENT,),
        forms.FILE_FORM,
        **CHANGE,
        if_match=named(DIRECTORY, "path"),
        if_new=True,
    ),
    Operation(
        "walk_tree",
        "GET /tree/{path}",
        "List all below a directory",
        "Everything below a directory: its directories in order, then its files in order.",
        "files.page",
        (PATH_ARGUMENT, wide_limit(500), CURSOR),
        forms.FILES_PAGE,
    ),
    Operation(
        "move_path",
        "POST /move",
        "Move a file or a directory",
        "Move a file, or a directory with everything in it, in one commit.",
        "files.move",
        (
            body("old", PATH_TEXT, wire="source", examples=["/notes/today"]),
            body("new", PATH_TEXT, wire="target", examples=["/notes/2026-01-31"]),
        ),
        forms.MOVED,
        needs=("write",),
        links=UNDO,
        body="Move",
    ),
)

_RECORD_LINKS = {
    "get": Link("get_record", {"id": "$response.body#/id"}),
    "update": Link("update_record", {"id": "$response.body#/id"}),
    "delete": Link("delete_record", {"id": "$response.body#/id"}),
}
_IMPORTANCE = body("importance", Kind(schema={"type": ["number", "null"], "minimum": 0, "maximum": 1}), None)
RECORDS = in_group(
    "records",
    Operation(
        "create_record",
        "POST /records",
        "Save a record",
        "Save a record. The same type, source and content again is the same record: they are merged.",
        "records.create",
        (
            body("type", TEXT, examples=["note"]),
            body("content", CONTENT, examples=[{"text": "Deploys go out on Tuesdays"}]),
            body("source", TEXT, examples=["meeting"]),
            body("confidence", CONFIDENCE),
            body("tags", TAGS, ()),
            body("ttl_seconds", SECONDS, None),
            body("id", OPTIONAL_TEXT, None),
            _IMPORTANCE,
        ),
        forms.RECORD_FORM,
        needs=("write",),
        status=201,
        links=_RECORD_LINKS,
        body="NewRecord",
        etag=True,
        location=True,
        again="It existed already, and got all tags and the larger confidence.",
        keyed=True,
    ),
    Operation(
        "list_records",
        "GET /records",
        "List records",
        "Records by type, tags and fields, the newest first.",
        "records.list",
        (
            query("type", TYPE_NAME, None, "Only of this type."),
            query("tags", TAGS, (), "Only with these tags.", wire="tag"),
            query("match", MATCH, "all", "All of the tags, or any."),
            query(
                "filter", FILTER_TEXT, None, 'Fields that hold, as JSON: `{"size":{"$gt":3}}`.', examples=['{"size":3}']
            ),
            wide_limit(20),
            CURSOR,
            AS_OF,
        ),
        forms.RECORDS_PAGE,
    ),
    Operation(
        "get_record",
        "GET /records/{id}",
        "Read a record",
        "A record, now or at an earlier time. `ETag` is its revision and time.",
        "records.get",
        (RECORD_ID, AS_OF),
        forms.RECORD_FORM,
        statuses=(404,),
        links=_RECORD_LINKS,
        etag=True,
    ),
    Operation(
        "update_record",
        "PATCH /records/{id}",
        "Change a record",
        "Change the fields that are sent. If that makes it equal to another record, the two become one, the older.",
        "records.update",
        (
            RECORD_ID,
            body("type", TEXT, None, examples=["note"]),
            body("content", CONTENT, None),
            body("source", TEXT, None),
            body("confidence", CONFIDENCE, None),
            body("tags", TAGS, None),
            body("ttl_seconds", SECONDS, None),
            _IMPORTANCE,
        ),
        forms.RECORD_FORM,
        needs=("write",),
        body="RecordChange",
        etag=True,
        if_match=named(RECORD, "id"),
        keyed=True,
    ),
    Operation(
        "delete_record",
        "DELETE /records/{id}",
        "Delete a record",
        "Delete a record; `POST /v1/undo` with the commit brings it back.",
        "records.delete",
        (RECORD_ID,),
        forms.COMMIT,
        needs=("delete",),
        links=UNDO,
        if_match=named(RECORD, "id"),
    ),
    Operation(
        "delete_records",
        "POST /record-deletions",
        "Delete several records",
        "Delete those of these records that exist, in one commit. The commit is null if none does.",
        "records.delete_all",
        (body("ids", TEXT_LIST),),
        forms.COMMIT,
        **DELETION,
        body="RecordIds",
    ),
    Operation(
        "tag_records",
        "POST /record-tags",
        "Tag several records",
        "Add and remove tags of those of these records that exist, in one commit. The commit is null if none changes.",
        "records.tag_all",
        (body("ids", TEXT_LIST), body("add", TAGS, ()), body("remove", TAGS, ())),
        forms.COMMIT,
        needs=("write",),
        links=UNDO,
        body="RecordTags",
    ),
    Operation(
        "list_standing",
        "GET /standing",
        "List standing instructions and preferences",
        "The records of type `instruction` and `preference` that a person has confirmed.",
        "records.standing",
        result=forms.STANDING,
    ),
    Operation(
        "confirm_record",
        "PUT /standing/{id}",
        "Confirm an instruction or a preference",
        "Recall this record for every question, as long as its type, source and content stay as they are.\n\n"
        "Only for a person: it needs the action `admin`, which a model's key must not have.",
        "records.confirm",
        (RECORD_ID,),
        forms.RECORD_FORM,
        needs=("admin",),
        statuses=(404,),
    ),
    Operation(
        "withdraw_record",
        "DELETE /standing/{id}",
        "Withdraw a confirmation",
        "Stop recalling a record for every question. The record stays.",
        "records.withdraw",
        (RECORD_ID,),
        forms.WITHDRAWN,
        needs=("admin",),
    ),
)

_THREAD_LINKS = {
    "get": Link("get_thread", {"id": "$response.body#/id"}),
    "messages": Link("list_messages", {"thread": "$response.body#/id"}),
    "add": Link("add_messages", {"thread": "$response.body#/id"}),
    "delete": Link("delete_thread", {"id": "$response.body#/id"}),
}
_TITLE = body("title", OPTIONAL_TEXT, None, examples=["Deploys"])
_ID_IN_BODY = body("id", TEXT, wire="thread")
THREADS = in_group(
    "threads",
    Operation(
        "create_thread",
        "POST /threads",
        "Create a thread",
        "Create a conversation. Its resource is the one that is sent, or the last label of the namespace.",
        "threads.create",
        (
            _TITLE,
            body("resource", OPTIONAL_TEXT, None),
            body("metadata", OPTIONAL_METADATA, None),
            body("id", OPTIONAL_TEXT, None),
        ),
        forms.THREAD_FORM,
        **CHANGE,
        status=201,
        links=_THREAD_LINKS,
        body="NewThread",
        location=True,
    ),
    Operation(
        "list_threads",
        "GET /threads",
        "List threads",
        "The threads of a resource, or all; the one used last comes first.",
        "threads.list",
        (RESOURCE, limit(20), CURSOR, AS_OF),
        forms.THREADS_PAGE,
    ),
    Operation(
        "list_threads_by_number",
        "GET /numbered-threads",
        "List threads by page number",
        'With a total, for programs that show "page 3 of 12"; a cursor is quicker.',
        "threads.page_of_threads",
        (
            PAGE_NUMBER,
            query("per_page", number("per_page", 1, 1_000), 100, "How many at most."),
            RESOURCE,
            query("metadata", FILTER_TEXT, None, "Fields of the metadata that hold, as JSON."),
            query("order_by", choice("order_by", "createdAt", "updatedAt"), "updatedAt"),
            query("direction", choice("direction", "ASC", "DESC"), "DESC"),
        ),
        forms.THREADS_NUMBERED,
    ),
    Operation(
        "get_thread",
        "GET /threads/{id}",
        "Read a thread",
        "A thread without its messages. `ETag` is its revision and its last use.",
        "threads.get",
        (THREAD_ID, RESOURCE, AS_OF),
        forms.THREAD_FORM,
        statuses=(404,),
        links=_THREAD_LINKS,
        etag=True,
    ),
    Operation(
        "update_thread",
        "PATCH /threads/{id}",
        "Change a thread",
        "Change the title, or fields of the metadata: null removes one, those not named stay.",
        "threads.update",
        (THREAD_ID, _TITLE, body("metadata", METADATA, None), RESOURCE),
        forms.THREAD_FORM,
        **CHANGE,
        body="ThreadChange",
        if_match=named(THREAD, "id"),
    ),
    Operation(
        "delete_thread",
        "DELETE /threads/{id}",
        "Delete a thread",
        "Delete a thread with its messages and its working memory, in one commit.",
        "threads.delete",
        (THREAD_ID, RESOURCE),
        forms.COMMIT,
        **DELETION,
        if_match=named(THREAD, "id"),
    ),
    Operation(
        "clone_thread",
        "POST /clones",
        "Copy a thread",
        "Copy a thread with its messages, which get new ids: all, or those up to a message or a time (inclusive), "
        "from a\ntime on, those with these ids, or the `last` ones. `to` is the copy's resource; by default, the same.",
        "threads.clone",
        (
            _ID_IN_BODY,
            body("upto_message", OPTIONAL_TEXT, None),
            body("upto", time("upto"), None),
            body("after", time("after"), None),
            body("only", OPTIONAL_TEXT_LIST, None),
            body("last", OPTIONAL_COUNT, None),
            body("title", OPTIONAL_TEXT, None),
            body("metadata", OPTIONAL_METADATA, None),
            body("new_id", OPTIONAL_TEXT, None),
            body("to", OPTIONAL_TEXT, None),
            RESOURCE,
        ),
        forms.THREAD_FORM,
        **CHANGE,
        status=201,
        links=_THREAD_LINKS,
        body="Clone",
    ),
    Operation(
        "transfer_thread",
        "POST /transfers",
        "Transfer a thread to another resource",
        "Move a thread with its messages and its working memory to another resource. Ids and times stay.",
        "threads.transfer",
        (_ID_IN_BODY, body("to", TEXT, examples=["u-456"]), RESOURCE),
        forms.THREAD_FORM,
        **CHANGE,
        links=_THREAD_LINKS,
        body="Transfer",
    ),
    Operation(
        "suggest_title",
        "POST /title-suggestions",
        "Suggest a title",
        "Set the title of a thread that has none yet; a title that somebody chose stays.",
        "threads.suggest_title",
        (_ID_IN_BODY, body("title", TEXT), RESOURCE),
        forms.THREAD_FORM,
        **CHANGE,
        links=_THREAD_LINKS,
        body="TitleSuggestion",
    ),
)
WORKING_MEMORY = in_group(
    "working memory",
    Operation(
        "read_working",
        "GET /working-memory",
        "Read a working memory",
        "What an agent keeps in mind about a resource or a thread; null if there is nothing yet.",
        "threads.working.read",
        (RESOURCE, WORKING_THREAD, AS_OF),
        forms.OPTIONAL_WORKING,
        statuses=(404,),
        etag=True,
    ),
    Operation(
        "write_working",
        "PUT /working-memory",
        "Update a working memory",
        "A text replaces the text; an object is merged into the object. An empty template replaces nothing (409).",
        "threads.working.write",
        (
            body("content", WORKING_CONTENT),
            body("template", WORKING_TEMPLATE, None),
            body("revision", REVISION, None),
            RESOURCE,
            WORKING_THREAD,
        ),
        forms.WORKING_FORM,
        **CHANGE,
        body="WorkingUpdate",
        body_about="A text replaces the text; an object is merged: null deletes a field, lists are replaced.",
        if_match=working_memory,
        if_new=True,
    ),
    Operation(
        "clear_working",
        "DELETE /working-memory",
        "Clear a working memory",
        "Delete a working memory. Its history stays.",
        "threads.working.clear",
        (RESOURCE, WORKING_THREAD),
        forms.COMMIT,
        **DELETION,
        if_match=working_memory,
    ),
    Operation(
        "working_history",
        "GET /working-memory/history",
        "List the revisions of a working memory",
        "Every revision, oldest first, deletions included.",
        arguments=(RESOURCE, WORKING_THREAD, limit(100), CURSOR),
        result=forms.HISTORY,
    ),
)

_FIRST_MESSAGE = {
    "get": Link("get_message", {"id": "$response.body#/messages/0/id"}),
    "around": Link("list_around", {"id": "$response.body#/messages/0/id"}),
}
_MESSAGES = body("messages", MESSAGE_LIST, examples=[[{"role": "user", "content": "When do we deploy?"}]])
_RECALL_BODY = (
    body("thread_id", TEXT, wire="thread"),
    body("resource", OPTIONAL_TEXT, None),
    body("query", OPTIONAL_TEXT, None, examples=["when do we deploy?"]),
    body("last", COUNT, 10),
    body("top", COUNT, 4),
    body("neighbours", COUNT, 1),
    body("scope", Kind(schema={"type": "string", "enum": ["thread", "resource"]}), "thread"),
    MIN_RELEVANCE_IN_BODY,
)
MESSAGES = in_group(
    "messages",
    Operation(
        "begin_thread",
        "POST /conversations",
        "Create a thread with messages",
        "Create a conversation with its first messages, all or none. Each message has the id of its thread.\n\n"
        "If one thread of the resource has all of them already, nothing is created.",
        "threads.begin",
        (_MESSAGES, _TITLE, body("resource", OPTIONAL_TEXT, None), ENTRIES),
        forms.MESSAGES,
        needs=("write",),
        status=201,
        links=_FIRST_MESSAGE,
        body="NewConversation",
        keyed=True,
    ),
    Operation(
        "add_messages",
        "POST /messages",
        "Add messages to a thread",
        "Save messages, all or none, in their order. Messages that exist already stay as they are.\n\n"
        'A message is `{"role": …, "content": …}` in any of the usual forms, and keeps all its fields. Without an id '
        "it\ngets one, without `createdAt` the current time. System messages are left out.",
        "threads.add",
        (OF_THREAD, _MESSAGES, body("verbatim", FLAG, False), RESOURCE, ENTRIES),
        forms.MESSAGES,
        needs=("write",),
        status=201,
        links=_FIRST_MESSAGE,
        body="NewMessages",
        keyed=True,
    ),
    Operation(
        "list_messages",
        "GET /messages",
        "List the messages of a thread",
        "Oldest first: a page, or the `last` messages. `after` (inclusive) and `before` narrow by time.",
        "threads.messages",
        (
            OF_THREAD,
            RESOURCE,
            query(
                "last", count("last", 0, 1_000), None, "Only this many of the last messages; there is no cursor then."
            ),
            limit(100),
            CURSOR,
            moment("after"),
            moment("before"),
            AS_OF,
            ENTRIES,
        ),
        forms.MESSAGES_PAGE,
        statuses=(404,),
        links=_FIRST_MESSAGE,
    ),
    Operation(
        "clear_thread",
        "DELETE /messages",
        "Clear a thread",
        "Delete all messages of a thread, which stays, in one commit.",
        "threads.clear",
        (query("id", id_of("thread id"), wire="thread", about="The thread's id.", examples=["t-1"]), RESOURCE),
        forms.COMMIT,
        **DELETION,
    ),
    Operation(
        "list_messages_by_number",
        "GET /numbered-messages",
        "List messages by page number",
        'With a total, for programs that show "page 3 of 12"; a cursor is quicker.',
        "threads.page_of_messages",
        (
            OF_THREAD,
            PAGE_NUMBER,
            query("per_page", number("per_page", 1, 1_000), 40, "How many at most."),
            RESOURCE,
            query("order_by", choice("order_by", "createdAt", "updatedAt"), "createdAt"),
            query("direction", choice("direction", "ASC", "DESC"), "ASC"),
            moment("after"),
            moment("before"),
            ENTRIES,
        ),
        forms.MESSAGES_NUMBERED,
        statuses=(404,),
    ),
    Operation(
        "get_message",
        "GET /messages/{id}",
        "Read a message",
        "A message by its id. `ETag` is its revision and time.",
        "threads.get_message",
        (MESSAGE_ID, RESOURCE, ENTRIES),
        forms.MESSAGE_FORM,
        statuses=(404,),
        etag=True,
    ),
    Operation(
        "update_message",
        "PATCH /messages/{id}",
        "Change a message",
        "Replace its content, or change fields of its metadata: null removes one. Its place stays.",
        "threads.update_message",
        (MESSAGE_ID, body("content", MESSAGE_CONTENT, None), body("metadata", METADATA, None), RESOURCE, ENTRIES),
        forms.MESSAGE_FORM,
        **CHANGE,
        body="MessageChange",
        if_match=named(MESSAGE, "id"),
    ),
    Operation(
        "delete_messages",
        "POST /message-deletions",
        "Delete messages",
        "Delete those of these messages that exist, in one commit. The commit is null if none does.",
        "threads.delete_messages",
        (body("ids", TEXT_LIST), RESOURCE),
        forms.COMMIT,
        **DELETION,
        body="MessageIds",
    ),
    Operation(
        "replace_messages",
        "POST /message-replacements",
        "Replace messages of a thread",
        "Delete all messages of a thread, or those in `seen`, and add others at its end, in one commit.\n\n"
        "`seen` has the ids with the revisions that you have read. 412 if one of them has changed or is gone, or if "
        "the\nthread has a newer message.",
        "threads.replace_messages",
        (
            OF_THREAD,
            _MESSAGES,
            body("seen", SEEN, None, examples=[{"m-1": 1}]),
            body("verbatim", FLAG, False),
            RESOURCE,
            ENTRIES,
        ),
        forms.MESSAGES,
        needs=("write", "delete"),
        statuses=(412,),
        body="MessageReplacement",
        keyed=True,
    ),
    Operation(
        "list_around",
        "GET /around/{id}",
        "Read a message with its neighbours",
        "A message with the messages of its thread before and after it, oldest first.",
        "threads.around",
        (
            path("message_id", id_of("message id"), wire="id"),
            query("before", count("before", 0, 1_000), 1),
            query("after", count("after", 0, 1_000), 1),
            RESOURCE,
            AS_OF,
            ENTRIES,
        ),
        forms.MESSAGES,
        statuses=(404,),
    ),
    Operation(
        "count_messages",
        "POST /message-counts",
        "Count the messages of threads",
        "How many messages each of these threads has; 0 for one that does not exist.",
        "threads.count_messages",
        (body("ids", TEXT_LIST),),
        forms.MESSAGE_COUNTS,
        body="ThreadIds",
    ),
    Operation(
        "recall_by_query",
        "GET /recall",
        "Recall from a thread",
        "The last messages and the `top` ones that the query finds, with their neighbours, each once, in time order.",
        "threads.recall",
        (
            OF_THREAD,
            RESOURCE,
            query("query", STRICT_TEXT, None, "What to search for."),
            query("last", count("last", 0, 1_000), 10),
            query("top", count("top", 0, 100), 4),
            query("neighbours", count("neighbours", 0, 100), 1),
            query("scope", choice("scope", "thread", "resource"), "thread"),
            MIN_RELEVANCE,
            ENTRIES,
            FULL,
        ),
        forms.FULL_RECALL,
        forms.LIGHT_RECALL,
        statuses=(404,),
        in_client=False,
    ),
    Operation(
        "recall",
        "POST /recall",
        "Recall from a thread, with a long query",
        "As GET, with the fields in the body.",
        "threads.recall",
        (*_RECALL_BODY, ENTRIES, FULL),
        forms.FULL_RECALL,
        forms.LIGHT_RECALL,
        statuses=(404,),
        body="RecallBody",
    ),
    Operation(
        "build_context",
        "POST /context",
        "Build the context for a model",
        "What `recall` finds as messages for a model, with the working memory, in at most `max_tokens` (estimated).\n\n"
        "A tool call and its result are included together or not at all.",
        "threads.context",
        (
            *_RECALL_BODY,
            body("max_tokens", POSITIVE, None),
            body("working", FLAG, True),
            body("standing", FLAG, True),
        ),
        forms.CONTEXT,
        statuses=(404,),
        body="ContextBody",
    ),
)

_ITEM_KEY = path("key", Kind(send=lambda key, limits: check_item_key(key)), wire="item")
_ITEM_KEYS = body("keys", TEXT_LIST, examples=[["theme"]])
_ITEM_LINKS = {
    "get": Link("get_item", {"item": "$response.body#/key"}),
    "delete": Link("delete_item", {"item": "$response.body#/key"}),
}
_ITEM_BODY = (
    body("value", ITEM_VALUE, examples=[{"theme": "dark"}]),
    body("fields", OPTIONAL_TEXT_LIST, None, examples=[["title", "parts[*].text"]]),
    body("ttl_seconds", SECONDS, None),
    body("revision", OPTIONAL_COUNT, None),
    body("history", Kind(schema={"type": "boolean"}), True),
    body("model", OPTIONAL_TEXT, None),
    body("vectors", VECTORS, ()),
)
_ITEM_FILTER = query("filter", FILTER_TEXT, None, "Fields that hold, as JSON.", examples=['{"theme":"dark"}'])
_ORDER = choice("order", "key", "created", "updated")
ITEMS = in_group(
    "items",
    Operation(
        "put_item",
        "PUT /items/{item}",
        "Write an item",
        "Write a JSON value under a key: a new item, or a new revision.\n\n"
        "`revision` is the one that the caller has seen, 0 if none may exist; another one is refused (412). `fields` "
        "are the paths that search sees. With `history: false` former states are not kept and search does not see it.",
        "items.put",
        (_ITEM_KEY, *_ITEM_BODY),
        forms.ITEM_FORM,
        **CHANGE,
        links=_ITEM_LINKS,
        body="ItemBody",
        if_match=named(ITEM, "key"),
        if_new=True,
    ),
    Operation(
        "get_item",
        "GET /items/{item}",
        "Read an item",
        "An item, now or at an earlier time. `ETag` is its revision and time.",
        "items.get",
        (_ITEM_KEY, AS_OF),
        forms.ITEM_FORM,
        statuses=(404,),
        links=_ITEM_LINKS,
        etag=True,
    ),
    Operation(
        "delete_item",
        "DELETE /items/{item}",
        "Delete an item",
        "Delete an item. One that does not exist is not an error; the commit is null then.",
        "items.delete",
        (_ITEM_KEY, query("revision", REVISION, None, "Only if it has this revision.")),
        forms.COMMIT,
        **DELETION,
        if_match=named(ITEM, "key"),
    ),
    Operation(
        "list_items",
        "GET /items",
        "List items",
        "Items by key, or by when they were created or updated.",
        "items.list",
        (
            query("prefix", STRICT_TEXT, "", "Only keys that begin with this."),
            _ITEM_FILTER,
            query("order", _ORDER, "key"),
            query("descending", FLAG, False),
            wide_limit(100),
            CURSOR,
            AS_OF,
        ),
        forms.ITEMS_PAGE,
    ),
    Operation(
        "list_items_below",
        "GET /items-below",
        "List items of several namespaces",
        "The items of the namespace and of all below it, in one order. Only for a caller that reaches them.",
        "items.list_below",
        (
            _ITEM_FILTER,
            query("order", _ORDER, "updated"),
            query("descending", FLAG, True),
            limit(100),
            query("offset", number("offset", 0, 10_000), 0),
            query("history", FLAG, False, "Leave out items without history."),
            query("everywhere", FLAG, False, "Every namespace; needs a key that reaches all."),
        ),
        forms.ITEMS,
    ),
    Operation(
        "get_items",
        "POST /item-reads",
        "Read several items",
        "The items with these keys, in this order; null for one that does not exist.",
        "items.get_all",
        (_ITEM_KEYS,),
        forms.OPTIONAL_ITEMS,
        body="ItemKeys",
    ),
    Operation(
        "refresh_items",
        "POST /item-refreshes",
        "Read several items and renew them",
        "As reading them; the time to live of each begins again, without a new revision.",
        "items.refresh",
        (_ITEM_KEYS,),
        forms.OPTIONAL_ITEMS,
        needs=("write",),
        body="RefreshedItemKeys",
    ),
    Operation(
        "write_items",
        "POST /item-writes",
        "Write and delete several items",
        "Write and delete items in one commit, or change nothing. Deleting needs the action `delete` too.",
        "items.write_all",
        (body("puts", ITEM_PUTS), body("deletes", TEXT_LIST, ())),
        forms.ITEMS,
        needs=("write",),
        keyed=True,
        body="ItemWrites",
    ),
    Operation(
        "clear_items",
        "POST /item-deletions",
        "Delete items by a prefix",
        "Delete the items whose keys begin with a prefix, in one commit; with a `filter`, only those that pass it. "
        "An empty prefix without a filter deletes all items.",
        "items.clear",
        (
            body("prefix", TEXT, examples=["cache/"]),
            body("filter", FILTER, None, examples=[{"created": {"$lt": "2026-01-01"}}]),
        ),
        forms.REMOVED_ITEMS,
        needs=("delete",),
        body="ItemPrefix",
    ),
)

_NOW = query("now", time("now"), None, "The time that `yesterday` in the query refers to.")
_QUERY = body("query", TEXT, examples=["when do we deploy?"])
_ENTRY = (path("kind", Kind(KindName)), path("key", STRICT_TEXT))
SEARCH = in_group(
    "search and history",
    Operation(
        "search_by_query",
        "GET /search",
        "Search",
        "Find by words and by meaning, over files, records and messages alike; the best first.",
        "search",
        arguments=(
            query(
                "query", STRICT_TEXT, REQUIRED, "What to find, in any words.", wire="q", examples=["when do we deploy?"]
            ),
            limit(10),
            query("offset", number("offset", 0, 10_000), 0),
            query(
                "kinds",
                KINDS,
                (),
                "Only these kinds: `file`, `record`, `message`, `item` (all by default).",
                wire="kind",
            ),
            query("type", STRICT_TEXT, None, "Only records of this type."),
            query("tags", TAGS, (), "Only with these tags.", wire="tag"),
            query("match", MATCH, "all"),
            query("filter", FILTER_TEXT, None, "Fields that hold, as JSON."),
            moment("after"),
            moment("before"),
            moment("as_of"),
            _NOW,
            query("below", FLAG, False, "Also search the namespaces under this one."),
            query("everywhere", FLAG, False, "Search every namespace; needs a key that reaches all."),
            MIN_RELEVANCE,
            query("wrapped", FLAG, False, "Include the hits as one text for a prompt, marked as data."),
            FULL,
        ),
        result=forms.FULL_SEARCH,
        light=forms.LIGHT_SEARCH,
        in_client=False,
    ),
    Operation(
        "search",
        "POST /search",
        "Search with a body",
        "As GET, with the fields in the body: for long queries and filters. Continue with `offset`.\n\n"
        "In place of a query, a `vector` of the store's own model, or of the `model` whose vectors items were given.",
        "search",
        arguments=(
            body("query", TEXT, "", examples=["when do we deploy?"]),
            body("limit", Kind(int, bounds={"ge": 1, "le": 1_000}), 10),
            body("offset", Kind(int, bounds={"ge": 0, "le": 10_000}), 0),
            body("kinds", KINDS, None, examples=[["file", "record", "message"]]),
            body("type", STRICT_TEXT, None),
            body("tags", TAGS, ()),
            body("match", MATCH, "all"),
            body("filter", FILTER, None),
            body("after", time("after"), None),
            body("before", time("before"), None),
            body("as_of", time("as_of"), None),
            body("now", time("now"), None),
            body("below", FLAG, False),
            body("everywhere", FLAG, False),
            body("vector", VECTOR, None),
            body("model", OPTIONAL_TEXT, None),
            MIN_RELEVANCE_IN_BODY,
            body("wrapped", FLAG, False),
            FULL,
        ),
        result=forms.FULL_SEARCH,
        light=forms.LIGHT_SEARCH,
        body="SearchBody",
    ),
    Operation(
        "search_threads_by_query",
        "GET /thread-search",
        "Search for threads",
        "The conversations that are about something, best first, each with what was found in it.",
        "threads.search",
        (
            query(
                "query", STRICT_TEXT, REQUIRED, "What the threads are about.", wire="q", examples=["when do we deploy?"]
            ),
            query("limit", count("limit", 1, 100), 10),
            RESOURCE,
            _NOW,
            MIN_RELEVANCE,
            FULL,
        ),
        forms.FULL_THREAD_SEARCH,
        forms.LIGHT_THREAD_SEARCH,
        in_client=False,
    ),
    Operation(
        "search_threads",
        "POST /thread-search",
        "Search for threads with a body",
        "As GET, with the fields in the body.",
        "threads.search",
        (
            _QUERY,
            body("limit", COUNT, 10),
            body("resource", OPTIONAL_TEXT, None),
            body("now", time("now"), None),
            MIN_RELEVANCE_IN_BODY,
            FULL,
        ),
        forms.FULL_THREAD_SEARCH,
        forms.LIGHT_THREAD_SEARCH,
        body="ThreadSearchBody",
    ),
    Operation(
        "list_history",
        "GET /history/{kind}/{key}",
        "List the revisions of an entry",
        "Every revision of a file's path, or of a record's, thread's or message's id, oldest first, deletions "
        "included.",
        arguments=(*_ENTRY, limit(100), CURSOR),
        result=forms.HISTORY,
    ),
    Operation(
        "get_state",
        "GET /states/{kind}/{key}",
        "Read a former state",
        "One state of an entry as it was.",
        arguments=(*_ENTRY, query("revision", REVISION)),
        result=forms.ENTRY,
        statuses=(404,),
    ),
    Operation(
        "restore",
        "POST /restore",
        "Restore a former state",
        "Restore a former state as a new revision.",
        "restore",
        (body("kind", ENTRY_KIND), body("key", STRICT_TEXT, examples=["/notes/today"]), body("revision", REVISION)),
        forms.COMMIT,
        needs=("write",),
        links=UNDO,
        body="Restoration",
    ),
    Operation(
        "undo",
        "POST /undo",
        "Undo a commit",
        "Undo a whole commit with a new one, or change nothing (409).",
        "undo",
        (body("commit", REVISION, examples=[17]),),
        forms.COMMIT,
        needs=("write", "delete"),
        links={"again": Link("undo")},
        body="Undoing",
    ),
    Operation(
        "purge",
        "POST /purge",
        "Erase for good",
        "Erase one entry with its history, all of a kind, or everything. It cannot be undone and needs `admin`.",
        arguments=(
            body("kind", STRICT_TEXT, None, examples=["file"]),
            body("key", STRICT_TEXT, None, examples=["/notes/today"]),
            body("history_before", time("history_before"), None),
            body("revision", REVISION, None),
            body("everything", FLAG, False),
        ),
        result=forms.PURGED,
        needs=("admin",),
        statuses=(404,),
        body="Purge",
        body_about="One entry, or one former `revision` of it, all of a kind, history before a time, or with "
        "`everything` the whole namespace.",
    ),
)

FEED = in_group(
    "changes",
    Operation(
        "list_recent",
        "GET /recent",
        "List what changed last",
        "The files, records and messages that changed last, the newest first, each with how its text begins.",
        "recent",
        (limit(20), query("kinds", KINDS, (), "Only these kinds.", wire="kind")),
        forms.inside("RecentModel", "entries", forms.many(forms.form_for(Recent, "RecentEntry", kind=forms.KIND))),
    ),
    Operation(
        "list_changes",
        "GET /changes",
        "List changes",
        "The changes after a commit, in order, whole commits only.\n\n"
        "410: history no longer reaches back that far, or ends before.",
        arguments=(query("after", REVISION, 0, "The last commit seen; 0 is the beginning."), wide_limit(1_000)),
        result=forms.CHANGES,
        statuses=(410,),
    ),
    Operation(
        "follow_changes",
        "GET /changes/stream",
        "Follow changes",
        "Server-sent events from a commit on, without end. A reader that sends `Last-Event-ID` continues from there.",
        arguments=(
            query("after", REVISION, None, "Without it, only changes from now on."),
            header("last_event_id", "Last-Event-ID", "Sent by a reader that reconnects.", examples=["17"]),
        ),
        statuses=(410,),
        text="text/event-stream",
        example="event: commit\nid: 17\n"
        'data: {"commit":17,"changes":[{"action":"created","kind":"file","key":"/a",…}]}\n\n',
        done="Events `commit`, each a whole commit; `resync` if the history does not reach that far.",
    ),
)
TRANSFER = in_group(
    "export and import",
    Operation(
        "export",
        "GET /export",
        "Export namespaces",
        "Everything of some namespaces, in one snapshot: entries, history, revisions and times.",
        arguments=(
            query(
                "namespaces",
                Kind(list[str]),
                (),
                "These namespaces; left out, the caller's own. May be repeated.",
                wire="namespace",
            ),
            query("everything", FLAG, False, "Every namespace; needs a key that reaches all."),
        ),
        statuses=(404,),
        text="application/jsonl",
        done="JSON lines, docs/internal/export-format.md. Without a footer it was cut off.",
        in_namespace=False,
    ),
    Operation(
        "import_lines",
        "POST /import",
        "Import namespaces",
        "Import an export, each namespace completely or not at all; needs the action `admin`, since history is "
        "imported unchanged.\n\nAfter an interruption, send it again: namespaces that exist already are not changed.",
        arguments=(
            query("namespace", STRICT_TEXT, None, "Import only this namespace of the file."),
            query("merge", FLAG, False, "Add what is missing to namespaces that differ."),
        ),
        result=forms.IMPORTED_NAMESPACES,
        needs=("admin",),
        statuses=(404, 409),
        text="application/jsonl",
        in_namespace=False,
    ),
)
TRANSFER += in_group(
    "export and import",
    Operation(
        "import_memory",
        "POST /import-memory",
        "Import the memory of another program",
        "The body is a file as that program exported it, or a zip archive of a folder (docs/guides/import.md lists the "
        "programs). It is recognised by its content.\n\nEach conversation is one commit. What is there already stays, "
        "so that you can send it again. `commits` names the first and last commit in each namespace; undo them one by "
        "one, the last one first.",
        arguments=(
            query("namespace", STRICT_TEXT, None, "Where things go; left out, the caller's own namespace."),
            query("format", STRICT_TEXT, None, "The format, if it is not recognised."),
            query(
                "mapping",
                Kind(list[str]),
                (),
                "A rule FROM=NAMESPACE, such as `user/*=people/*`. May be repeated.",
                wire="map",
            ),
            query("again", FLAG, False, "Import also what was deleted here since."),
            query("dry_run", FLAG, False, "Only count what would be imported."),
            query("name", STRICT_TEXT, None, "What the file is called.", examples=["export.zip"]),
        ),
        result=forms.IMPORT_REPORT,
        needs=("write",),
        statuses=(404, 409),
        text="application/octet-stream",
        in_namespace=False,
    ),
)
OPERATIONS = (*SERVICE, *FILES, *RECORDS, *ITEMS, *THREADS, *WORKING_MEMORY, *MESSAGES, *SEARCH, *FEED, *TRANSFER)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def markdown() -> Iterator[str]:
    """The table of docs/reference/rest.md, line by line."""
    group = None
    for operation in OPERATIONS:
        if operation.group != group:
            if group is not None:
                yield ""
            group = operation.group
            yield f"| {group} | | needs |"
            yield "| --- | --- | --- |"
        summary = operation.summary[0].lower() + operation.summary[1:]
        needs = ", ".join(f"`{action}`" for action in operation.needs)
        yield f"| `{operation.method} {operation.address}` | {summary} | {needs} |"
