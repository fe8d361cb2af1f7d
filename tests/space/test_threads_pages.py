"""Messages and threads by page number, with a total."""

from __future__ import annotations

import pytest

from commonplace import InvalidInput


@pytest.fixture
def thread(space):
    return space.threads.create(id="t")


def contents(messages):
    return [message.content for message in messages]


def user(content, **fields):
    return {"role": "user", "content": content, **fields}


def everything(space, thread):
    return [message.content for message in space.threads.messages(thread.id).messages]


@pytest.mark.promise("conversations-numbered-pages")
def test_messages_are_paged_by_number_with_a_total_in_either_order(space, thread, clock):
    said = []
    for number in range(5):
        said += space.threads.add(thread.id, [user(str(number))])
        clock.advance()
    space.threads.update_message(said[0].id, content="0 again")

    first = space.threads.page_of_messages(thread.id, 0, per_page=2)
    last = space.threads.page_of_messages(thread.id, 2, per_page=2)
    newest = space.threads.page_of_messages(thread.id, per_page=2, direction="DESC")
    changed = space.threads.page_of_messages(thread.id, per_page=2, order_by="updatedAt", direction="DESC")
    between = space.threads.page_of_messages(thread.id, after=said[1].created_at, before=said[3].created_at)

    assert (contents(first.items), first.total, first.has_more) == (["0 again", "1"], 5, True)
    assert (contents(last.items), last.total, last.has_more) == (["4"], 5, False)
    assert contents(newest.items) == ["4", "3"]
    assert contents(changed.items) == ["0 again", "4"]
    assert (contents(between.items), between.total) == (["1", "2"], 2)
    beyond = space.threads.page_of_messages(thread.id, 9, per_page=2)
    assert (beyond.items, beyond.total, beyond.has_more) == ((), 5, False)


def test_a_page_beyond_a_thousand_messages_is_exact(space, thread):
    space.threads.add(thread.id, [user(str(number)) for number in range(2_105)])
    page = space.threads.page_of_messages(thread.id, 30, per_page=70)
    assert contents(page.items) == [str(number) for number in range(2_100, 2_105)]
    across = space.threads.page_of_messages(thread.id, 1, per_page=600)
    assert contents(across.items) == [str(number) for number in range(600, 1_200)]
    assert (page.total, page.has_more, across.has_more) == (2_105, False, True)


@pytest.mark.parametrize(
    "options",
    [{"page": -1}, {"page": True}, {"per_page": -1}, {"per_page": 1_001}, {"order_by": "id"}, {"direction": "up"}],
)
def test_a_page_that_cannot_be_is_refused(space, thread, options):
    with pytest.raises(InvalidInput):
        space.threads.page_of_messages(thread.id, **options)
    with pytest.raises(InvalidInput):
        space.threads.page_of_threads(**options)


@pytest.mark.promise("conversations-numbered-pages")
def test_threads_are_paged_by_number_of_a_resource_and_by_metadata(space, clock):
    for number in range(6):
        space.threads.create(id=f"t{number}", resource="ann" if number % 2 else "bob", metadata={"n": number // 2})
        clock.advance()
    space.threads.add("t1", [user("hello")])

    def ids(**options):
        return [thread.id for thread in space.threads.page_of_threads(**options).items]

    assert ids(per_page=3) == ["t1", "t5", "t4"]
    assert ids(page=1, per_page=3) == ["t3", "t2", "t0"]
    assert ids(resource="ann", order_by="createdAt", direction="ASC") == ["t1", "t3", "t5"]
    assert ids(metadata={"n": 1}) == ["t3", "t2"]
    assert len(ids(metadata={})) == 6
    page = space.threads.page_of_threads(resource="bob", per_page=2)
    assert (page.total, page.page, page.per_page, page.has_more) == (3, 0, 2, True)
