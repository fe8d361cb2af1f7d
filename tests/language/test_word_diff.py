"""How two texts differ in words: exact, short, and never slow."""

from __future__ import annotations

import random
import time

import pytest

from commonplace.language.edits import LONGEST_PIECE, MOST_SHOWN, Effort, Piece, word_diff


def side(pieces: list[Piece], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind in ("same", kind))


def shown(pieces: list[Piece]) -> str:
    marks = {"same": "{}", "removed": "[-{}-]", "added": "[+{}+]", "left out": "…"}
    return "".join(marks[piece.kind].format(piece.text) for piece in pieces)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ""),
        ("same", "same", ""),
        ("", "new", "[+new+]"),
        ("old", "", "[-old-]"),
        ("we deploy on Tuesday", "we deploy on Thursday", "we deploy on [-Tuesday-][+Thursday+]"),
        ("one two", "one two three", "one two[+ three+]"),
        ("the red fox", "the slow green fox", "the [-red-][+slow green+] fox"),
        ("a b c d", "a x y d", "a [-b c-][+x y+] d"),
        ("naïve café", "naive café", "[-naïve-][+naive+] café"),
        ("first\nsecond\n", "first\n\nsecond\n", "first\n[+\n+]second\n"),
        ("<b>&amp;</b>", "<i>&amp;</i>", "<[-b-][+i+]>&amp;</[-b-][+i+]>"),
    ],
)
def test_changed_words_are_shown_between_the_others(old: str, new: str, expected: str):
    assert shown(word_diff(old, new)) == expected


@pytest.mark.parametrize("seed", range(60))
def test_both_texts_can_be_read_from_a_difference(seed: int):
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choice(["a", "bb", " ", "\n", ".", "ü", "日"]) for _ in range(chance.randrange(40)))

    old = text()
    new = text() if seed % 2 else old.replace(chance.choice("abü\n"), chance.choice(["x", "", "zz "]))
    pieces = word_diff(old, new)
    if old != new:
        assert (side(pieces, "removed"), side(pieces, "added")) == (old, new)


def test_a_small_change_of_a_long_text_shows_little_of_it():
    lines = [f"line {number} of a long file\n" for number in range(20_000)]
    old = "".join(lines)
    lines[10_000] = "another line\n"
    lines[15_000:15_001] = []
    pieces = word_diff(old, "".join(lines))
    assert sum(len(piece.text) for piece in pieces) < 2_000
    assert pieces[0].kind == pieces[-1].kind == "left out"
    words = shown(pieces)
    assert "another" in words
    assert sum(len(piece.text) + piece.count for piece in pieces if piece.kind != "added") == len(old)


def test_a_long_replacement_is_shown_without_its_middle():
    pieces = word_diff("a" * 300_000, "b" * 300_000)
    assert [piece.kind for piece in pieces] == ["removed", "left out", "removed", "added", "left out", "added"]
    assert sum(len(piece.text) for piece in pieces) == 2 * LONGEST_PIECE
    many = word_diff(
        "\n".join(f"old {n} {'x' * 500}" for n in range(300)), "\n".join(f"new {n} {'y' * 500}" for n in range(300))
    )
    assert sum(len(piece.text) for piece in many) <= MOST_SHOWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a " * 90_000, "b " * 90_000),
        ("a b " * 900, "b a " * 900),
        ("".join(f"{n} " for n in range(1_900)), "".join(f"{n} " for n in range(1_900, 0, -1))),
        ("x\n" * 9_000, "y\nx\n" * 4_000),
        ("ab" * 40_000, "ba" * 40_000),
        ("\n" * 90_000, " " * 90_000),
        ("." * 1_900 + "a", "," * 1_900 + "b"),
    ],
    ids=range(7),
)
@pytest.mark.promise("page-diff-bounded")
def test_no_pair_of_texts_takes_more_than_its_effort(old: str, new: str):
    effort = Effort()
    start = time.process_time()
    pieces = word_diff(old, new, effort)
    assert time.process_time() - start < 1.0  # about 0.05 s on an idle machine
    assert pieces
    spent = Effort(-1)
    assert word_diff("one two three four", "one 2 three 4", spent) == [
        Piece("same", "one "),
        Piece("removed", "two three four"),
        Piece("added", "2 three 4"),
    ]
