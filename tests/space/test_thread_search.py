"""Search in conversations: threads by their messages, messages by their neighbours, speakers and times."""

from __future__ import annotations

from typing import Any

import pytest

from commonplace import InvalidInput, Space, Unavailable

FILLERS = ["morning", "lunch", "weather", "football", "music", "garden", "holiday", "train", "coffee", "book"]


def talk(space: Space, id: str, *texts: str, at: str | None = None, **fields: Any) -> None:
    space.threads.create(id=id, **({"resource": fields.pop("resource")} if "resource" in fields else {}))
    dated = {} if at is None else {"createdAt": at}
    space.threads.add(id, [{"role": "user", "content": text, **dated, **fields} for text in texts])


def found(space: Space, query: str, **options: Any) -> list[str]:
    return [hit.thread.id for hit in space.threads.search(query, **options)]


@pytest.mark.promise("threads-search")
def test_threads_are_found_best_first_with_the_messages_that_say_so(space: Space) -> None:
    talk(space, "boats", "hello", "we rent a kayak on sunday", "the kayak is red")
    talk(space, "food", "lunch was late", "a kayak was on the wall")
    talk(space, "work", "the meeting is at nine")

    result = space.threads.search("red kayak on sunday")

    assert [hit.thread.id for hit in result][:2] == ["boats", "food"]
    assert result[0].thread == space.threads.get("boats")
    assert {hit.entry.text for hit in result[0].hits[:2]} == {"we rent a kayak on sunday", "the kayak is red"}
    assert 0 < result[1].score < result[0].score <= 1
    assert [hit.score for hit in result[0].hits] == sorted((hit.score for hit in result[0].hits), reverse=True)
    assert result.notices == ()


@pytest.mark.promise("threads-search")
def test_several_messages_outweigh_one_that_is_as_good(space: Space) -> None:
    talk(space, "twice", "garden kayak", "music", "train kayak")
    talk(space, "once", "holiday kayak", "football", "coffee")
    assert found(space, "kayak")[:2] == ["twice", "once"]


def test_a_title_is_found_like_a_message(space: Space) -> None:
    space.threads.create("The great flood of Prague", id="titled")
    talk(space, "other", "prague is nice")
    assert found(space, "great flood of prague")[0] == "titled"


def test_a_limit_a_resource_and_a_deleted_thread_are_heeded(space: Space) -> None:
    for number in range(15):
        talk(space, f"t{number}", f"kayak {FILLERS[number % 10]}", resource="a" if number % 2 else "b")
    assert len(found(space, "kayak")) == 10
    assert len(found(space, "kayak", limit=15)) == 15
    assert set(found(space, "kayak", limit=15, resource="a")) == {f"t{number}" for number in range(1, 15, 2)}
    space.threads.delete("t3")
    assert "t3" not in found(space, "kayak", limit=15)


def test_any_limit_cuts_the_same_list_of_threads(space: Space) -> None:
    for number in range(60):
        said = [FILLERS[number % 10], *(f"kayak {FILLERS[(number + more) % 10]}" for more in range(number % 7))]
        talk(space, f"t{number}", *said)
    while space.search("kayak lunch").notices:
        pass
    everything = space.threads.search("kayak lunch", limit=100).threads
    assert len(everything) == 60
    scores = [hit.score for hit in everything]
    assert scores == sorted(scores, reverse=True)
    for limit in (1, 3, 10, 11, 25, 40, 41, 59):
        assert space.threads.search("kayak lunch", limit=limit).threads == everything[:limit]


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 101}, {"resource": ""}, {"now": "soon"}], ids=str)
def test_wrong_arguments_are_refused(space: Space, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        space.threads.search("kayak", **wrong)


def test_without_a_model_keywords_find_threads_and_a_notice_says_so(space: Space, embedder: Any) -> None:
    talk(space, "boats", "we rent a kayak")
    embedder.error = Unavailable("no model")
    result = space.threads.search("kayak")
    assert [hit.thread.id for hit in result] == ["boats"]
    assert "no model" in result.notices[0]


@pytest.mark.promise("search-weighs-conversation")
def test_a_message_is_lifted_where_the_best_one_is_of_its_conversation(space: Space) -> None:
    talk(space, "a", "the kayak was red", "lunch", "weather", name="Ana")
    talk(space, "b", "we rent a yellow kayak on sunday", "football", "the kayak was red", name="Ana")
    hits = {(hit.entry.key[0], hit.entry.text): hit for hit in space.search("we rent a yellow kayak on sunday")}

    alone, among = hits["a", "Ana: the kayak was red"], hits["b", "Ana: the kayak was red"]
    assert among.score > alone.score
    assert among.parts["conversation"] > alone.parts.get("conversation", 0.0)
    assert among.parts["keyword"] == alone.parts["keyword"]


@pytest.mark.promise("search-weighs-conversation")
def test_a_message_of_an_unnamed_speaker_is_not_lifted_by_its_conversation(space: Space) -> None:
    """In a chat with an assistant, what stands around a good message is of its subject and rarely answers."""
    talk(space, "a", "we rent a yellow kayak on sunday", "the kayak was red")
    hits = space.search("we rent a yellow kayak on sunday")
    assert len(hits) == 2
    assert all("conversation" not in hit.parts for hit in hits)


@pytest.mark.promise("search-weighs-conversation")
def test_many_poor_messages_of_a_long_conversation_do_not_lift_each_other(space: Space) -> None:
    talk(space, "long", *(f"kayak {filler}" for filler in FILLERS), name="Ana")
    talk(space, "short", "we rent a yellow kayak on sunday", name="Ana")
    best, *others = space.search("we rent a yellow kayak on sunday", limit=20)
    assert best.entry.text == "Ana: we rent a yellow kayak on sunday"
    assert all("conversation" not in hit.parts for hit in others)


@pytest.mark.promise("search-weighs-conversation")
def test_a_message_is_lifted_by_those_directly_before_and_after_it(space: Space) -> None:
    talk(space, "a", "kayak morning", "kayak lunch", "weather", "kayak music", name="Bo")
    hits = {hit.entry.text: hit for hit in space.search("kayak")}
    assert {text for text, hit in hits.items() if "neighbours" in hit.parts} >= {"Bo: kayak morning", "Bo: kayak lunch"}
    assert hits["Bo: kayak lunch"].score > hits["Bo: kayak music"].score
    space.threads.delete_messages([space.threads.messages("a").messages[2].id])
    hits = {hit.entry.text: hit for hit in space.search("kayak")}
    assert hits["Bo: kayak lunch"].parts["neighbours"] > hits["Bo: kayak music"].parts["neighbours"] > 0


def test_messages_of_unnamed_speakers_are_not_lifted_by_their_neighbours(space: Space) -> None:
    talk(space, "a", "kayak morning", "kayak lunch", "weather", "kayak music")
    assert not any("neighbours" in hit.parts for hit in space.search("kayak"))


@pytest.mark.promise("search-weighs-assistant")
@pytest.mark.parametrize(
    ("query", "name", "first"),
    [
        ("which kayak is good for a lake?", None, "user"),
        ("which kayak is good for a lake?", "Bo", "assistant"),
        ("which kayak did you recommend for a lake?", None, "assistant"),
    ],
)
def test_what_an_assistant_without_a_name_says_counts_less_unless_it_is_asked_for(
    space: Space, query: str, name: str | None, first: str
) -> None:
    space.threads.create(id="a")
    said = {"role": "assistant", "content": "a wide kayak is good for a lake", **({"name": name} if name else {})}
    space.threads.add("a", [said])
    space.threads.create(id="b")
    space.threads.add("b", [{"role": "user", "content": "my old wide kayak is good for a lake"}])

    hits = space.search(query)

    assert hits[0].entry.attributes["role"] == first
    assert any("assistant" in hit.parts for hit in hits) == (name is None and "did you" not in query)


def test_a_single_message_and_a_file_have_no_conversation_to_speak_for_them(space: Space) -> None:
    talk(space, "a", "kayak morning")
    space.files.write("/a", "kayak lunch")
    assert ["conversation" in hit.parts for hit in space.search("kayak")] == [False, False]


@pytest.mark.promise("messages-named-speaker")
def test_a_message_is_found_by_who_said_it_and_by_what_its_picture_shows(space: Space) -> None:
    talk(space, "a", "I moved to the coast", name="Melanie")
    talk(space, "b", "I moved to the coast", name="Caroline")
    space.threads.add("b", [{"role": "user", "content": [{"type": "image", "caption": "a lighthouse at dusk"}]}])

    assert space.search("where did Caroline move")[0].entry.text == "Caroline: I moved to the coast"
    assert space.search("lighthouse")[0].entry.text == "a lighthouse at dusk"
    assert space.threads.messages("a").messages[0].content == "I moved to the coast"


@pytest.mark.promise("search-reads-dates")
@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("kayak on 7 March 2023", "march"),
        ("kayak two weeks ago", "april"),
        ("kayak last year", "march"),
        ("kayak", "april"),
    ],
)
def test_a_named_time_lifts_what_is_from_then(space: Space, query: str, best: str) -> None:
    talk(space, "march", "kayak trip", at="2023-03-07T12:00:00Z")
    talk(space, "april", "kayak trip", at="2023-04-13T12:00:00Z")
    talk(space, "old", "kayak trip", at="2019-04-13T12:00:00Z")
    now = "2023-04-27T12:00:00Z"
    if query == "kayak last year":
        now = "2024-12-01T12:00:00Z"
        assert set(found(space, query, now=now)[:2]) == {"march", "april"}
    elif query == "kayak":
        scores = [hit.score for hit in space.threads.search(query, now=now)]
        assert scores[0] == pytest.approx(scores[-1])
    else:
        assert found(space, query, now=now)[0] == best
        hit = space.search(query, now=now)[0]
        assert (hit.entry.attributes["threadId"], hit.parts["time"]) == (best, 1.0)


@pytest.mark.promise("search-reads-dates")
@pytest.mark.parametrize(
    "query",
    ["kayak last summer", "kayak before June 2023", "kayak since 21.06.2023", "kayak between May and July 2023"],
)
def test_a_named_time_hides_nothing_from_other_times(space: Space, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for month in range(1, 13):
        talk(space, f"month{month}", f"kayak trip {month}", at=f"2023-{month:02}-15T12:00:00Z")
    talk(space, "best", query, at="2019-01-01T12:00:00Z")
    space.files.write("/undated", "the kayak is blue")

    asked = space.search(query, limit=50, now="2023-12-31T12:00:00Z")
    raised = {hit.key for hit in asked if "time" in hit.parts}
    monkeypatch.setattr("commonplace.engine.search.periods", lambda *_: [])
    plain = {hit.key: hit.score for hit in space.search(query, limit=50)}
    assert 0 < len(raised) < len(asked) == 14
    assert plain.keys() == {hit.key for hit in asked}
    assert all((hit.score > plain[hit.key]) == (hit.key in raised) for hit in asked)
    assert asked[0].entry.attributes.get("threadId") == "best"  # what says more comes first, from whichever time it is


def test_the_time_of_a_plan_raises_nothing(space: Space) -> None:
    talk(space, "friday", "kayak trip", at="2023-06-16T12:00:00Z")
    then = {"now": "2023-06-19T12:00:00Z"}
    assert "time" in space.search("who had the kayak on Friday?", **then)[0].parts
    assert "time" not in space.search("could we take the kayak on Friday?", **then)[0].parts


@pytest.mark.promise("search-date-order")
@pytest.mark.parametrize(
    ("order", "raised"), [("both", {"march", "april"}), ("day-first", {"april"}), ("month-first", {"march"})]
)
def test_an_ambiguous_date_is_read_in_the_order_that_the_book_was_opened_with(
    open_book: Any, order: str, raised: set[str]
) -> None:
    space = open_book(date_order=order).space("user", "u1")
    talk(space, "march", "kayak trip", at="2023-03-04T12:00:00Z")
    talk(space, "april", "kayak trip", at="2023-04-03T12:00:00Z")
    hits = space.search("kayak on 3/4/2023")
    assert {hit.entry.attributes["threadId"] for hit in hits if "time" in hit.parts} == raised


def test_an_unknown_order_of_dates_is_refused(open_book: Any) -> None:
    with pytest.raises(InvalidInput, match="date_order must be one of both, day-first, month-first, not 'us'"):
        open_book(date_order="us")


@pytest.mark.promise("search-frames-count-half")
def test_what_a_question_is_about_outweighs_the_words_that_frame_it(space: Space, embedder: Any) -> None:
    embedder.error = Unavailable("no model")  # by words alone
    space.files.write("/a", "I did finish the novel")
    space.files.write("/b", "two weeks ago we moved here")
    asked = space.search("which novel did I finish two weeks ago?")
    assert [hit.key for hit in asked] == ["/a", "/b"]
    plain = space.search("two weeks ago")[0]
    assert (plain.key, plain.parts["keyword"] > 2 * asked[1].parts["keyword"]) == ("/b", True)


def test_a_search_of_the_past_counts_yesterday_from_then(space: Space, clock: Any) -> None:
    from commonplace.checks import moment

    talk(space, "day", "kayak trip", at=moment(clock.now).isoformat())
    clock.advance(86_400)
    then = moment(clock.now)
    clock.advance(86_400 * 30)
    talk(space, "month", "kayak trip", at=moment(clock.now).isoformat())
    assert "time" in space.search("kayak yesterday", as_of=then)[0].parts


@pytest.mark.promise("threads-search")
def test_a_thread_that_says_much_leaves_room_for_the_others(space: Space) -> None:
    talk(space, "much", *[f"kayak {word} {number}" for number in range(12) for word in FILLERS])
    for number in range(9):
        talk(space, f"little{number}", f"a long story about other things, and once about a kayak, {number}")
    assert len(found(space, "kayak")) == 10
