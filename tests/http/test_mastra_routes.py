"""Mastra's routes in detail; its own client runs over all of them in scripts/mastra_routes.py."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from real_server import Server

import commonplace
from commonplace import Unavailable
from commonplace.redaction import Redactor

PREFIX = "/api/memory"
AGENT = {"agentId": "a-1"}


def make_thread(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    made = http.post(f"{PREFIX}/threads", params=AGENT, json={"resourceId": "u-1", **fields})
    assert made.status_code == 200, made.text
    return dict(made.json())


def save(http: httpx.Client, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    whole = [{"threadId": "t", "resourceId": "u-1", "role": "user", **message} for message in messages]
    saved = http.post(f"{PREFIX}/save-messages", params=AGENT, json={"messages": whole})
    assert saved.status_code == 200, saved.text
    return list(saved.json()["messages"])


def listed(http: httpx.Client, **query: Any) -> Any:
    answer = http.get(f"{PREFIX}/threads/t/messages", params={**AGENT, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


# Whose memory


@pytest.mark.promise("mastra-agent-is-a-namespace")
def test_an_agents_memory_is_the_namespace_that_the_library_gives_it(
    http: httpx.Client, book: commonplace.Book
) -> None:
    make_thread(http, threadId="t")
    space = book.space("agent", "a-1")
    assert [thread.id for thread in space.threads.list().threads] == ["t"]
    [change] = space.changes()
    assert str(change.actor).startswith("local mastra python-httpx/")
    assert http.get(f"{PREFIX}/threads/t", params={"agentId": "a-2"}).status_code == 404


@pytest.mark.promise("mastra-keys-are-apart")
def test_keys_with_the_same_agent_see_nothing_of_each_other(
    server: Server, make_key: Any, book: commonplace.Book
) -> None:
    ann, bob = make_key("ann", "user/ann"), make_key("bob", "user/bob", reach="below")
    with server.client(ann) as hers, server.client(bob) as his:
        make_thread(hers, threadId="t", title="canary")
        save(hers, {"id": "m", "content": "canary"})
        hers.post(f"{PREFIX}/threads/t/working-memory", params=AGENT, json={"workingMemory": "# canary"})
        refused = [
            his.get(f"{PREFIX}/threads/t", params=AGENT),
            his.get(f"{PREFIX}/threads/t/messages", params=AGENT),
            his.get(f"{PREFIX}/network/threads/t/messages", params={"networkId": "a-1"}),
            his.patch(f"{PREFIX}/threads/t", params=AGENT, json={"title": "x"}),
            his.delete(f"{PREFIX}/threads/t", params=AGENT),
            his.post(f"{PREFIX}/threads/t/clone", params=AGENT, json={}),
            his.post(f"{PREFIX}/threads/t/transfer", params=AGENT, json={"resourceId": "x"}),
            his.post(f"{PREFIX}/threads/t/working-memory", params=AGENT, json={"workingMemory": "x"}),
        ]
        assert [answer.status_code for answer in refused] == [404] * len(refused)
        seen = [
            his.get(f"{PREFIX}/threads", params=AGENT),
            his.get(f"{PREFIX}/search", params={**AGENT, "searchQuery": "canary", "resourceId": "u-1"}),
            his.get(f"{PREFIX}/threads/t/working-memory", params={**AGENT, "resourceId": "u-1"}),
            his.post(f"{PREFIX}/messages/delete", params=AGENT, json={"messageIds": ["m"]}),
        ]
        assert [answer.status_code for answer in seen] == [200] * len(seen)
        told = b"".join(answer.content for answer in (*refused, *seen)).replace(b'"query":"canary"', b"")
        assert b"canary" not in told
        for wider in ("../ann/agent/a-1", "a-1/../../ann", "ann/agent/a-1", "", " "):
            answer = his.get(f"{PREFIX}/threads", params={"agentId": wider})
            assert b"canary" not in answer.content
    assert book.namespaces() == [("user", "ann", "agent", "a-1")]


@pytest.mark.promise("mastra-read-only")
def test_a_key_that_may_only_read_writes_through_no_route(server: Server, make_key: Any) -> None:
    writer, reader = make_key("writer", "user/ann"), make_key("reader", "user/ann", actions=("read",))
    with server.client(writer) as http:
        make_thread(http, threadId="t", title="T")
        save(http, {"id": "m", "content": "hello"})
    with server.client(reader) as http:
        answers = [
            http.post(f"{PREFIX}/threads", params=AGENT, json={"resourceId": "u-1"}),
            http.patch(f"{PREFIX}/threads/t", params=AGENT, json={"title": "x"}),
            http.delete(f"{PREFIX}/threads/t", params=AGENT),
            http.post(f"{PREFIX}/threads/t/clone", params=AGENT, json={}),
            http.post(f"{PREFIX}/threads/t/transfer", params=AGENT, json={"resourceId": "x"}),
            http.post(f"{PREFIX}/threads/t/working-memory", params=AGENT, json={"workingMemory": "x"}),
            http.post(f"{PREFIX}/messages/delete", params=AGENT, json={"messageIds": "m"}),
            http.post(
                f"{PREFIX}/save-messages",
                params=AGENT,
                json={"messages": [{"threadId": "t", "resourceId": "u-1", "role": "user", "content": "x"}]},
            ),
        ]
        assert [answer.status_code for answer in answers] == [403] * len(answers)
        assert all("is not permitted" in answer.json()["error"] for answer in answers)
        assert [one["id"] for one in listed(http)["messages"]] == ["m"]


def test_without_a_key_where_one_is_needed_nothing_is_answered(http: httpx.Client, make_key: Any) -> None:
    make_key("ann", "user/ann")
    assert http.get(f"{PREFIX}/threads", params=AGENT).status_code == 401


def test_without_an_agent_it_is_the_callers_own_memory(http: httpx.Client, book: commonplace.Book) -> None:
    book.space("user", "default").threads.create("Mine", id="t", resource="u-1")
    assert [one["title"] for one in http.get(f"{PREFIX}/threads").json()["threads"]] == ["Mine"]
    assert http.get(f"{PREFIX}/threads/t", params={"agentId": "undefined"}).json()["title"] == "Mine"
    refused = http.delete(f"{PREFIX}/threads/t")
    assert (refused.status_code, refused.json()) == (
        400,
        {"error": "agentId is required: name the agent whose memory is to be changed"},
    )


# Shapes


def test_a_thread_without_a_title_gets_one_from_its_first_message(http: httpx.Client) -> None:
    assert "title" not in make_thread(http, threadId="t")
    save(http, {"content": "How do I deploy on Tuesdays? It is urgent."})
    assert http.get(f"{PREFIX}/threads/t", params=AGENT).json()["title"] == "How do I deploy on Tuesdays?"
    assert make_thread(http, threadId="t")["title"] == "How do I deploy on Tuesdays?"
    for other in ({"title": "Other"}, {"metadata": {"a": 1}}):
        again = {"resourceId": "u-1", "threadId": "t", **other}
        assert http.post(f"{PREFIX}/threads", params=AGENT, json=again).status_code == 409


@pytest.mark.promise("mastra-message-shapes")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("plain", {"format": 2, "parts": [{"type": "text", "text": "plain"}], "content": "plain"}),
        (
            {"format": 2, "parts": [{"type": "text", "text": "a"}], "metadata": {"k": 1}},
            {"format": 2, "parts": [{"type": "text", "text": "a"}], "metadata": {"k": 1}},
        ),
        (
            [
                {"type": "text", "text": "a"},
                {"type": "tool-call", "toolCallId": "c", "toolName": "n", "args": {"x": 1}},
                {"type": "tool-result", "toolCallId": "c", "toolName": "n", "result": 2},
            ],
            {
                "format": 2,
                "parts": [
                    {"type": "text", "text": "a"},
                    {
                        "type": "tool-invocation",
                        "toolInvocation": {"state": "call", "toolCallId": "c", "toolName": "n", "args": {"x": 1}},
                    },
                    {
                        "type": "tool-invocation",
                        "toolInvocation": {"state": "result", "toolCallId": "c", "toolName": "n", "result": 2},
                    },
                ],
            },
        ),
    ],
)
def test_every_message_is_told_in_format_2(
    http: httpx.Client, book: commonplace.Book, content: Any, told: dict[str, Any]
) -> None:
    make_thread(http, threadId="t")
    [saved] = save(http, {"id": "m", "role": "assistant", "content": content, "createdAt": "2026-01-01T12:00:00.123Z"})
    assert saved == {
        "id": "m",
        "role": "assistant",
        "content": told,
        "threadId": "t",
        "resourceId": "u-1",
        "createdAt": "2026-01-01T12:00:00.123Z",
    }
    assert listed(http)["messages"] == [saved]
    assert book.space("agent", "a-1").threads.get_message("m").content == content


@pytest.mark.promise("mastra-message-shapes")
def test_a_signal_is_kept_and_what_a_user_sent_so_is_a_users_message(
    http: httpx.Client, book: commonplace.Book
) -> None:
    def signal(id: str, kind: str, text: str) -> dict[str, Any]:
        content = {"format": 2, "parts": [{"type": "text", "text": text}], "metadata": {"signal": {"type": kind}}}
        return {"id": id, "role": "signal", "type": kind, "content": content}

    sent = [signal("m1", "user", "Use the blue cluster!"), signal("m2", "reactive", "The cluster is red.")]
    make_thread(http, threadId="t")
    saved = save(http, *sent)
    told = [{name: one[name] for name in sent[0]} for one in saved]
    assert (told, listed(http)["messages"], save(http, *sent)) == (sent, saved, saved)
    for role, ids in (("signal", ["m1", "m2"]), ("user", [])):
        assert [one["id"] for one in listed(http, filter=json.dumps({"roles": [role]}))["messages"]] == ids
    query = {**AGENT, "resourceId": "u-1", "searchQuery": "blue cluster"}
    found = http.get(f"{PREFIX}/search", params=query).json()["results"]
    assert [(one["id"], one["role"]) for one in found] == [("m1", "signal"), ("m2", "signal")]
    thread = book.space("agent", "a-1").threads.get("t")
    assert thread.title == "Use the blue cluster!"
    assert [message["role"] for message in thread.context().messages] == ["user", "signal"]


@pytest.mark.promise("mastra-pages")
def test_pages_count_from_the_newest_unless_an_order_is_given(http: httpx.Client, clock: Any) -> None:
    make_thread(http, threadId="t")
    for number in range(5):
        clock.advance()
        save(http, {"id": f"m{number}", "role": "assistant" if number % 2 else "user", "content": f"{number}"})

    def ids(**query: Any) -> tuple[list[str], int, bool]:
        page = listed(http, **query)
        return [one["id"] for one in page["messages"]], page["total"], page["hasMore"]

    ascending, descending = ('{"field":"createdAt","direction":"ASC"}', '{"field":"createdAt","direction":"DESC"}')
    assert ids() == (["m0", "m1", "m2", "m3", "m4"], 5, False)
    assert ids(perPage=2) == (["m3", "m4"], 5, True)
    assert ids(perPage=2, page=2) == (["m0"], 5, False)
    assert ids(perPage=2, page=1, orderBy=ascending) == (["m2", "m3"], 5, True)
    assert ids(perPage=2, orderBy=descending) == (["m4", "m3"], 5, True)
    assert ids(perPage=2, page=9) == ([], 5, False)
    users = json.dumps({"roles": ["user"]})
    assert ids(perPage=2, filter=users) == (["m2", "m4"], 3, True)
    assert ids(perPage=2, page=1, filter=users) == (["m0"], 3, False)
    assert ids(perPage=2, page=1, filter=users, orderBy=ascending) == (["m4"], 3, False)
    assert ids(perPage=1, page=1, filter=users, orderBy=descending) == (["m2"], 3, True)


@pytest.mark.promise("mastra-pages")
def test_included_messages_of_one_time_come_in_the_order_they_were_saved(http: httpx.Client) -> None:
    make_thread(http, threadId="t")
    save(http, *({"id": f"m{number}", "content": f"{number}"} for number in range(6)))
    include = json.dumps([{"id": "m1", "withPreviousMessages": 1, "withNextMessages": 1}])
    expected = ["m0", "m1", "m2", "m4", "m5"]
    assert [one["id"] for one in listed(http, perPage=2, include=include)["messages"]] == expected
    newest_first = listed(http, perPage=2, include=include, orderBy='{"field":"createdAt","direction":"DESC"}')
    assert [one["id"] for one in newest_first["messages"]] == expected[::-1]


@pytest.mark.promise("mastra-pages")
def test_a_page_of_none_has_only_what_is_included(http: httpx.Client) -> None:
    """`perPage=0` was refused: Mastra asks so for the messages that a search found, without a page of the newest."""
    make_thread(http, threadId="t")
    save(http, *({"id": f"m{number}", "content": f"text {number}"} for number in range(4)))
    assert (listed(http, perPage=0)["messages"], listed(http, perPage=0)["hasMore"]) == ([], False)
    include = json.dumps([{"id": "m2", "withPreviousMessages": 1}])
    found = listed(http, perPage=0, include=include)
    assert ([one["id"] for one in found["messages"]], found["perPage"], found["hasMore"]) == (["m1", "m2"], 0, False)
    threads = http.get(f"{PREFIX}/threads", params={**AGENT, "perPage": 0}).json()
    assert (threads["threads"], threads["total"], threads["hasMore"]) == ([], 1, False)


@pytest.mark.promise("mastra-pages")
def test_a_message_to_include_that_is_gone_leaves_the_page_as_it_is(http: httpx.Client) -> None:
    """One id of a deleted message made the whole page a 404."""
    make_thread(http, threadId="t")
    save(http, *({"id": f"m{number}", "content": f"text {number}"} for number in range(4)))
    include = json.dumps([{"id": "gone"}, {"id": "m0"}])
    assert [one["id"] for one in listed(http, perPage=2, include=include)["messages"]] == ["m0", "m2", "m3"]


def test_nothing_more_is_told_of_where_the_included_messages_are_the_rest(http: httpx.Client) -> None:
    """`hasMore` was true though the included messages were all that was left, so a client asked on."""
    make_thread(http, threadId="t")
    make_thread(http, threadId="other")
    save(http, *({"id": f"m{number}", "content": f"text {number}"} for number in range(4)))
    save(http, {"id": "elsewhere", "threadId": "other", "content": "x"})
    rest = json.dumps([{"id": "m1", "withPreviousMessages": 1}])
    some = json.dumps([{"id": "m1"}, {"id": "elsewhere"}])
    assert [listed(http, perPage=2, include=include)["hasMore"] for include in (rest, some)] == [False, True]


def test_a_change_without_a_json_content_type_is_read_as_json(http: httpx.Client) -> None:
    """client-js 0.17 sends the body of a PATCH as text, and every rename of a thread failed.

    A POST is not read so: pages of other sites may send one as text without asking.
    """
    make_thread(http, threadId="t")
    body, text = json.dumps({"title": "New"}), {"content-type": "text/plain;charset=UTF-8"}
    changed = http.patch(f"{PREFIX}/threads/t", params=AGENT, content=body, headers=text)
    assert (changed.status_code, changed.json().get("title")) == (200, "New"), changed.text
    assert http.patch(f"{PREFIX}/threads/t", params=AGENT, content="{", headers=text).status_code == 400
    created = http.post(f"{PREFIX}/threads", params=AGENT, content='{"resourceId": "u-1"}', headers=text)
    assert created.status_code == 400


def test_threads_are_ordered_in_each_of_the_three_spellings(http: httpx.Client, clock: Any) -> None:
    for number in range(3):
        clock.advance()
        make_thread(http, threadId=f"t{number}")

    def ids(query: str) -> list[str]:
        answer = http.get(f"{PREFIX}/threads?agentId=a-1&{query}")
        return [one["id"] for one in answer.json()["threads"]]

    oldest_first = ["t0", "t1", "t2"]
    assert ids("") == oldest_first[::-1]
    assert ids("orderBy[field]=createdAt&orderBy[direction]=ASC") == oldest_first
    assert ids("orderBy=createdAt&sortDirection=ASC") == oldest_first
    assert ids('orderBy={"field":"createdAt","direction":"ASC"}') == oldest_first
    assert ids("resourceid=u-1&perPage=1") == ["t2"]
    assert ids("resourceid=u-2") == []


def test_metadata_that_is_given_takes_the_place_of_what_was_there(http: httpx.Client) -> None:
    made = make_thread(http, threadId="t", title="T", metadata={"a": 1, "b": 2})
    changed = http.patch(f"{PREFIX}/threads/t", params=AGENT, json={"metadata": {"b": 3, "c": 4}}).json()
    assert changed == {**made, "metadata": {"b": 3, "c": 4}, "updatedAt": changed["updatedAt"]}


def test_of_two_changes_of_the_metadata_at_once_one_is_there_whole(
    http: httpx.Client, book: commonplace.Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_thread(http, threadId="t", metadata={"state": "open"})
    write, rivals = type(book.store).write, [{"assignedTo": "bob"}]

    def write_after_another(store: Any, *arguments: Any, **options: Any) -> Any:
        if rivals:
            book.space("agent", "a-1").threads.update("t", metadata={"state": None, **rivals.pop()})
        return write(store, *arguments, **options)

    monkeypatch.setattr(type(book.store), "write", write_after_another)
    changed = http.patch(f"{PREFIX}/threads/t", params=AGENT, json={"metadata": {"closedBy": "ann"}})
    assert (changed.json()["metadata"], rivals) == ({"closedBy": "ann"}, [])


def test_one_call_may_save_to_several_threads_and_all_of_them_must_exist(http: httpx.Client) -> None:
    make_thread(http, threadId="t")
    make_thread(http, threadId="t2", resourceId="u-2")
    saved = save(http, {"content": "a"}, {"content": "b", "threadId": "t2", "resourceId": "u-2"}, {"content": "c"})
    assert [one["threadId"] for one in saved] == ["t", "t", "t2"]
    messages = [{"role": "user", "content": "x", "resourceId": "u-1", "threadId": id} for id in ("t", "none")]
    refused = http.post(f"{PREFIX}/save-messages", params=AGENT, json={"messages": messages})
    assert (refused.status_code, refused.json()) == (404, {"error": "No thread found with id none"})
    assert len(listed(http)["messages"]) == 2


@pytest.mark.parametrize("id", ["tenant-1/chat-7", "a//b/", "/"])
def test_a_thread_whose_id_has_a_slash_is_reached_by_every_route(http: httpx.Client, id: str) -> None:
    make_thread(http, threadId=id)
    save(http, {"threadId": id, "content": "hi"})
    for written in {id, quote(id, safe="")}:  # Mastra's client writes an id as it is

        def call(method: str, more: str = "", written: str = written, **body: Any) -> Any:
            answer = http.request(method, f"{PREFIX}/threads/{written}{more}", params=AGENT, json=body or None)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert call("GET")["id"] == id
        assert call("PATCH", title="T")["title"] == "T"
        assert [one["threadId"] for one in call("GET", "/messages")["messages"]] == [id]
        assert call("POST", "/working-memory", workingMemory="# Ann") == {"success": True}
        assert call("GET", "/working-memory")["threadExists"]
        assert len(call("POST", "/clone", title="C")["clonedMessages"]) == 1
        assert call("POST", "/transfer", resourceId="u-1")["id"] == id
    network = {"networkId": "a-1"}
    assert http.get(f"{PREFIX}/network/threads/{id}/messages", params=network).json()["total"] == 1
    assert call("DELETE") == {"result": "Thread deleted"}
    gone = http.get(f"{PREFIX}/threads/{id}", params=AGENT)
    assert (gone.status_code, gone.json()) == (404, {"error": f"No thread found with id {id}"})


def test_the_same_id_with_another_content_is_refused_and_nothing_is_lost(http: httpx.Client) -> None:
    make_thread(http, threadId="t")
    save(http, {"id": "m", "content": "one"})
    message = {"id": "m", "role": "user", "threadId": "t", "resourceId": "u-1", "content": "two"}
    refused = http.post(f"{PREFIX}/save-messages", params=AGENT, json={"messages": [message]})
    assert refused.status_code == 409
    assert "exists already with a different content" in refused.json()["error"]
    other = http.post(f"{PREFIX}/threads", params=AGENT, json={"resourceId": "u-1", "threadId": "t", "title": "Other"})
    assert other.status_code == 409


@pytest.mark.promise("mastra-working-memory")
def test_working_memory_is_merged_kept_apart_by_scope_and_never_emptied(http: httpx.Client) -> None:
    make_thread(http, threadId="t")
    address = f"{PREFIX}/threads/t/working-memory"

    def write(text: str, **body: Any) -> httpx.Response:
        return http.post(address, params=AGENT, json={"workingMemory": text, "resourceId": "u-1", **body})

    def read(**query: Any) -> Any:
        return http.get(address, params={**AGENT, "resourceId": "u-1", **query}).json()

    of_thread = {"workingMemory": {"scope": "thread", "template": "# Plan\n- Goal:"}}
    assert write('{"name": "Ann", "age": 1}').json() == {"success": True}
    assert write('{"age": null, "city": "Berlin"}').json() == {"success": True}
    assert write("# Plan\n- Goal: ship", memoryConfig=of_thread).json() == {"success": True}
    assert json.loads(read()["workingMemory"]) == {"name": "Ann", "city": "Berlin"}
    assert read(memoryConfig=json.dumps(of_thread)) == {
        "workingMemory": "# Plan\n- Goal: ship",
        "source": "thread",
        "workingMemoryTemplate": {"format": "markdown", "content": "# Plan\n- Goal:"},
        "threadExists": True,
    }
    emptied = write("# Plan\n- Goal:", memoryConfig=of_thread)
    assert emptied.status_code == 409
    assert emptied.json()["error"].startswith("Attempted to replace existing working memory with empty template.")
    bomb = {"properties": {"name": {"pattern": "^(a+)+$"}}}  # would run for hours on the text below
    text = json.dumps({"name": "a" * 60 + "!"})
    assert write(text, memoryConfig={"workingMemory": {"schema": bomb}}).json() == {"success": True}
    assert read(resourceId="undefined")["workingMemory"] == read()["workingMemory"]


# What goes wrong


@pytest.mark.promise("mastra-errors")
@pytest.mark.parametrize(
    ("method", "path", "query", "body", "status", "told"),
    [
        ("GET", "/threads", {"page": "-1"}, None, 400, "Invalid query parameters: page: "),
        ("GET", "/threads", {"perPage": "many"}, None, 400, "Invalid query parameters: perPage: "),
        ("GET", "/threads", {"metadata": "{"}, None, 400, "metadata must be JSON"),
        ("GET", "/threads", {"metadata": "[" * 5_000}, None, 400, "metadata must be JSON"),
        ("GET", "/threads", {"orderBy[field]": "title"}, None, 400, "orderBy has the fields"),
        ("GET", "/threads", {"agentId": "a/b"}, None, 400, 'must not contain "/"'),
        ("GET", "/status", {"agentId": ""}, None, 400, "agentId is required"),
        ("GET", "/threads/none", {}, None, 404, "No thread found with id none"),
        ("GET", "/threads/t", {"resourceId": "u-2"}, None, 403, "Thread with id t is for resource with id u-1"),
        ("GET", "/threads/t/messages", {"filter": '{"roles": 5}'}, None, 400, "filter has dateRange"),
        ("GET", "/threads/t/messages", {"filter": '{"dateRange": {"start": "soon"}}'}, None, 400, "start"),
        ("GET", "/threads/t/messages", {"include": '[{"id": 1}]'}, None, 400, "include is a list of objects"),
        *(
            ("GET", path, {name: json.dumps(asked)}, None, 400, told)
            for path, name, wrap in (("/threads", "metadata", False), ("/threads/t/messages", "filter", True))
            for metadata, told in (
                ({"a-b": 1}, "metadata has the key 'a-b'"),
                ({"__proto__": 1}, "metadata has the key '__proto__'"),
                ({"a" * 129: 1}, "metadata has the key 'aaa"),
                ({"a": {"b": 1}}, "metadata.a must be a text, a number, true, false or null"),
                ({"a": [1]}, "metadata.a must be a text"),
            )
            for asked in [{"metadata": metadata} if wrap else metadata]
        ),
        ("GET", "/threads/t/messages", {"filter": '{"metadata": []}'}, None, 400, "metadata (an object)"),
        ("POST", "/threads", {}, {"title": "x"}, 400, "Invalid request body: resourceId: Field required"),
        ("POST", "/threads", {}, {"resourceId": 5}, 400, "Invalid request body: resourceId: "),
        ("POST", "/threads", {}, {"resourceId": "u-1", "title": "x" * 5_000}, 413, "title has 5,000 bytes"),
        ("POST", "/save-messages", {}, {"messages": "x"}, 400, "Invalid request body: messages: "),
        ("POST", "/save-messages", {}, {"messages": [{"threadId": "t", "resourceId": "u-1"}]}, 400, "role is required"),
        ("POST", "/messages/delete", {}, {"messageIds": 5}, 400, "Invalid request body: messageIds"),
        (
            "POST",
            "/threads/t/working-memory",
            {},
            {"workingMemory": {"a": 1}},
            400,
            "Invalid request body: workingMemory",
        ),
        ("POST", "/threads/t/transfer", {}, {"resourceId": ""}, 400, "Invalid request body: resourceId"),
        ("GET", "/search", {"resourceId": "u-1"}, None, 400, "Invalid query parameters: searchQuery: Field required"),
        ("GET", "/search", {"searchQuery": "x"}, None, 400, "resourceId is required"),
        ("GET", "/search", {"searchQuery": "", "resourceId": "u-1"}, None, 400, "query"),
    ],
)
def test_an_error_is_told_as_mastras_client_reads_it(
    http: httpx.Client, method: str, path: str, query: dict[str, str], body: Any, status: int, told: str
) -> None:
    """A filter by metadata that no store of Mastra's takes was accepted."""
    make_thread(http, threadId="t")
    answer = http.request(method, PREFIX + path, params={**AGENT, **query}, json=body)
    assert answer.headers["content-type"] == "application/json"
    assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text


def test_a_range_may_be_as_open_as_time_itself(http: httpx.Client) -> None:
    make_thread(http, threadId="t")
    save(http, {"content": "a"})
    for times in (
        {"end": "9999-12-31T23:59:59.999999Z"},
        {"start": "0001-01-01T00:00:00Z", "startExclusive": True},
    ):
        assert len(listed(http, filter=json.dumps({"dateRange": times}))["messages"]) == 1
    cut = {"messageFilter": {"endDate": "9999-12-31T23:59:59.999999Z"}}
    assert http.post(f"{PREFIX}/threads/t/clone", params=AGENT, json={"options": cut}).status_code == 200
    beyond = {"dateRange": {"start": "0001-01-01T00:00:00+23:59"}}
    refused = http.get(f"{PREFIX}/threads/t/messages", params={**AGENT, "filter": json.dumps(beyond)})
    assert refused.status_code == 400


def test_a_body_that_is_no_json_is_told_so(http: httpx.Client) -> None:
    for content in (b"{", b"[" * 100_000, b'{"resourceId": "\xff"}', b""):
        answer = http.post(
            f"{PREFIX}/threads", params=AGENT, content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400
        assert answer.json()["error"]


def test_redaction_holds_on_these_routes(http: httpx.Client, book: commonplace.Book) -> None:
    book.redaction = Redactor("mask", kinds=["email"])
    make_thread(http, threadId="t", title="Write to ann@example.org")
    [saved] = save(http, {"content": {"format": 2, "parts": [{"type": "text", "text": "ann@example.org"}]}})
    assert saved["content"]["parts"] == [{"type": "text", "text": "[redacted:email]"}]
    assert http.get(f"{PREFIX}/threads/t", params=AGENT).json()["title"] == "Write to [redacted:email]"


def test_a_thread_that_was_masked_is_the_same_again(http: httpx.Client, book: commonplace.Book) -> None:
    book.redaction = Redactor("mask", kinds=["email"])
    new = {"resourceId": "u-1", "threadId": "t", "title": "For ann@example.org", "metadata": {"by": "bob@example.org"}}
    made = make_thread(http, **new)
    assert (made["title"], made["metadata"]) == ("For [redacted:email]", {"by": "[redacted:email]"})
    assert make_thread(http, **new) == made
    for other in ({"title": "To ann@example.org"}, {"metadata": {"to": "bob@example.org"}}):
        assert http.post(f"{PREFIX}/threads", params=AGENT, json={**new, **other}).status_code == 409


@pytest.mark.promise("relevance-mastra")
def test_a_search_leaves_out_what_is_below_a_floor(http: httpx.Client, embedder: Any) -> None:
    make_thread(http, threadId="t")
    save(http, {"id": "m1", "role": "user", "content": "The blue cluster is for staging, the green one for the rest."})
    embedder.error = Unavailable("keywords only")
    query = {**AGENT, "resourceId": "u-1", "searchQuery": "blue paint, brushes, ladders, primer, varnish and rollers"}

    def found(**options: Any) -> list[str]:
        answer = http.get(f"{PREFIX}/search", params={**query, **options})
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["results"]]

    config = json.dumps({"semanticRecall": {"threshold": 0.9}})
    assert found() == ["m1"]
    assert found(minRelevance=0.9) == []
    assert found(memoryConfig=config) == []
    assert found(memoryConfig=config, minRelevance=0) == ["m1"]
    assert http.get(f"{PREFIX}/search", params={**query, "minRelevance": 7}).status_code == 400
