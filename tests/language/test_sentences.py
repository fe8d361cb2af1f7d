"""A passage falls into sentences that together say all of it, each with the passage's label."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.passages import PIECE, pieces


def words(text: str) -> str:
    return "".join(text.split())


def test_short_sentences_stay_together_and_a_long_one_stays_whole() -> None:
    long = (
        "The ferry to the northern island leaves at six except on Sundays " + "and in the weeks after storms " * 2 + "."
    )
    assert len(long) > PIECE
    assert pieces(f"Yes. No! Maybe? {long} And back at noon.") == ["Yes. No! Maybe?", long, "And back at noon."]


def test_a_label_is_said_before_each_piece() -> None:
    first, second = "I moved to Lyon in May with my two cats. " * 2, "My sister keeps the dog and " * 4
    assert pieces(f"Ana Maria: {first}{second}") == [f"Ana Maria: {first.strip()}", f"Ana Maria: {second.strip()}"]


def test_lines_end_sentences_and_so_do_signs_of_other_scripts() -> None:
    line = "a line without a full stop that is quite long, as lines in lists and in logs often are"
    assert pieces(f"{line}\n{line}") == [line, line]
    japanese = "東京都に住んでいます" * 7
    assert pieces(f"{japanese}。{japanese}。") == [f"{japanese}。", f"{japanese}。"]


@given(st.text(st.sampled_from('ab .!?\n"。:'), max_size=600))
def test_nothing_is_lost_but_white_space_and_no_piece_is_empty(text: str) -> None:
    found = pieces(text)
    label = found[0][: found[0].index(": ") + 2] if found and all(": " in piece for piece in found) else ""
    if label and text.startswith(label):
        assert words(label + "".join(piece.removeprefix(label) for piece in found)) == words(text)
    else:
        assert words("".join(found)) == words(text)
    assert all(piece.strip() for piece in found)


@given(st.text(st.sampled_from("ab .!?\n"), max_size=2_000))
def test_there_are_never_many_pieces(text: str) -> None:
    assert len(pieces(text)) <= 2 * len(text) / PIECE + 1
