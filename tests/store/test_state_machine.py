"""The store against a model of plain dictionaries: any operations in any order, in two namespaces, past and present."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from commonplace.backends.sqlite import SQLiteStore
from commonplace.entry import Draft, Entry, Revision
from commonplace.errors import Conflict, NotFound
from commonplace.filters import Filter
from commonplace.language.tokenizer import query_terms
from commonplace.space.history import draft_of, undo
from commonplace.store import Scan, Store, Transaction
from doubles import Clock, rounds

NAMESPACES = (("user", "u1"), ("user", "u10"))
KINDS = ("file", "record")
KEYS = ("a", "a\x01b", "a\x01c", "b", "b\x01b", "b\x01c", "ç")
WORDS = ("alpha", "bravo", "kilo", "zebra", "日", "sigma")
SECOND = 1_000_000

Place = tuple[str, str]


@dataclass
class Row:
    """One state of one entry, from its beginning to its end."""

    entry: Entry
    begun_by: str
    begun_at: int
    end: tuple[str, int, int] | None = None  # by, commit, at
    is_purged: bool = False

    @property
    def place(self) -> Place:
        return self.entry.kind, self.entry.key


@dataclass
class Model:
    """A namespace: every state it ever had. What is live is what has not ended."""

    rows: list[Row] = field(default_factory=list)
    commit: int = 0
    floor_time: int = 0
    complex_commits: set[int] = field(default_factory=set)

    def live(self, now: int) -> dict[Place, Row]:
        return {
            row.place: row
            for row in self.rows
            if row.end is None and not row.is_purged and not _has_expired(row.entry, now)
        }

    def at(self, time: int) -> dict[Place, Entry]:
        return {
            row.place: row.entry
            for row in self.rows
            if not row.is_purged
            and row.begun_at <= time
            and (row.end is None or row.end[2] > time)
            and not _has_expired(row.entry, time)
        }

    def is_erased(self, purged: Row) -> bool:
        """Whether no later state has the number of a purged one: nothing is left that could tell of it."""
        number = purged.place, purged.entry.revision
        return all((row.place, row.entry.revision) != number for row in self.rows if not row.is_purged)

    def sweep(self, now: int) -> None:
        for row in self.rows:
            if row.end is None and _has_expired(row.entry, now):
                assert row.entry.expires_at is not None
                row.end = ("expired", -1, max(row.entry.expires_at, row.begun_at))

    def history(self, place: Place, now: int) -> list[tuple[int, str, int]]:
        lines = []
        for row in sorted(self.rows, key=lambda row: row.entry.revision):
            if row.place != place or row.is_purged:
                continue
            lines.append((row.entry.revision, row.begun_by, row.begun_at))
            if row.end is not None and row.end[0] != "updated":
                lines.append((row.entry.revision + 1, row.end[0], row.end[2]))
            elif row.end is None and _has_expired(row.entry, now):
                assert row.entry.expires_at is not None
                lines.append((row.entry.revision + 1, "expired", row.entry.expires_at))
        return lines


def _has_expired(entry: Entry, time: int) -> bool:
    return entry.expires_at is not None and entry.expires_at <= time


def _content(entry: Entry | None) -> tuple[Any, ...] | None:
    if entry is None:
        return None
    return entry.value, entry.text, entry.heading, entry.attributes, entry.identity, entry.expires_at


words = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
texts = st.one_of(words, words.map(lambda text: f"{text}\n\n" * 120), st.just(""))
places = st.tuples(st.sampled_from(KINDS), st.sampled_from(KEYS))
edits = st.tuples(st.sampled_from(["append", "prepend", "cut", "middle", "same"]), words)


@st.composite
def drafts(draw: Any) -> dict[str, Any]:
    is_json = draw(st.booleans())
    text = draw(texts)
    return {
        "value": {"text": text, "n": draw(st.integers(0, 3))} if is_json else text,
        "text": text if is_json else None,
        "heading": draw(st.sampled_from([None, "alpha head", "kilo head"])),
        "attributes": {"tags": draw(st.lists(st.sampled_from(["t1", "t2"]), max_size=2, unique=True))},
        "identity": draw(st.sampled_from([None, None, "i1", "i2"])),
        "ttl": draw(st.sampled_from([None, None, 3, 20])),
    }


steps = st.one_of(
    st.tuples(st.just("put"), places, drafts()),
    st.tuples(st.just("edit"), places, edits),
    st.tuples(st.just("delete"), places, st.none()),
    st.tuples(st.just("move"), places, st.sampled_from(KEYS)),
    st.tuples(st.just("delete_range"), places, st.sampled_from(["a", "a\x01", "b"])),
    st.tuples(st.just("move_range"), places, st.sampled_from([("a\x01", "b\x01"), ("b\x01", "a\x01")])),
)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = self.open_store()
        self.models = {namespace: Model() for namespace in NAMESPACES}
        self.views: dict[Any, tuple[int, dict[Place, int]]] = {namespace: (0, {}) for namespace in NAMESPACES}
        self.ids: set[int] = set()
        self.is_checked = True

    def open_store(self) -> Store:
        """An empty store with the machine's clock; another backend gives its own."""
        return SQLiteStore(":memory:", clock=self.clock)

    def teardown(self) -> None:
        try:
            self.check_everything()
        finally:
            self.store.close()

    # Changes

    def apply(self, namespace: Any, work: Callable[[Transaction], Any], *, is_complex: bool = False) -> Any:
        """Run a change in the store and, by what the feed's own parts say of it, in the model."""
        model = self.models[namespace]
        before = model.live(self.clock())
        was_swept = any(
            row.end is None and _has_expired(row.entry, self.clock()) for row in model.rows if not row.is_purged
        )
        try:
            result, commit = self.store.write(namespace, work, actor="tester")
        except (Conflict, NotFound):
            self.check_live(namespace, {place: row.entry for place, row in before.items()})
            raise
        model.sweep(self.clock())
        if commit is None:
            assert not was_swept
            return result
        assert commit == model.commit + 1
        model.commit = commit
        if is_complex:
            model.complex_commits.add(commit)
        return result

    def record_put(self, model: Model, entry: Entry) -> None:
        now = self.clock()
        known = model.live(now).get((entry.kind, entry.key))
        if known is None:
            used = [
                row.entry.revision for row in model.rows if row.place == (entry.kind, entry.key) and not row.is_purged
            ]
            assert entry.revision == (max(used) + 2 if used else 1)
            assert entry.id not in self.ids
            self.ids.add(entry.id)
            model.rows.append(Row(entry, "created", now))
        else:
            assert (entry.id, entry.revision) == (known.entry.id, known.entry.revision + 1)
            known.end = ("updated", -1, now)
            model.rows.append(Row(entry, "updated", now))

    def run_step(self, model: Model, transaction: Transaction, step: Any) -> list[Callable[[], None]]:
        """One step inside a transaction; what it means for the model, to be done when it is committed."""
        action, (kind, key), detail = step
        if action == "put":
            fields = dict(detail)
            ttl = fields.pop("ttl")
            expires_at = None if ttl is None else transaction.time + ttl * SECOND
            entry = transaction.put(Draft(kind, key, expires_at=expires_at, **fields))
            return [lambda: self.record_put(model, entry)]
        if action == "delete_range":
            keys = [key for key in KEYS if key.startswith(detail) and transaction.get(kind, key) is not None]
            assert transaction.delete_range(kind, detail) == len(keys)
            return [lambda key=key: self.record_end(model, (kind, key), "deleted") for key in keys]  # type: ignore[misc]
        if action == "move_range":
            return self.move_range(model, transaction, kind, *detail)
        known = transaction.get(kind, key)
        if action == "edit":
            text = known.value if known is not None and isinstance(known.value, str) else ""
            entry = transaction.put(Draft(kind, key, _edited(text, *detail)))
            return [lambda: self.record_put(model, entry)]
        if action == "delete":
            gone = transaction.delete(kind, key)
            assert gone == known
            if gone is None:
                return []
            return [lambda: self.record_end(model, (kind, key), "deleted")]
        if known is None:
            return []
        moved = transaction.move(kind, key, detail, "bravo head")
        return [lambda: self.record_move(model, (kind, key), moved)]

    def move_range(
        self, model: Model, transaction: Transaction, kind: str, old: str, new: str
    ) -> list[Callable[[], None]]:
        keys = [key for key in KEYS if key.startswith(old) and transaction.get(kind, key) is not None]
        if any(key.startswith(new) and transaction.get(kind, key) is not None for key in KEYS):
            return []
        assert transaction.move_range(kind, old, new, lambda key: "bravo head") == len(keys)
        effects: list[Callable[[], None]] = []
        for key in keys:
            moved = transaction.get(kind, new + key[len(old) :])
            assert moved is not None
            effects.append(lambda key=key, moved=moved: self.record_move(model, (kind, key), moved))  # type: ignore[misc]
        return effects

    def record_end(self, model: Model, place: Place, by: str) -> None:
        model.live(self.clock())[place].end = (by, -1, self.clock())

    def record_move(self, model: Model, old: Place, moved: Entry) -> None:
        known = model.live(self.clock())[old]
        used = [row.entry.revision for row in model.rows if row.place == (moved.kind, moved.key) and not row.is_purged]
        expected = max(known.entry.revision + 1, max(used) + 2 if used else 1)
        assert (moved.id, moved.revision) == (known.entry.id, expected)
        assert _content(moved) == _content(replace(known.entry, heading="bravo head"))
        known.end = ("moved_away", -1, self.clock())
        model.rows.append(Row(moved, "moved_here", self.clock()))

    @rule(namespace=st.sampled_from(NAMESPACES), step=steps)
    def change(self, namespace: Any, step: Any) -> None:
        self.batch(namespace, [step])

    @rule(namespace=st.sampled_from(NAMESPACES), batch=st.lists(steps, min_size=2, max_size=5))
    def change_much_at_once(self, namespace: Any, batch: Any) -> None:
        self.batch(namespace, batch)

    def batch(self, namespace: Any, batch: Any) -> None:
        self.clock.advance(0.5)
        model = self.models[namespace]

        def work(transaction: Transaction) -> list[Callable[[], None]]:
            assert transaction.time == self.clock()
            return [effect for step in batch for effect in self.run_step(model, transaction, step)]

        try:
            effects = self.apply(namespace, work, is_complex=len(batch) > 1)
        except Conflict:
            return  # an identity or a target that is taken: nothing was changed, as `apply` has checked
        for effect in effects:
            effect()

    @rule(namespace=st.sampled_from(NAMESPACES), batch=st.lists(steps, min_size=1, max_size=3))
    def fail_in_the_middle(self, namespace: Any, batch: Any) -> None:
        self.clock.advance(0.5)

        def work(transaction: Transaction) -> None:
            for step in batch:
                self.run_step(self.models[namespace], transaction, step)
            raise Conflict("on purpose")

        try:
            self.apply(namespace, work)
        except Conflict:
            pass
        else:
            raise AssertionError("the error was swallowed")

    @rule(seconds=st.sampled_from([1, 5, 30]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: any(model.rows for model in self.models.values()))
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        namespace = data.draw(st.sampled_from([name for name in NAMESPACES if self.models[name].rows]))
        model = self.models[namespace]
        row = data.draw(st.sampled_from(model.rows))
        self.clock.advance(0.5)

        def work(transaction: Transaction) -> Entry | None:
            state = transaction.state(*row.place, row.entry.revision)
            if row.is_purged:
                assert state is None or not model.is_erased(row)
                return None
            assert state is not None
            assert _content(state) == _content(row.entry)
            return transaction.put(replace(draft_of(state), expires_at=None))

        try:
            entry = self.apply(namespace, work)
        except Conflict:
            return
        if entry is not None:
            assert entry.created_at == row.entry.created_at
            self.record_put(model, entry)

    @precondition(lambda self: any(model.commit for model in self.models.values()))
    @rule(data=st.data())
    def undo(self, data: Any) -> None:
        namespace = data.draw(st.sampled_from([name for name in NAMESPACES if self.models[name].commit]))
        model = self.models[namespace]
        commit = data.draw(st.integers(1, model.commit))
        self.clock.advance(0.5)
        now = self.clock()
        begun = [row for row in model.rows if row.entry.commit == commit]
        if any(row.is_purged for row in begun):
            return
        time = begun[0].begun_at if begun else None
        present = {place: row.entry for place, row in model.live(now).items()}
        expected: dict[Place, Any] | None = None
        if time is not None and time > model.floor_time:
            was, became = model.at(time - 1), model.at(time)
            touched = {place for place in was.keys() | became.keys() if was.get(place) != became.get(place)}
            touched = {place for place in touched if place in became or not _has_expired(was[place], now)}
            if all(present.get(place) == became.get(place) for place in touched):
                expected = {place: _content(entry) for place, entry in present.items() if place not in touched}
                back = {
                    place: _content(was[place])
                    for place in touched
                    if place in was and not _has_expired(was[place], now)
                }
                expected |= back
        try:
            self.store.write(namespace, lambda transaction: undo(transaction, commit, lambda state: False))
        except (Conflict, NotFound):
            self.check_live(namespace, present)
            identities = [
                (place[0], content[4]) for place, content in (expected or {}).items() if content and content[4]
            ]
            is_taken = len(identities) != len(set(identities))
            is_simple = commit not in model.complex_commits
            assert expected is None or is_taken or not is_simple or not (begun or touched), "it could be undone"
            model.sweep(now)
            if self.store.namespace_stats(namespace).commit != model.commit:
                raise AssertionError("a refused undo took a commit number") from None
            return
        after = self.scan(namespace)
        if expected is not None:
            assert {place: _content(entry) for place, entry in after.items()} == expected
        model.commit += 1
        model.complex_commits.add(model.commit)
        model.sweep(now)
        self.adopt(namespace, model.commit, after)

    def adopt(self, namespace: Any, commit: int, after: dict[Place, Entry]) -> None:
        """Take over what an undo did, from what it began and ended."""
        model = self.models[namespace]
        begun, ended = self.store.write(namespace, lambda t: (t.states_begun(commit), t.states_ended(commit)))[0]
        changes = {(c.kind, c.key, c.revision): c for c in self.store.changes(namespace, after=commit - 1)}
        known = {(row.entry.kind, row.entry.key, row.entry.revision): row for row in model.rows}
        for entry in sorted(begun, key=lambda entry: entry.revision):
            place = (entry.kind, entry.key, entry.revision)
            row = Row(entry, changes[place].action, self.clock())
            self.ids.add(entry.id)
            model.rows.append(row)
            known[place] = row
        for entry in ended:
            row = known[entry.kind, entry.key, entry.revision]
            if row.end is None:
                loss = changes.get((entry.kind, entry.key, entry.revision + 1))
                is_loss = loss is not None and loss.action in ("deleted", "moved_away")
                row.end = (loss.action if is_loss and loss else "updated", commit, self.clock())
        assert {place: row.entry for place, row in model.live(self.clock()).items()} == after

    @rule(namespace=st.sampled_from(NAMESPACES), place=places)
    def purge_one(self, namespace: Any, place: Place) -> None:
        self.clock.advance(0.5)
        model = self.models[namespace]
        was_live = model.live(self.clock())
        model.sweep(self.clock())
        here = [row for row in model.rows if row.place == place and not row.is_purged]
        ids = {row.entry.id for row in here if row.end is None or row.end[0] in ("deleted", "expired")}
        erased = [row for row in model.rows if not row.is_purged and (row in here or row.entry.id in ids)]
        assert self.store.purge(namespace, kind=place[0], key=place[1]) == len(erased)
        for row in erased:
            row.is_purged = True
            row.end = row.end or ("deleted", -1, self.clock())
        model.commit = self.store.namespace_stats(namespace).commit
        assert place not in self.scan(namespace)
        assert was_live.keys() - {place} == self.scan(namespace).keys()

    @rule(namespace=st.sampled_from(NAMESPACES), seconds=st.integers(0, 20))
    def purge_old_history(self, namespace: Any, seconds: int) -> None:
        self.clock.advance(0.5)
        model = self.models[namespace]
        model.sweep(self.clock())
        time = self.clock() - seconds * SECOND
        erased = [row for row in model.rows if row.end is not None and not row.is_purged and row.end[2] < time]
        assert self.store.purge(namespace, history_before=time) == len(erased)
        for row in erased:
            row.is_purged = True
        model.floor_time = max(model.floor_time, time)
        model.commit = self.store.namespace_stats(namespace).commit

    # Checks

    def scan(self, namespace: Any, as_of: int | None = None) -> dict[Place, Entry]:
        found: dict[Place, Entry] = {}
        cursor = None
        while True:
            page = self.store.scan(namespace, Scan(limit=3, after=cursor, as_of=as_of))
            for entry in page.entries:
                assert (entry.kind, entry.key) not in found
                assert entry.namespace == namespace
                found[entry.kind, entry.key] = entry
            cursor = page.cursor
            if cursor is None:
                return found

    def check_live(self, namespace: Any, expected: dict[Place, Entry]) -> None:
        assert self.scan(namespace) == expected

    @invariant()
    def the_present_is_as_the_model_says(self) -> None:
        for namespace, model in self.models.items():
            self.check_live(namespace, {place: row.entry for place, row in model.live(self.clock()).items()})

    @rule(namespace=st.sampled_from(NAMESPACES), share=st.floats(0, 1), step=st.sampled_from([-1, 0, 1]))
    def the_past_is_as_it_was(self, namespace: Any, share: float, step: int) -> None:
        model = self.models[namespace]
        times = sorted({row.begun_at for row in model.rows} | {row.end[2] for row in model.rows if row.end})
        if times:
            time = times[min(len(times) - 1, int(share * len(times)))] + step
            self.check_past(namespace, time)

    def check_past(self, namespace: Any, time: int) -> None:
        model = self.models[namespace]
        if time < model.floor_time or time > self.clock():
            return
        expected = model.at(time)
        assert self.scan(namespace, as_of=time) == expected
        for kind in KINDS:
            found = self.store.get(namespace, kind, KEYS, as_of=time)
            assert found == [expected.get((kind, key)) for key in KEYS]

    @rule(namespace=st.sampled_from(NAMESPACES), word=st.sampled_from((*WORDS, "head")))
    def a_word_finds_exactly_the_live_entries_that_contain_it(self, namespace: Any, word: str) -> None:
        live = self.models[namespace].live(self.clock()).values()
        expected = {row.entry.id for row in live if word in (row.entry.text + " " + (row.entry.heading or "")).split()}
        found = self.store.search_text(namespace, query_terms(word), Filter(), 100)
        assert {candidate.entry_id for candidate in found} == expected
        tagged = self.store.search_text(namespace, query_terms(word), Filter(all_tags=("t1",)), 100)
        assert {candidate.entry_id for candidate in tagged} == {
            row.entry.id
            for row in live
            if row.entry.id in expected and "t1" in row.entry.attributes.get("tags", ())  # type: ignore[operator]
        }

    @rule(namespace=st.sampled_from(NAMESPACES), limit=st.integers(1, 6))
    def whoever_follows_the_feed_knows_what_is_there(self, namespace: Any, limit: int) -> None:
        cursor, view = self.views[namespace]
        try:
            while changes := self.store.changes(namespace, after=cursor, limit=limit):
                for change in changes:
                    assert change.commit > cursor
                    if change.action in ("created", "updated", "restored", "moved_here"):
                        view[change.kind, change.key] = change.revision
                    else:
                        del view[change.kind, change.key]
                cursor = changes[-1].commit
        except Conflict:
            view = {place: entry.revision for place, entry in self.scan(namespace).items()}
            cursor = self.store.namespace_stats(namespace).commit
        model = self.models[namespace]
        model.sweep(self.clock())
        model.commit = self.store.namespace_stats(namespace).commit  # asking for the feed ends what has expired
        self.views[namespace] = (cursor, view)
        assert view == {place: row.entry.revision for place, row in model.live(self.clock()).items()}
        for (kind, key), revision in view.items():
            assert self.store.state(namespace, kind, key, revision) == model.live(self.clock())[kind, key].entry

    @rule()
    def keywords_are_made_anew(self) -> None:
        self.store.rebuild_keywords()

    @initialize()
    def start(self) -> None:
        pass

    def check_everything(self) -> None:
        now = self.clock()
        for namespace, model in self.models.items():
            for kind in KINDS:
                for key in KEYS:
                    lines = self.store.history(namespace, kind, key)
                    assert all(isinstance(line, Revision) for line in lines)
                    assert [(line.revision, line.action, line.at) for line in lines] == model.history((kind, key), now)
            for row in model.rows:
                if not row.is_purged:
                    assert self.store.state(namespace, *row.place, row.entry.revision) == row.entry
                elif model.is_erased(row):
                    assert self.store.state(namespace, *row.place, row.entry.revision) is None
            for row in model.rows[-12:]:
                self.check_past(namespace, row.begun_at)
        assert self.store.verify() == []


def _edited(text: str, how: str, words: str) -> str:
    middle = text.rfind(" ", 0, len(text) // 2) + 1
    return {
        "append": f"{text} {words}",
        "prepend": f"{words} {text}",
        "cut": text[:middle],
        "middle": f"{text[:middle]} {words} {text[middle:]}",
        "same": text,
    }[how]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=rounds(200), stateful_step_count=30)
