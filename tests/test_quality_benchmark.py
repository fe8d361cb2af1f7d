"""The quality benchmark: its measures are the official ones, it gives no answer away, and asks through the library."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def haystack(id: str, question: str, wanted: str) -> dict[str, Any]:
    sessions = {
        "answer_1": [wanted, "Enjoy it."],
        "session_2": ["Which bread goes with soup?", "Rye bread does."],
        "session_3": ["How tall is that tower?", "About ninety metres."],
    }
    return {
        "question_id": id,
        "question_type": "single-session-user",
        "question": question,
        "question_date": "2023/05/30 (Tue) 16:24",
        "answer_session_ids": ["answer_1"],
        "haystack_dates": ["2023/05/20 (Sat) 10:00", "2023/05/21 (Sun) 11:00", "2023/05/22 (Mon) 12:00"],
        "haystack_session_ids": list(sessions),
        "haystack_sessions": [
            [
                {"role": role, "content": text, "has_answer": name == "answer_1" and role == "user"}
                for role, text in zip(("user", "assistant"), texts, strict=True)
            ]
            for name, texts in sessions.items()
        ],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    items = [
        haystack("q1", "Where did I rent a kayak?", "I rent a kayak in Brest."),
        haystack("q2_abs", "What colour is my canoe?", "My canoe is stored in the shed."),
    ]
    with gzip.open(tmp_path / "longmemeval_s_dev100.json.gz", "wt", encoding="utf-8") as file:
        json.dump(items, file)
    return tmp_path


def test_the_measures_are_those_of_the_sets_own_papers() -> None:
    from quality_scores import ndcg, ndcg_any, recall, recall_all

    ranking, relevant = ["x", "a", "y", "b"], frozenset("ab")
    assert (recall_all(3)(ranking, relevant), recall_all(4)(ranking, relevant)) == (0.0, 1.0)
    assert (recall(3)(ranking, relevant), recall(4)(ranking, relevant)) == (0.5, 1.0)
    # LongMemEval: gains at places 2 and 4 are 1 / log2(2) and 1 / log2(4); the ideal is 1 + 1 / log2(2).
    assert ndcg_any(10)(ranking, relevant) == pytest.approx((1 + 0.5) / 2)
    assert ndcg(10)(ranking, relevant) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3)))


def test_an_interval_holds_the_mean_and_narrows_where_nothing_differs() -> None:
    from quality_scores import interval

    low, high = interval([0.0, 1.0] * 50)
    assert low < 0.5 < high
    assert interval([0.25] * 10) == (0.25, 0.25)


@pytest.mark.promise("bench-hides-the-gold")
def test_what_is_stored_tells_nothing_of_the_gold(folder: Path) -> None:
    from quality_data import longmemeval

    dataset = longmemeval(folder)
    corpora = list(dataset.corpora())
    assert "answer" not in repr(corpora)
    assert "abs" not in repr([corpus.questions for corpus in corpora])
    stored = {session.id for corpus in corpora for session in corpus.sessions}
    assert len(stored) == 6
    assert {id for wanted in dataset.gold.relevant["session"].values() for id in wanted} < stored


def test_a_large_haystack_holds_those_of_several_questions_and_each_session_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import quality_data

    monkeypatch.setattr(quality_data, "LARGE_HAYSTACKS", 1)
    dataset = quality_data.large_longmemeval(folder)
    (corpus,) = dataset.corpora()
    assert len(corpus.questions) == dataset.questions == 2
    # Two of the three sessions of either question are the same.
    assert len(corpus.sessions) == 4
    stored = {session.id for session in corpus.sessions}
    wanted = [dataset.gold.relevant["session"][question.id] for question in corpus.questions]
    assert [len(ids & stored) for ids in wanted] == [1, 1]


def test_the_split_is_the_same_every_time_and_leaves_both_parts_something() -> None:
    from quality_data import is_development

    chosen = [is_development("locomo", str(number)) for number in range(300)]
    assert chosen == [is_development("locomo", str(number)) for number in range(300)]
    assert 150 < sum(chosen) < 250


def test_assistant_chats_rank_both_roles_and_keep_the_evidence_among_drawn_sessions(folder: Path) -> None:
    from quality_data import assistant_chats

    dataset = assistant_chats(folder)
    (corpus,) = dataset.corpora()  # the other question has no answer
    (wanted,) = dataset.gold.relevant["turn"].values()
    assert corpus.searched_role is None
    assert dataset.levels == ("turn",)
    assert {turn.role for session in corpus.sessions for turn in session.turns} == {"user", "assistant"}
    assert [turn.text for session in corpus.sessions for turn in session.turns if turn.id in wanted] == [
        "I rent a kayak in Brest."
    ]
    assert list(dataset.gold.types) == ["single-session-user"]
    assert repr(corpus) == repr(next(assistant_chats(folder).corpora()))


def pairs() -> list[dict[str, Any]]:
    path = BENCHMARKS / "data" / "unnamed_needs.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_need_that_is_not_named_shares_no_word_with_its_question() -> None:
    from commonplace.language.question import question_terms
    from commonplace.language.tokenizer import index_terms

    assert len({pair["id"] for pair in pairs()}) == len(pairs()) >= 160
    for pair in pairs():
        asked, _ = question_terms(pair["question"])
        memory = pair["session"][pair["evidence"]]
        assert memory["role"] == "user", pair["id"]
        assert 2 <= len(pair["session"]) <= 4, pair["id"]
        assert not asked.keys() & index_terms(memory["content"]).keys(), pair["id"]
        for decoy in pair["decoys"]:
            assert len(asked.keys() & index_terms(decoy[0]["content"]).keys()) >= 2, pair["id"]


def test_needs_that_are_held_back_are_asked_only_on_request_and_histories_stay_the_same(folder: Path) -> None:
    from quality_data import unnamed_needs

    shown, both = unnamed_needs(folder), unnamed_needs(folder, held_back=True)
    assert both.questions == len(pairs())  # this folder has no preference questions
    assert 0.4 < shown.questions / both.questions < 0.6
    assert all(corpus.questions[0].is_development for corpus in shown.corpora())
    assert repr(next(shown.corpora())) == repr(next(unnamed_needs(folder).corpora()))
    for corpus in both.corpora():
        (wanted,) = both.gold.relevant["turn"][corpus.questions[0].id]
        assert sum(turn.id == wanted for session in corpus.sessions for turn in session.turns) == 1


def figure(ours: list[float], vectors: list[float], *, is_pooled: bool = False) -> Any:
    from quality import _figure
    from quality_run import OURS, SYSTEMS, VECTORS
    from quality_scores import Line, recall

    given = {OURS: ours, VECTORS: vectors}
    scores = {
        (system, str(place)): given.get(system, [0.0] * len(ours))[place]
        for system in SYSTEMS
        for place in range(len(ours))
    }
    questions = [str(place) for place in range(len(ours))]
    return _figure("set", Line("turn", "recall@5", recall(5)), "all", scores, questions, is_pooled=is_pooled)


@pytest.mark.promise("bench-never-below-a-part")
def test_a_figure_fails_below_a_part_beyond_chance_and_at_all_for_a_whole_set() -> None:
    below = [1.0] * 30 + [0.0] * 10
    chance = [1.0, 0.0] * 20
    better_by_one = [0.0, 1.0] * 19 + [1.0, 1.0]
    assert figure(below, [1.0] * 40).ahead_of_us == ["vectors"]
    assert figure(chance, better_by_one).ahead_of_us == []
    assert figure(chance, better_by_one, is_pooled=True).ahead_of_us == ["vectors"]
    assert figure(chance, chance, is_pooled=True).ahead_of_us == []
    assert figure([0.0] * 3, [1.0] * 3).ahead_of_us == []  # too few for a verdict


@pytest.mark.promise("bench-never-below-a-part")
def test_the_command_fails_and_names_what_is_below_a_part(
    folder: Path, embedder: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import quality
    from quality_run import OURS, SYSTEMS, Ranking

    def rank_all(dataset: Any, *_: Any) -> Any:
        for corpus in dataset.corpora():
            (question,) = corpus.questions
            (wanted,) = dataset.gold.relevant["turn"].values()
            for system in SYSTEMS:
                yield Ranking(question, "turn", system, () if system == OURS else tuple(wanted))

    monkeypatch.setattr(quality, "create_embedder", lambda model: embedder)
    monkeypatch.setattr(quality, "rank_all", rank_all)
    monkeypatch.setattr(quality, "FEWEST", 1)
    assert quality.main([str(folder), "--only", "assistant-chats"]) == 1
    printed = capsys.readouterr().out
    below = "0.0000, BM25 has 1.0000, vectors has 1.0000, RRF has 1.0000"
    assert f"- Assistant chats, turn nDCG@10, all: {below}" in printed
    assert f"- Assistant chats, turn recall@5, single-session-user, all: {below}" in printed


@pytest.mark.promise("bench-quality")
def test_the_command_prints_every_system_with_goals_and_intervals(
    folder: Path, tmp_path: Path, embedder: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import quality

    monkeypatch.setattr(quality, "create_embedder", lambda model: embedder)
    figures = tmp_path / "figures.json"
    code = quality.main(
        [
            str(folder),
            "--only",
            "longmemeval",
            "--only",
            "longmemeval-500",
            "--cache",
            str(tmp_path / "cache"),
            "--json",
            str(figures),
        ]
    )
    printed = capsys.readouterr().out

    whole = {
        (figure["what"], figure["part"]): figure
        for figure in json.loads(figures.read_text())
        if figure["part"] == "all" and figure["dataset"] == "LongMemEval-S"
    }
    assert code == 0
    assert "| what | questions | grep | BM25 | vectors | RRF | commonplace | goal |" in printed
    assert "recall_all@k" in printed
    assert "## LongMemEval-S, 500 sessions" in printed
    assert whole["session recall_all@5", "all"]["questions"] == 2
    assert whole["session recall_all@5, without abstention", "all"]["questions"] == 1
    assert set(whole["session recall_all@5", "all"]["means"].values()) == {1.0}


def test_vectors_in_the_folder_are_used_again_and_kept_apart_by_purpose(tmp_path: Path, embedder: Any) -> None:
    from quality_cache import CachedEmbedder

    first = CachedEmbedder(embedder, tmp_path).embed(["a b", "c"], purpose="passage")
    again = CachedEmbedder(embedder, tmp_path)
    assert (again.embed(["c", "a b"], purpose="passage") == first[::-1]).all()
    assert (again.computed, embedder.embedded) == (0, ["a b", "c"])
    again.embed(["c"], purpose="query")
    assert again.computed == 1


def test_no_module_of_the_benchmark_but_the_scorer_reads_the_gold() -> None:
    for path in BENCHMARKS.glob("quality*.py"):
        if path.name not in ("quality.py", "quality_data.py"):
            assert ".gold" not in path.read_text(encoding="utf-8"), path.name
