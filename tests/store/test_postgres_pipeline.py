"""Statements in a pipeline, and scores as arrays: each does what it stands in for."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from commonplace.backends.postgres import PostgresStore
from commonplace.backends.postgres.connection import Session, numbers_of
from commonplace.backends.postgres.runner import READ, WRITE
from commonplace.backends.ranking import Counts, Postings, chunk_of, posting, score, score_arrays
from commonplace.errors import CommonplaceError
from commonplace.language.passages import LEVEL_FREQUENCY
from postgres_server import empty, shared_book

HERE = ("user", "u1")


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    opened = PostgresStore(shared_book(), pool_size=1)
    empty(shared_book())
    yield opened
    opened.close()


def run(store: PostgresStore, work: Any, mode: str | None = READ) -> Any:
    return store._runner.system(work, mode=mode)


# Pipelines


def test_answers_belong_to_their_questions_in_whatever_order_they_are_looked_at(store: PostgresStore) -> None:
    def work(session: Session) -> list[Any]:
        answers = [session.ask("SELECT %s::int + %s::int", (number, 100)) for number in range(50)]
        late = [answer.fetchall() for answer in reversed(answers)]
        session.end()
        return late + [answer.fetchall() for answer in answers]

    expected = [[(number + 100,)] for number in range(50)]
    assert run(store, work) == expected[::-1] + expected


def test_names_and_percent_signs_stand_for_what_psycopg_takes_them_for(store: PostgresStore) -> None:
    sql = "SELECT %(b)s::text || %(a)s::text || %(b)s::text || '%%'"
    assert run(store, lambda session: session.rows(sql, {"a": "-", "b": "x"})) == [("x-x%",)]


def test_what_is_larger_than_any_buffer_travels_both_ways(store: PostgresStore) -> None:
    text = "0123456789" * 500_000

    def work(session: Session) -> list[Any]:
        answers = [session.ask("SELECT %s::text", (text + str(number),)) for number in range(4)]
        return [answer.fetchall() for answer in answers]

    assert run(store, work) == [[(text + str(number),)] for number in range(4)]


def test_an_error_is_told_once_and_the_connection_serves_on(store: PostgresStore) -> None:
    def work(session: Session) -> Any:
        session.send("INSERT INTO system (part, key, value) VALUES ('p', 'k', '1')")
        session.send("SELECT 1 / 0")
        session.send("INSERT INTO system (part, key, value) VALUES ('p', 'l', '1')")
        return session.rows("SELECT 1")

    backend = run(store, lambda session: session.rows("SELECT pg_backend_pid()"))
    with pytest.raises(CommonplaceError, match="division by zero") as error:
        run(store, work, WRITE)
    assert isinstance(error.value.__cause__, psycopg.errors.DivisionByZero)
    assert store.system_list("p") == {}
    assert run(store, lambda session: session.rows("SELECT pg_backend_pid()")) == backend


def test_statements_that_the_server_forgot_are_planned_again(store: PostgresStore) -> None:
    for _ in range(3):
        store.system_put("p", "k", 1)
    run(store, lambda session: session.send("DEALLOCATE ALL"))
    store.system_put("p", "k", 2)
    assert store.system_get("p", "k") == 2


def test_more_statements_than_a_connection_keeps_do_not_pile_up_in_the_server(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.backends.postgres.connection.PREPARED", 5)

    def work(session: Session) -> list[Any]:
        answers = [session.ask(f"SELECT {number}", prepare=True) for number in range(23)]
        kept = session.rows("SELECT count(*) FROM pg_prepared_statements")[0][0]
        return [kept <= 5, *(answer.fetchall()[0][0] for answer in answers)]

    assert run(store, work) == [True, *range(23)]


def test_an_interrupted_question_is_left_at_once_and_the_next_one_is_answered(store: PostgresStore) -> None:
    # To the process, as Ctrl-C is: `raise_signal` would reach the timer's thread alone.
    interrupt = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])

    def work(session: Session) -> Any:
        interrupt.start()
        return session.rows("SELECT pg_sleep(20)")

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(store, work)
    assert time.monotonic() - begin < 10
    assert run(store, lambda session: session.rows("SELECT 1")) == [(1,)]


# Scores


@pytest.mark.promise("postgres-ranks-alike")
@pytest.mark.parametrize("seed", range(20))
def test_scores_as_arrays_are_those_of_the_lists(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([1, 10, 300, 3_000])
    rows = [posting(number * 3 + 7, chance.choice([1, 5, 20, 300])) for number in range(size)]
    counts = Counts(1, size, size * 40)
    terms = []
    for _ in range(chance.randint(1, 9)):
        held = [row for row in rows if chance.random() < chance.choice([0.0, 0.02, 0.4, 1.0])]
        terms.append((chance.choice([0.5, 1.0]), [(row, chance.choice([1, 2, 3])) for row in held]))
    lists = [
        Postings(weight, [(LEVEL_FREQUENCY[level], [row for row, at in held if at == level]) for level in (1, 2, 3)])
        for weight, held in terms
    ]
    words = score_arrays(
        counts,
        [(weight, *(np.array([one[part] for one in held], dtype=int) for part in (0, 1))) for weight, held in terms],
    )
    known = chance.sample(rows, min(size, 20))
    for keep in (None, 20, 54, 70):
        ranked, of_known = score(counts, lists, keep, known)
        assert words.rank(keep) == ranked
        assert words.shares([chunk_of(row) for row in known]) == of_known
    some = [chunk_of(row) for row in rows[::2]]
    everything, _ = score(counts, lists, None)
    assert words.rank(None, some) == [one for one in everything if one[0] in set(some)]


def test_nothing_found_is_an_empty_ranking() -> None:
    words = score_arrays(Counts(1, 10, 100), [(1.0, numbers_of(None), numbers_of(None))])
    assert (words.rank(10), words.shares([1]), score_arrays(Counts(1, 0, 0), []).rank(10)) == ([], {}, [])
