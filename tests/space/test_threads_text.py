"""What search sees of a message: a table of the shapes that messages have."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.space.message_text import (
    CLOSING,
    OPENING,
    MessagePart,
    message_parts,
    searchable_text,
    strip_tags,
    without_working_memory,
)

TABLE = {
    "plain text": ({"content": "hello"}, "hello"),
    "OpenAI chat parts": (
        {
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]
        },
        "what is this?",
    ),
    "OpenAI response parts": (
        {"content": [{"type": "input_text", "text": "in"}, {"type": "output_text", "text": "out", "annotations": []}]},
        "in\nout",
    ),
    "OpenAI assistants' text": ({"content": [{"type": "text", "text": {"value": "deep", "annotations": []}}]}, "deep"),
    "OpenAI refusal": ({"content": [{"type": "refusal", "refusal": "I can't"}]}, "I can't"),
    "OpenAI tool calls": (
        {
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
            ],
        },
        'get_weather\n{"city":"Oslo"}',
    ),
    "OpenAI custom tool call": (
        {"content": None, "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "grep", "input": "zebra"}}]},
        "grep\nzebra",
    ),
    "OpenAI refusal without content": ({"content": None, "refusal": "I can't", "audio": None}, "I can't"),
    "OpenAI audio": (
        {"content": None, "audio": {"id": "a1", "data": "AAAA", "transcript": "spoken", "expires_at": 1}},
        "spoken",
    ),
    "OpenAI audio by its id": ({"audio": {"id": "a1"}}, ""),
    "OpenAI function call": (
        {"content": None, "function_call": {"name": "find", "arguments": '{"q": "x"}'}},
        'find\n{"q": "x"}',
    ),
    "OpenAI tool answer": ({"role": "tool", "tool_call_id": "c1", "content": "12 degrees"}, "12 degrees"),
    "OpenAI function items": (
        {
            "content": [
                {"type": "function_call", "name": "add", "arguments": '{"a":1}', "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "two"},
            ]
        },
        'add\n{"a":1}\ntwo',
    ),
    "Anthropic tool use": (
        {
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "tu", "name": "search", "input": {"query": "kayak", "limit": 3}},
            ]
        },
        "I look\nsearch\nkayak\n3",
    ),
    "Anthropic tool result": (
        {
            "content": [
                {"type": "tool_result", "tool_use_id": "tu", "content": "plain"},
                {
                    "type": "tool_result",
                    "tool_use_id": "tu",
                    "content": [
                        {"type": "text", "text": "found it"},
                        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
                    ],
                },
            ]
        },
        "plain\nfound it",
    ),
    "Anthropic document": (
        {"content": [{"type": "document", "title": "Plan", "source": {"type": "text", "data": "the plan"}}]},
        "Plan\nthe plan",
    ),
    "reasoning": (
        {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "reasoning", "text": "hm"}]},
        "",
    ),
    "AI SDK tool parts": (
        {
            "content": [
                {"type": "tool-call", "toolCallId": "c", "toolName": "weather", "input": {"city": "Oslo"}},
                {"type": "tool-result", "toolName": "weather", "output": {"type": "text", "value": "cold"}},
            ]
        },
        "weather\nOslo\nweather\ncold",
    ),
    "AI SDK UI message": (
        {
            "parts": [
                {"type": "step-start"},
                {"type": "text", "text": "hi"},
                {"type": "tool-weather", "state": "output-available", "input": {"city": "Oslo"}, "output": {"c": 12}},
            ]
        },
        "hi\nweather\nOslo\n12",
    ),
    "AI SDK 4": (
        {
            "content": "cold",
            "toolInvocations": [
                {"state": "result", "toolCallId": "c", "toolName": "weather", "args": {"city": "Oslo"}, "result": "12"}
            ],
        },
        "cold\nweather\nOslo\n12",
    ),
    "AI SDK 4 with parts": (
        {
            "content": "cold",
            "parts": [{"type": "tool-invocation", "toolInvocation": {"toolName": "weather", "args": {}}}],
            "toolInvocations": [{"toolName": "weather", "args": {}}],
        },
        "cold\nweather",
    ),
    "Mastra format 2": (
        {"content": {"format": 2, "parts": [{"type": "text", "text": "once"}], "content": "once"}},
        "once",
    ),
    "Mastra format 2 with a tool": (
        {
            "content": {
                "format": 2,
                "parts": [
                    {
                        "type": "tool-invocation",
                        "toolInvocation": {
                            "state": "result",
                            "toolCallId": "c",
                            "toolName": "weather",
                            "args": {"city": "Oslo"},
                            "result": {"text": "cold"},
                        },
                    }
                ],
            }
        },
        "weather\nOslo\ncold",
    ),
    "Mastra format 2 without parts": ({"content": {"format": 2, "parts": [], "content": "only here"}}, "only here"),
    "a file": ({"content": [{"type": "file", "filename": "plan.pdf", "file_data": "AAAA"}]}, "plan.pdf"),
    "encoded data in a result": (
        {"content": [{"type": "tool_result", "content": {"png": "iVBOR" * 100, "title": "chart"}}]},
        "chart",
    ),
    "a stream in a result": (
        {"content": [{"type": "tool_result", "content": "data: narwhal statistics"}]},
        "data: narwhal statistics",
    ),
    "addresses of data in a result": (
        {
            "content": [
                {
                    "type": "tool_result",
                    "content": {
                        "image": "data:image/png;base64,iVBOR",
                        "drawing": "data:image/svg+xml;charset=utf-8,<svg width='1'/>",
                        "unnamed": "data:;base64,iVBOR",
                        "title": "data:chart, by year",
                    },
                }
            ]
        },
        "data:chart, by year",
    ),
    "texts beside each other": ({"content": ["a", {"text": "b"}, "  "]}, "a\nb"),
    "an unknown part": ({"content": [{"type": "hologram", "light": "x"}, {"type": "new", "text": "read"}]}, "read"),
    "nothing": ({"content": ""}, ""),
}


@pytest.mark.promise("conversations-content-shapes")
@pytest.mark.parametrize("shape", TABLE)
def test_a_message_is_searched_by_its_words_in_each_shape(shape):
    message, expected = TABLE[shape]
    assert searchable_text(message) == expected


@pytest.mark.promise("conversations-content-shapes")
def test_each_shape_is_kept_as_it_came_and_is_found_by_search(space):
    thread = space.threads.create()
    for message, _ in TABLE.values():
        [saved] = space.threads.add(thread.id, [{**message, "role": "assistant"}])
        rest = {name: field for name, field in message.items() if name not in ("role", "content")}
        assert (saved.content, saved.extra) == (message.get("content"), rest)
        assert space.threads.get_message(saved.id) == saved
    for words in ("get_weather", "kayak", "plan.pdf", "12 degrees"):
        assert words.lower() in space.search(words, limit=1)[0].entry.text.lower()


FIELDS = ["type", "text", "content", "parts", "name", "input", "output", "result", "source", "data", "value", "x"]
NAMES = st.sampled_from([*FIELDS, "toolInvocation", "tool_calls", "function"])
KINDS = st.sampled_from(["text", "tool_use", "tool_result", "tool-x", "tool-invocation", "document", "file"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | KINDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["content", "parts", "tool_calls", "function_call"]), ANY))
def test_no_shape_is_too_odd_for_a_text(message):
    assert isinstance(searchable_text(message), str)
    for field in message.values():
        without_working_memory(field)


@pytest.mark.promise("conversations-tags-stripped")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no tags ", "no tags "),
        ("<working_memory>x</working_memory>", ""),
        ("a <working_memory>\nx\n</working_memory> b", "a  b"),
        ("<working_memory>x</working_memory> a <working_memory>y</working_memory>", "a"),
        ("a <working_memory> without an end", "a <working_memory> without an end"),
        ("a </working_memory> b <working_memory>x</working_memory>", "a </working_memory> b"),
        ("x <working_memory>a <working_memory>b</working_memory> y</working_memory> z", "x  z"),
        ("a <working_memory>x <working_memory> y</working_memory> b", "a  b"),
        ("<working_memory>x<working_memory>y</working_memory>a<working_memory>z</working_memory> b", "a b"),
        ("a<working_<working_memory></working_memory>memory>SECRET</working_memory>b", "ab"),
        ("a<working_memory>SECRET</working_<working_memory>x</working_memory>memory>b", "amemory>b"),
    ],
)
def test_tags_are_cut_out_with_what_they_hold(text, expected):
    assert strip_tags(text) == expected


@pytest.mark.promise("conversations-tags-stripped")
@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "<working_memory>x</working_memory>a"},
        {"type": "text", "text": {"value": "<working_memory>x</working_memory>a", "annotations": []}},
        {"type": "refusal", "refusal": "<working_memory>x</working_memory>a"},
    ],
)
def test_tags_are_cut_out_of_every_text_that_is_searched(space, part):
    thread = space.threads.create()
    for content in (part, [part]):
        [saved] = space.threads.add(thread.id, [{"role": "assistant", "content": content}])
        assert saved.entry.text == "a"
        assert "working_memory" not in str(saved.content)


SAID = "line 1: <working_memory>of the file</working_memory> line 2"
SAID_BY_TOOLS = {
    "openai": {"role": "tool", "tool_call_id": "c", "content": SAID},
    "openai parts": {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": SAID}]},
    "openai function": {"role": "function", "name": "f", "content": SAID},
    "responses": {"type": "function_call_output", "call_id": "c", "output": SAID},
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": SAID}]},
    "anthropic mcp": {
        "role": "assistant",
        "content": [{"type": "mcp_tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": SAID}]}],
    },
    "anthropic server": {
        "role": "assistant",
        "content": [{"type": "web_fetch_tool_result", "content": {"content": {"type": "text", "text": SAID}}}],
    },
    "ai-sdk": {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c", "output": {"type": "text", "value": SAID}}],
    },
}


@pytest.mark.promise("conversations-tags-stripped")
@pytest.mark.parametrize("message", SAID_BY_TOOLS.values(), ids=SAID_BY_TOOLS.keys())
def test_what_a_tool_said_keeps_its_tags_in_every_shape(space, message):
    thread = space.threads.create()
    [saved] = space.threads.add(thread.id, [message])
    assert saved.entry.value == message


PIECES = ["<working_memory>", "</working_memory>", "<working_", "</working_", "memory>", "a", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=16).map("".join))
def test_stripping_leaves_no_whole_pair(text):
    left = strip_tags(text)
    assert "</working_memory>" not in left.partition("<working_memory>")[2]
    assert strip_tags(left) == left


HOSTILE = {
    "openings": OPENING * 100_000,
    "openings and one closing": OPENING * 100_000 + CLOSING,
    "closings": OPENING + CLOSING * 100_000,
    "nest": OPENING * 100_000 + "x" + CLOSING * 100_000,
    "nest in the tags": "<working_" * 100_000 + OPENING + CLOSING + f"memory>{CLOSING}" * 100_000,
    "pairs": f"a{OPENING}x{CLOSING}" * 100_000,
    "brackets": OPENING + CLOSING + ">" * 1_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_tags_cost_no_more_than_reading_them(text):
    started = time.perf_counter()
    strip_tags(text)
    assert time.perf_counter() - started < 3


PARTS = {
    "plain text": ({"role": "user", "content": "hello"}, [("text", "hello", None)]),
    "nothing": ({"role": "assistant", "content": ""}, []),
    "OpenAI tool calls": (
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"a":1}'}}]},
        [("call", '{\n  "a": 1\n}', "look")],
    ),
    "OpenAI tool result": ({"role": "tool", "content": "42", "name": "look"}, [("result", "42", "look")]),
    "Anthropic": (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "u", "name": "look", "input": {"a": "b"}},
            ],
        },
        [("reasoning", "hm", None), ("text", "I look.", None), ("call", '{\n  "a": "b"\n}', "look")],
    ),
    "Anthropic tool result": (
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "u", "content": [{"type": "text", "text": "42"}]}],
        },
        [("result", "42", None)],
    ),
    "AI SDK": (
        {
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "tool-invocation", "toolInvocation": {"toolName": "look", "args": {}, "result": "42"}},
                {"type": "tool-look", "input": "x", "state": "input-available"},
                {"type": "tool-result", "toolName": "look", "output": {"type": "text", "value": "42"}},
            ],
        },
        [("call", "{}", "look"), ("result", "42", "look"), ("call", "x", "look"), ("result", "42", "look")],
    ),
    "Mastra format 2": (
        {"role": "user", "content": {"format": 2, "parts": [{"type": "text", "text": "hi"}], "content": "hi"}},
        [("text", "hi", None)],
    ),
    "Responses API": (
        {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c"},
        [("call", "{}", "look")],
    ),
    "Responses API result": (
        {"type": "function_call_output", "call_id": "c", "output": "42"},
        [("result", "42", None)],
    ),
    "a picture": (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
        [("other", '{\n  "type": "image_url",\n  "image_url": {\n    "url": "u"\n  }\n}', "image_url")],
    ),
    "unknown": ({"role": "user", "content": {"x": 1}}, [("other", '{\n  "x": 1\n}', None)]),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_message_is_divided_into_what_was_said_and_what_tools_did(name):
    message, expected = PARTS[name]
    assert list(message_parts(message)) == [MessagePart(*part) for part in expected]


@given(
    st.dictionaries(
        st.sampled_from(["role", "content", "parts", "tool_calls", "type", "name", "audio", "refusal"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda below: st.lists(below) | st.dictionaries(st.sampled_from(["type", "text", "parts", "input"]), below),
        ),
    )
)
def test_any_object_is_divided_into_parts(message):
    assert all(isinstance(part.text, str) for part in message_parts(message))
