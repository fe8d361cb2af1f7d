"""Our WordPiece against the `tokenizers` package: the same ids, for any text."""

from __future__ import annotations

import json
import string
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from commonplace.embedding.onnx import WordPiece
from commonplace.errors import ConfigurationError
from doubles import rounds

MAX_TOKENS = 24
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Every ASCII sign and piece, and letters of other scripts: so that most texts have known and unknown words.
LETTERS = string.ascii_lowercase + string.digits + "éßждиαβγאבجدकखกขあいカ한中日文字語𠀀ﬁı"
PIECES = [*string.punctuation, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
WORDS = [
    "the",
    "embed",
    "##ding",
    "##ed",
    "deploy",
    "##ment",
    "привет",
    "ναι",
    "日本",
    "un",
    "##aff",
    "##able",
]
VOCABULARY = {token: number for number, token in enumerate([*SPECIAL, *dict.fromkeys(PIECES + WORDS)])}

HAND_WRITTEN = [
    "",
    " \t\r\n ",
    "The deployment's embedding: un-affable, unaffable!",
    "Crème brûlée à l'Élysée, naïve façade",
    "Straße, GROSSE STRASSE, İstanbul, ΟΔΟΣ ναι",
    "Привет, мир! Ёлка й",
    "日本語の文章。中文字符，混合English text 한국어",
    "שָׁלוֹם عَرَبِيّ हिन्दी ภาษาไทย",
    "emoji 👩‍👩‍👧‍👦 👍🏽 ☃️ and ﬁ ligatures",
    "[CLS] control [SEP] words [MASK] in a text [UNK]",
    "zero\u200bwidth soft\u00adhyphen bom\ufeff nul\x00 \ufffd replaced",
    "a" * 100,
    "a" * 101,
    "a " * 50,
    "word" * 10_000 + " the",
    "the " * 10_000,
    "𝕬𝖇𝖈 ½ ² ① Ⅷ ｆｕｌｌ　ｗｉｄｔｈ",
    "e\u0301\u0327 \u0301alone d\u0307\u0323",
]


@cache
def reference(max_tokens: int = MAX_TOKENS) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", VOCABULARY["[SEP]"]), ("[CLS]", VOCABULARY["[CLS]"]))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


OURS = WordPiece(VOCABULARY, max_tokens=MAX_TOKENS)


def cut_alike(text: str) -> bool:
    """Whether both cut the text into the same words: ours must find the reference's in a vocabulary."""
    normalized = normalizers.BertNormalizer().normalize_str(text)
    words = [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalized)]
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    return WordPiece(vocabulary, max_tokens=10_000).encode(text) == [
        1,
        *(vocabulary[word] for word in words),
        2,
    ]


@cache
def newer_than_the_reference() -> frozenset[str]:
    """The characters that the two cut differently: Python's Unicode tables are newer than the reference's."""
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    differing: list[str] = []
    for start in range(0, len(characters), 512):
        block = characters[start : start + 512]
        if not cut_alike(" ".join(f"a{character}b" for character in block)):
            differing += [character for character in block if not cut_alike(f"a{character}b")]
    return frozenset(differing)


def test_every_character_is_cut_as_the_reference_cuts_it_but_for_those_newer_than_its_tables() -> None:
    differing = newer_than_the_reference()
    assert len(differing) < 800
    # Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, signs; then CJK, kana, Hangul and emoji.
    for first, last in [(0x0, 0x61C), (0x61E, 0x7FC), (0x900, 0x9FC), (0xE00, 0xE7F), (0x2000, 0x2BFF)]:
        assert not [character for character in differing if first <= ord(character) <= last]
    for first, last in [(0x3000, 0xA4CF), (0xAC00, 0xD7FF), (0xF900, 0xFFFF), (0x1F000, 0x323AF)]:
        assert not [character for character in differing if first <= ord(character) <= last]


@pytest.mark.parametrize("text", HAND_WRITTEN)
def test_a_written_text_has_the_reference_ids(text: str) -> None:
    assert OURS.encode(text) == reference().encode(text).ids


@settings(max_examples=rounds(1500), deadline=None)
@given(st.data())
def test_any_text_has_the_reference_ids(data: st.DataObject) -> None:
    anything = st.characters(exclude_categories=["Cs"]).filter(
        lambda character: character not in newer_than_the_reference()
    )
    likely = st.sampled_from([*LETTERS, *LETTERS.upper(), *string.whitespace, *string.punctuation, *WORDS])
    text = "".join(data.draw(st.lists(anything | likely, max_size=60)))
    assert OURS.encode(text) == reference().encode(text).ids


@settings(max_examples=rounds(500), deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "the", "Deployed", "?", "日本", "x1"]), max_size=40), st.integers(2, 40))
def test_a_text_is_cut_at_the_reference_place(words: list[str], max_tokens: int) -> None:
    text = " ".join(words).replace("##", "")
    assert WordPiece(VOCABULARY, max_tokens=max_tokens).encode(text) == reference(max_tokens).encode(text).ids


def test_a_lone_surrogate_is_dropped() -> None:
    assert OURS.encode("the\ud800 deploy") == OURS.encode("the deploy")


def test_both_file_forms_give_the_same_ids_whatever_the_line_ends(tmp_path: Path) -> None:
    (tmp_path / "lf.txt").write_bytes("\n".join(VOCABULARY).encode() + b"\n")
    (tmp_path / "crlf.txt").write_bytes("\r\n".join(VOCABULARY).encode() + b"\r\n")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": VOCABULARY}}))
    for name in ("lf.txt", "crlf.txt", "tokenizer.json"):
        read = WordPiece.from_file(tmp_path / name, max_tokens=MAX_TOKENS)
        assert [read.encode(text) for text in HAND_WRITTEN] == [OURS.encode(text) for text in HAND_WRITTEN]


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"vocab": [["a", 1.0]]}}', '{"model": {"vocab": {}}}'])
def test_a_file_that_is_no_wordpiece_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigurationError):
        WordPiece.from_file(tmp_path / "tokenizer.json", max_tokens=MAX_TOKENS)
