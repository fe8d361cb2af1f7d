"""Titles within their limits: short, one line, no quotes, no colons, whatever was said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace import NotFound
from commonplace.space.titles import MAX_CHARACTERS, clean_title, first_user_text, has_own_title, local_title

FORBIDDEN = "\"'`“”„‘’«»:：\n\r\t\x00\u2028\u202e"


@pytest.mark.promise("conversations-title-local")
@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("  Plan a trip\n\nto the   Dolomites  ", "Plan a trip to the Dolomites"),
        ("Fix the build. It fails since Monday, with a long trace.", "Fix the build"),
        ("Why? Because I don't know what 'this' is", "Why? Because I donʼt know what this is"),
        ("# Release notes\n- one\n- two", "Release notes one two"),
        ("**Urgent**: call me at 10:30", "Urgent call me at 10.30"),
        ("Look at https://example.org/a?b=c please", "Look at example.org/a?b=c please"),
        ("What is wrong here?\n```python\nprint('x')\n```", "What is wrong here?"),
        ("```python\nprint('x')\n```", "python print(x)"),
        ("東京への旅行を計画してください。七月に行きます。", "東京への旅行を計画してください"),
        ("❝Roses❞, ❮thorns❯ and ⹂leaves⹂", "Roses, thorns and leaves"),
        ("״שלום״ אמר צה״ל", "שלום אמר צה״ל"),
        ("x" * 200, "x" * 79 + "…"),
        (
            "Please summarise the following very long report about the migration of all our databases to new ones",
            "Please summarise the following very long report about the migration of all our…",
        ),
    ],
)
def test_the_local_rule_takes_the_first_sentence_without_markup(text, title):
    assert local_title(text) == title


@pytest.mark.promise("conversations-title-local")
@pytest.mark.parametrize("text", ["", "  \n", "...", "\"\": ''", "🙂", "\u200b", "\u3164\uffa0", "---"])
def test_a_text_without_words_has_no_title(text):
    assert local_title(text) is None
    assert clean_title(text) is None


@pytest.mark.promise("conversations-title-local")
@given(st.text(max_size=300) | st.text(alphabet="ab \n\"':.`*#<>-think/", max_size=300))
def test_no_text_makes_a_title_beyond_the_limits(text):
    for title in (local_title(text), clean_title(text)):
        if title is not None:
            assert 0 < len(title) <= MAX_CHARACTERS
            assert not set(title) & set(FORBIDDEN)
            assert title == title.strip()
            assert title.encode()
            assert clean_title(title) == title


def test_a_huge_message_is_titled_by_its_beginning():
    assert local_title("Read this log. " + "<think>" * 1_000_000) == "Read this log"
    assert clean_title("<think>" * 1_000_000 + "x") is None


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("<think>hm: a long thought</think>Roof damage", "Roof damage"),
        ("<THINKING>hm</THINKING>\n\nRoof damage", "Roof damage"),
        ("<think>a long thought without an end", None),
        ("<think>" + "long thought " * 3_000 + "</think>Roof damage", None),
        ("Roof damage <thinking>is that short enough", "Roof damage"),
        ("<think", None),
        ("<'think>hm", None),
        ("A <thinker> by Rodin", "A <thinker> by Rodin"),
    ],
)
def test_what_a_model_thought_is_no_part_of_a_title(answer, title):
    assert clean_title(answer) == title


def test_a_thought_before_the_first_sentence_is_no_title():
    assert local_title("<think>hm. A long thought.</think> My roof leaks. Help!") == "My roof leaks"


def test_who_speaks_is_no_part_of_a_title(space):
    thread = space.threads.create()
    space.threads.add(thread.id, [{"role": "user", "content": "My roof leaks", "name": "ann"}])
    assert first_user_text(space.threads.messages, thread.id) == "My roof leaks"


@pytest.mark.parametrize(
    ("title", "is_own"),
    [
        (None, False),
        ("", False),
        ("New Thread 2025-01-02T03:04:05.678Z", False),
        ("New Thread", True),
        ("New Thread 2025-01-02T03:04:05.678Z (mine)", True),
        ("Anything", True),
    ],
)
def test_a_placeholder_is_no_title_of_its_own(title, is_own):
    assert has_own_title(title) is is_own


@pytest.mark.promise("conversations-title-own-stays")
def test_a_suggested_title_is_taken_once(space):
    thread = space.threads.create(metadata={"a": 1})
    titled = space.threads.suggest_title(thread.id, "First")
    assert (titled.title, titled.metadata) == ("First", {"a": 1})
    assert space.threads.suggest_title(thread.id, "Second") == titled
    assert len(space.history("thread", thread.id)) == 2
    with pytest.raises(NotFound):
        space.threads.suggest_title("none", "x")
