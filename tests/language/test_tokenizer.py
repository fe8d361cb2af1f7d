"""Whatever a person types to find a text, in whichever script or spelling, meets the terms of that text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.language.passages import passage
from commonplace.language.tokenizer import (
    LONGEST_TERM,
    STEM,
    fold,
    index_terms,
    listed_function_words,
    query_terms,
    stem,
    stem_terms,
    terms_of_letters,
)

any_text = st.text(st.characters(exclude_categories=["Cs"]))
PIECES = "getUserById _ - . / @ :: 's ’ 1,000 C++ # 漢字 ไทย हिन्दी é 👍🏽 🇫🇷 İ ß ﷺ the"
tricky_text = st.lists(
    st.sampled_from([*PIECES.split(), "e\u0301", "\u0301", "\u200d", "\x00", " ", "\n", "x" * 70])
).map("".join)

TERMS = {
    "getUserById": {"getuserbyid", "get", "user", "by", "id"},
    "HTTPServer": {"httpserver", "http", "server"},
    "userIDs": {"userid", "user", "id"},
    "APIs": {"api"},
    "ERR_2048": {"err_2048", "err2048", "err", "2048"},
    "ERR2048": {"err2048", "err", "2048"},
    "snake_case": {"snake_case", "snakecas", "snake", "case"},
    "kebab-case": {"kebab-case", "kebabcas", "kebab", "case"},
    "__init__": {"init"},
    "a.b.c": {"a.b.c", "a", "b", "c"},
    "std::vector": {"std::vector", "std", "vector"},
    "user@example.com": {"user@example.com", "user", "example.com", "exampl", "com"},
    "/path/to/file.py": {"path/to/file.py", "path", "to", "file.py", "file", "py"},
    r"C:\notes\plan.md": {r"c:\notes\plan.md", "c", "note", "plan.md", "plan", "md"},
    "https://example.com/docs": {"https://example.com/docs", "https", "example.com", "exampl", "com", "doc"},
    "C++": {"c++", "c"},
    "C#": {"c#", "c"},
    "v1.2.3": {"v1.2.3", "v1", "v", "1", "2", "3"},
    "#tag": {"#tag", "tag"},
    "project:x": {"project:x", "project", "x"},
    "3.14": {"3.14", "3", "14"},
    "2048": {"2048"},
    "$1,250,000": {"1250000"},
    "2025-09-17": {"2025-09-17", "20250917", "2025", "09", "17"},
    "10:30": {"10:30", "10", "30"},
    "AT&T": {"at&t", "at", "t"},
    "Caroline's": {"carolin"},
    "O’Brien": {"obrien", "brien"},
    "don't": {"dont", "don"},
    "café": {"cafe"},
    "cafe\u0301": {"cafe"},
    "Ångström": {"angstrom"},
    "Straße": {"strass"},
    "Łódź": {"lodz"},
    "ﬁle": {"file"},
    "ｗｉｄｅ": {"wide"},
    "Ёлка": {"елка"},
    "ΣΊΣΥΦΟΣ": {"σισυφοσ"},
    "हिन्दी": {"हिन्दी"},
    "தமிழ்": {"தமிழ்"},
    "שָׁלוֹם": {"שלום"},
    "المَدرَسة": {"المدرسة"},
    "東京都": {"東", "京", "都", "東京", "京都"},
    "京": {"京"},
    "ｶﾞ": {"ガ"},
    "한국어": {"한", "국", "어", "한국", "국어"},
    "iPhone用": {"iphon", "i", "phone", "用"},
    "ที่นี่": {"ที่", "นี่", "ที่นี่"},
    "👍🏽": {"👍"},
    "❤️": {"❤"},
    "🇫🇷🇩🇪": {"🇫🇷", "🇩🇪"},
    "done✅": {"done", "✅"},
}


@pytest.mark.parametrize("text", TERMS)
def test_a_text_is_stored_under_its_whole_and_its_parts(text: str) -> None:
    assert set(index_terms(text)) == TERMS[text]


def test_terms_are_counted() -> None:
    terms = index_terms("Deploy the API. Deploying APIs: deploys!")
    assert terms == {"deploy": 3, "the": 1, "api": 2}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("user id", "call getUserById first"),
        ("getuserbyid", "call getUserById first"),
        ("get_user_by_id", "call getUserById first"),
        ("wifi", "the Wi-Fi password"),
        ("wi-fi", "the wifi password"),
        ("getusers", "call getUsers first"),
        ("2048", "failed with ERR_2048"),
        ("file.py", "see /path/to/file.py"),
        ("example.com", "ask user@example.com"),
        ("1250000", "it cost $1,250,000"),
        ("september 17 2025", "on 2025-09-17"),
        ("東京", "私は東京に住んでいます"),
        ("京", "私は東京に住んでいます"),
        ("ภาษา", "ฉันพูดภาษาไทย"),
        ("naive café", "a naïve cafe\u0301"),
        ("running", "she runs daily"),
        ("👍", "great 👍🏿"),
    ],
)
def test_a_query_meets_the_text_it_means(query: str, text: str) -> None:
    assert query_terms(query).keys() & index_terms(text).keys()


def test_stop_words_are_asked_for_only_when_there_is_nothing_else() -> None:
    assert query_terms("What is the name of the dog?") == {"name": 1.0, "dog": 1.0}
    assert query_terms("To be, or not to be") == {"to": 1.0, "be": 1.0, "or": 1.0, "not": 1.0}


def test_a_compound_asks_for_itself_before_its_parts() -> None:
    assert query_terms("ERR_2048") == {"err_2048": 1.0, "err2048": 0.5, "err": 0.5, "2048": 0.5}
    assert query_terms("err ERR_2048") == {"err": 1.0, "err_2048": 1.0, "err2048": 0.5, "2048": 0.5}


def test_a_script_without_spaces_is_asked_for_in_pairs() -> None:
    assert query_terms("東京都") == {"東京": 1.0, "京都": 1.0}


@given(any_text | tricky_text)
def test_every_text_is_found_by_its_own_words(text: str) -> None:
    assert {term for term in query_terms(text) if not term.startswith(STEM)} <= index_terms(text).keys()


@given(any_text | tricky_text)
def test_a_term_is_short_and_visible(text: str) -> None:
    for term, count in index_terms(text).items():
        assert 0 < len(term) <= LONGEST_TERM
        assert count > 0
        assert not any(character.isspace() or unicodedata.category(character) == "Cc" for character in term)


@given(tricky_text, tricky_text)
def test_words_apart_are_counted_apart(one: str, other: str) -> None:
    together = index_terms(f"{one}\n{other}")
    first, second = index_terms(one), index_terms(other)
    assert together == {term: first.get(term, 0) + second.get(term, 0) for term in first.keys() | second.keys()}


@given(st.text(st.characters(max_codepoint=0x17F, exclude_categories=["Cs"])))
def test_accents_and_their_encoding_make_no_difference(text: str) -> None:
    assert index_terms(unicodedata.normalize("NFD", text)) == index_terms(unicodedata.normalize("NFC", text))


def test_a_lone_surrogate_is_no_part_of_a_term() -> None:
    assert index_terms("bad\ud800text") == {"bad": 1, "text": 1}


def test_a_word_longer_than_a_term_still_finds_itself() -> None:
    word = "QmFzZTY0" * 100
    assert query_terms(word) == {word.casefold()[:LONGEST_TERM]: 1.0}
    assert query_terms(word).keys() <= index_terms(f"token {word} end").keys()


@pytest.mark.parametrize("unit", ["a", "a_", "a.", "aA", "_", "1,000,", "漢", "\u0315\u0300", "😀", "🇫", "กิ", "a'"])
def test_a_hostile_megabyte_takes_seconds_at_most(unit: str) -> None:
    text = (unit * 1_000_000)[:1_000_000]
    began = time.process_time()
    index_terms(text)
    assert time.process_time() - began < 10  # quadratic work would take minutes


@given(any_text)
def test_folding_leaves_only_words_and_symbols_beyond_ascii(text: str) -> None:
    kinds = {unicodedata.category(character)[:2] for character in fold(text) if not character.isascii()}
    assert not kinds & {"Zs", "Zl", "Zp", "Cc", "Cf", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deploy deploys deployed deploying", "deploy"),
        ("connect connected connecting connection connections", "connect"),
        ("relational relate related", "relat"),
        ("hopping hopped hop", "hop"),
        ("hoping hoped hope", "hope"),
        ("flies fly", "fli"),
        ("generously generous", "generous"),
        ("generate generates generating", "generat"),
        ("lying lie lies", "lie"),
        ("skis", "ski"),
        ("news", "news"),
        ("happiness happy", "happi"),
        ("rationalization rationalize", "ration"),
        ("agreed agree", "agre"),
        ("by", "by"),
    ],
)
def test_forms_of_a_word_share_its_stem(words: str, expected: str) -> None:
    assert {stem(word) for word in words.split()} == {expected}


def stems(text: str) -> set[str]:
    return {term.removeprefix(STEM) for term in stem_terms(text, index_terms(text).keys())}


@pytest.mark.promise("languages-stems")
@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("Die Rechnungen der Stadtwerke liegen im Ordner.", "Wo ist die Rechnung?"),
        ("Les bibliothèques partagées sont nécessaires.", "Où est la bibliothèque partagée ?"),
        ("Las configuraciones del sistema están aquí.", "¿Dónde está la configuración?"),
        ("Le impostazioni sono nella cartella degli utenti.", "Qual è l'impostazione dell'utente?"),
        ("As configurações do usuário não são públicas.", "Qual é a configuração dos usuários?"),
        ("De rekeningen van het bedrijf zijn niet betaald.", "Waar is de rekening?"),
        ("Räkningarna från elbolaget är inte betalda.", "Var är räkningen?"),
        ("Dokumenty są w folderze użytkownika.", "Gdzie jest dokument użytkowników?"),
        ("Счета за электричество лежат в папке.", "Где счёт за электричество? Где папка?"),
        ("Τα έγγραφα του χρήστη είναι εδώ.", "Πού είναι το έγγραφο των χρηστών;"),
        ("Faturalar klasörde değil.", "Fatura nerede ve hangi klasör?"),
        ("الكتب في المكتبة", "كتاب المكتبات"),
    ],
)
def test_a_word_is_found_in_another_form_of_its_language(stored: str, asked: str) -> None:
    wanted = {term.removeprefix(STEM) for term in query_terms(asked) if term.startswith(STEM)}
    assert wanted & stems(stored)


@pytest.mark.promise("languages-english-unchanged")
@pytest.mark.parametrize(
    "text",
    [
        "How do I copy files?",
        "The van der Waals forces of the two atoms were measured in vivo.",
        "I flew to Los Angeles and to San Francisco with my brother.",
        "database migration",
        "The naïve café owner said that it is a façade.",
        "TGF-β and α-tocopherol are measured.",
    ],
)
def test_an_english_text_has_no_stems_of_other_languages(text: str) -> None:
    assert stems(text) == set()
    assert not any(term.startswith(STEM) for term in query_terms(text))


def test_function_words_of_the_language_of_a_query_are_not_looked_up() -> None:
    assert query_terms("Wo ist die Rechnung der Stadtwerke?").keys() == {
        "rechnung",
        "stadtwerk",
        STEM + "rechnung",
        STEM + "stadtwerk",
    }
    assert "где" not in query_terms("где ключи")


def test_the_listed_term_of_each_function_word_is_the_one_that_it_has_in_a_text() -> None:
    for words in listed_function_words().values():
        terms = {word: " ".join(index_terms(word)) for word in words}
        assert dict(words) == terms, "write these into function_words.txt"


def test_a_query_of_an_uncertain_language_keeps_all_its_words() -> None:
    assert query_terms("van der Waals")["der"] == 1.0


def test_stems_do_not_count_for_the_length_of_a_passage() -> None:
    text = "Die Rechnungen der Stadtwerke"
    assert passage(text, 0, len(text)).length == 4


@given(any_text | tricky_text)
def test_any_text_has_stems_that_are_terms(text: str) -> None:
    for term in stem_terms(text, index_terms(text).keys()):
        assert term[0] == STEM
        assert 2 <= len(term) <= LONGEST_TERM
        assert not any(character.isspace() for character in term)


@pytest.mark.parametrize("word", ["running", "Dies", "API", "getUser", "x", "I", "THE"])
def test_a_word_of_letters_has_the_terms_that_it_has_as_a_text(word: str) -> None:
    assert set(terms_of_letters(word)) == set(index_terms(word))
