"""Commits in time: found by number and by moment, counted, compared, and never all read."""

from __future__ import annotations

from datetime import timedelta

import pytest

import commonplace
from commonplace.errors import NotFound
from commonplace.space.timeline import SAMPLES, Timeline


@pytest.fixture
def timeline(space: commonplace.Space) -> Timeline:
    return Timeline(space)


def differing(timeline: Timeline, first: int, last: int, limit: int = 50) -> list[tuple[str, bool, bool]]:
    """Every difference, read in pages: the key, and whether it was there before and after."""
    found, cursor = [], None
    while True:
        page = timeline.differences(first, last, cursor, limit)
        found += [(one.key, one.before is not None, one.after is not None) for one in page.differences]
        cursor = page.cursor
        if cursor is None:
            return found


def test_an_empty_memory_has_no_commits(timeline: Timeline):
    assert timeline.latest() is None
    assert timeline.activity(10) is None
    assert timeline.page().commits == ()
    assert timeline.at("2026-01-01T00:00:00Z") is None
    with pytest.raises(NotFound):
        timeline.commit(1)


def test_commits_come_in_pages_the_newest_first(space: commonplace.Space, timeline: Timeline):
    for number in range(12):
        space.files.write("/a.md", f"text {number}")
    seen, before = [], None
    while True:
        page = timeline.page(before, 5)
        seen += [commit.number for commit in page.commits]
        before = page.older
        if before is None:
            break
    assert seen == [*range(12, 0, -1)]


def test_a_purge_leaves_a_gap_that_pages_step_over(space: commonplace.Space, timeline: Timeline):
    space.files.write("/first.md", "stays")
    for number in range(20):
        space.files.write("/a.md", f"text {number}")
    space.purge("file", "/a.md")
    space.files.write("/last.md", "stays")
    last = timeline.latest()
    assert last is not None
    seen, before = [], None
    while True:
        page = timeline.page(before, 3)
        seen += [change.key for commit in page.commits for change in commit.changes]
        before = page.older
        if before is None:
            break
    assert seen == ["/last.md", "/first.md"]
    first, none = timeline.neighbours(last)
    assert (first and first.number, none) == (1, None)
    assert first is not None
    assert timeline.neighbours(first) == (None, last)


def test_the_commit_of_a_moment_is_the_last_one_before_it(space: commonplace.Space, timeline: Timeline):
    for number in range(150):
        space.records.create(type="fact", content=f"number {number}", source="a test", confidence=0.5)
    commits = [timeline.commit(number) for number in range(1, 151)]
    step = timedelta(microseconds=1)
    for one in (commits[0], commits[1], commits[64], commits[70], commits[128], commits[148], commits[149]):
        for moment, expected in ((one.time, one.number), (one.time - step, one.number - 1)):
            found = timeline.at(moment)
            assert (found.number if found else 0) == expected
    last = timeline.at(commits[-1].time + timedelta(days=400))
    assert last is not None
    assert last.number == 150


@pytest.mark.parametrize("count", [1, 2, 40, SAMPLES + 30])
def test_activity_counts_every_commit_once(space: commonplace.Space, timeline: Timeline, count: int):
    for number in range(count):
        space.files.write("/a.md", f"text {number}")
    activity = timeline.activity(24)
    assert activity is not None
    assert sum(activity.counts) == pytest.approx(count)
    assert (activity.first.number, activity.last.number) == (1, count)
    assert len(activity.counts) == 24


@pytest.mark.promise("page-compare")
@pytest.mark.parametrize("limit", [1, 50])
def test_what_differs_between_two_commits_is_listed_once(space: commonplace.Space, timeline: Timeline, limit: int):
    space.files.write("/changed.md", "old")
    space.files.write("/back.md", "the same")
    space.files.write("/deleted.md", "gone soon")
    first = space.stats().commit
    space.files.write("/changed.md", "newer")
    space.files.write("/back.md", "another")
    space.files.write("/created.md", "new")
    space.files.write("/passing.md", "there for a moment")
    space.files.delete("/passing.md")
    space.files.delete("/deleted.md")
    space.files.write("/back.md", "the same")
    space.files.write("/changed.md", "newest")
    space.files.write("/deleted.md", "back for a moment")
    space.files.delete("/deleted.md")
    last = space.stats().commit
    space.files.write("/later.md", "after both")
    assert differing(timeline, first, last, limit) == [
        ("/deleted.md", True, False),
        ("/changed.md", True, True),
        ("/created.md", False, True),
    ]
    assert differing(timeline, first, first, limit) == []
    assert {key for key, *_ in differing(timeline, 0, first, limit)} == {"/changed.md", "/back.md", "/deleted.md"}


def test_a_commit_of_many_changes_is_compared_in_parts(space: commonplace.Space, timeline: Timeline):
    space.files.write("/first.md", "first")
    space.files.write_all({f"/many/{number}.md": "text" for number in range(450)})
    found = differing(timeline, 1, 2)
    assert len(found) == len(set(found)) == 451
    page = timeline.differences(1, 2)
    assert len(page.differences) <= 200
    assert page.cursor == (2, 200)


def test_an_entry_is_read_as_a_commit_left_it(space: commonplace.Space, timeline: Timeline):
    space.files.write("/a.md", "one")
    space.files.write("/b.md", "other")
    space.files.write("/a.md", "two")
    space.files.delete("/a.md")

    def text(commit: int) -> object:
        state = timeline.state("file", "/a.md", commit)
        return state and state.value

    assert [text(commit) for commit in range(5)] == [None, "one", "one", "two", None]


@pytest.mark.promise("page-undo-preview")
def test_a_preview_of_undo_names_what_changed_since(space: commonplace.Space, timeline: Timeline):
    space.files.write_all({f"/{name}.md": name for name in "abc"})
    space.files.move("/c.md", "/moved.md")
    clean = timeline.preview_undo(2)
    assert clean.conflicts == ()
    [step] = clean.steps
    assert step.removed is not None
    assert step.restored is not None
    assert (step.removed.key, step.restored.key) == ("/moved.md", "/c.md")
    space.files.write("/a.md", "changed")
    preview = timeline.preview_undo(1)
    assert sorted(preview.conflicts) == ["file /a.md was changed since", "file /c.md was changed since"]
    before = space.stats().commit
    with pytest.raises(commonplace.Conflict, match=r"file /a.md was changed since; file /c.md was changed since"):
        space.undo(1)
    assert space.stats().commit == before
