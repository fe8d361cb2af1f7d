"""One rule for paths: no way up, in any encoding; every other name is legal and has one form."""

from __future__ import annotations

import unicodedata
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import commonplace
from commonplace import CommonplaceError, InvalidInput, InvalidPath, Limits, Space
from commonplace.space import names
from commonplace.space.names import key_of, normalise, parents, path_of

LIMITS = Limits()


@pytest.mark.promise("files-path-normalised")
@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("notes/today", "/notes/today"),
        ("/notes//today/", "/notes/today"),
        ("\\notes\\\\today", "/notes/today"),
        ("", "/"),
        ("///", "/"),
        ("/a..b/..c/d../...", "/a..b/..c/d../..."),
        ("/$HOME/~/*?<>|:\"'", "/$HOME/~/*?<>|:\"'"),
        ("/ü", "/ü"),
        ("/u\u0308", "/ü"),
        ("/100%", "/100%"),
        ("/%zz", "/%zz"),
        ("/a b", "/a b"),
        ("/日本/\U0001f600", "/日本/\U0001f600"),
    ],
)
def test_a_legal_path_has_one_form(path: str, normal: str) -> None:
    assert normalise(path, LIMITS) == normal


@pytest.mark.promise("files-no-traversal")
@pytest.mark.parametrize(
    "path",
    ["..", "/..", "/a/../b", "/a/..", "../a", "/./a", "/a/.", ".", "\\..\\a", "/a\\..\\b", "/%2e%2e/a", "/%2E%2e%2fa",
     "/a/%2e", "/%252e%252e/a", "/%25252e%25252e%25252fx", "/..%2fa", "/%2e%2e%5ca", "/a%2f..%2fb", "/．．/a", "/‥/a",
     "/․․/a", "/ .. /a", "/a/..\u00a0", "/%c2%a0..", "/\x00", "/a\x00b", "/%00", "/a%0ab", "/a\nb", "/\x7f", "/\u2028",
     "/\x85",      "/\ud800", "/ ", "/%20", "/a/ /b", "/．．／a", "/..／b", "/%EF%BC%8E%EF%BC%8E"],
)  # fmt: skip
def test_a_way_up_is_refused_in_every_encoding(space: Space, path: str) -> None:
    if path == "/%20":
        return  # a name of three characters
    with pytest.raises(InvalidInput):
        normalise(path, LIMITS)
    for call in (
        lambda: space.files.read(path),
        lambda: space.files.write(path, "x"),
        lambda: space.files.append(path, "x"),
        lambda: space.files.delete(path),
        lambda: space.files.move("/a", path),
        lambda: space.files.move(path, "/a"),
        lambda: space.files.list(path),
        lambda: space.files.make_directory(path),
        lambda: space.history("file", path),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert list(space.files.walk()) == []


dots = st.sampled_from(["..", ".", "．．", "․․", "‥", "．."])
slashes = st.sampled_from(["/", "\\", "//", "%2f", "%5C", "%2F"])


@st.composite
def ways_up(draw: Any) -> str:
    segment = draw(dots)
    for _ in range(draw(st.integers(0, 4))):
        segment = (
            quote(segment, safe="") if draw(st.booleans()) else "".join(f"%{byte:02x}" for byte in segment.encode())
        )
    for _ in range(draw(st.integers(0, 2))):
        segment = draw(st.sampled_from([segment, f" {segment}", f"{segment} "]))
    before = draw(st.sampled_from(["", "/", "/a/", "a\\", "/a%2f"]))
    after = draw(st.sampled_from(["", "/b", "%2fb", "\\b", "/"]))
    return before + segment + after


@pytest.mark.promise("files-no-traversal")
@given(ways_up())
def test_no_encoding_of_a_way_up_is_let_through(path: str) -> None:
    with pytest.raises(InvalidInput):
        normalise(path, LIMITS)


@given(st.text(max_size=40))
@example("/a%2f%2e%2e")
@example("%" * 30)
def test_any_text_is_refused_or_becomes_a_path_without_a_way_up(path: str) -> None:
    try:
        normal = normalise(path, LIMITS)
    except CommonplaceError:
        return
    assert normal.startswith("/")
    assert normal == "/" or not normal.endswith("/")
    assert "//" not in normal
    assert normalise(normal, LIMITS) == normal
    assert path_of(key_of(normal)) == normal
    decoded = normal
    for _ in range(12):
        for form in ("NFC", "NFKC"):
            segments = unicodedata.normalize(form, decoded).replace("\\", "/").split("/")
            assert not {"..", "."} & {segment.strip() for segment in segments}
        decoded = unquote(decoded)
    assert [parent for parent in parents(normal) if not normal.startswith(parent + "/")] == []


def test_a_path_is_bounded_in_bytes_segments_and_names(space: Space) -> None:
    space.files.write("/" + "/".join("x" * 50 for _ in range(20)), "fits")
    for path in ("/" + "/".join("x" for _ in range(21)), "/" + "x" * 256,
                 "/" + "/".join(["y" * 200] * 6), "/" + "ü" * 128,
                 "x" * 10_000_000):  # fmt: skip
        with pytest.raises(InvalidInput):
            space.files.write(path, "x")


@pytest.mark.parametrize("path", [None, 5, b"/a", ["a"], True])
def test_a_path_that_is_no_string_is_refused(space: Space, path: Any) -> None:
    with pytest.raises(InvalidInput):
        space.files.read(path)


def test_two_spellings_of_a_letter_are_one_file(space: Space) -> None:
    space.files.write("/caf\u00e9", "one")
    space.files.append("/cafe\u0301", "two")
    assert [info.path for info in space.files.walk()] == ["/café"]
    assert space.files.read("/café") == "one\ntwo"


@pytest.mark.promise("paths-visible-names")
@pytest.mark.parametrize(
    "name", ["a\u200bb", "\ufeffa", "a\u00adb", "a\u202eb", "a\u2060", "x\u200d", "\u3164", "a\U000e0041", "\u200c"]
)
def test_a_new_name_has_no_invisible_character(space: Space, name: str) -> None:
    """Two names that look the same could be two files: a zero-width space in one of them was taken."""
    space.files.write("/a", "x")
    for write in (
        lambda: space.files.write(f"/{name}", "x"),
        lambda: space.files.append(f"/d/{name}", "x"),
        lambda: space.files.write(f"/{name}/f", "x"),
        lambda: space.files.make_directory(f"/{name}"),
        lambda: space.files.move("/a", f"/{name}"),
        lambda: space.files.move("/a", f"/{name}/a"),
    ):
        with pytest.raises(InvalidPath, match=r"invisible character U\+[0-9A-F]{4,5}$"):
            write()
    for create in (
        lambda: space.threads.create(id=name),
        lambda: space.records.create(type="note", source="s", content="c", confidence=1, id=name),
    ):
        with pytest.raises(InvalidInput, match=r"invisible character|non-empty"):
            create()
    assert [info.path for info in space.files.walk()] == ["/a"]
    assert not space.files.exists(f"/{name}")


@pytest.mark.parametrize(
    "name", ["می\u200cخواهم", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "葛\U000e0100"]
)
def test_joiners_and_variants_belong_to_the_names_of_some_scripts(space: Space, name: str) -> None:
    space.files.write(f"/{name}", "x")
    assert space.files.read(f"/{name}") == "x"


def test_names_with_invisible_characters_that_are_there_stay_usable(
    book: commonplace.Book, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(names, "invisible_in", lambda name: None)
        space.files.write("/d\u200b/f\u200b", "one")
    space.files.append("/d\u200b/f\u200b", "two")
    space.files.write("/d\u200b/g", "new")
    space.files.move("/d\u200b/f\u200b", "/f\u200b")
    assert space.files.read("/f\u200b") == "one\ntwo"
    space.undo(space.files.delete("/").commit)
    assert [info.path for info in space.files.walk()] == ["/d\u200b", "/d\u200b/g", "/f\u200b"]
