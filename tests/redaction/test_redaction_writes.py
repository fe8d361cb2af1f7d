"""Redaction holds below every face: whatever way something is written, the secret is nowhere in the book."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import ConfigurationError, InvalidInput, Limits, Space
from commonplace.entry import Draft
from commonplace.redaction import Redactor, Rule, redactor
from commonplace.settings import Settings, open_from_settings
from commonplace.space.rules import Rules
from commonplace.tools import ClaudeMemoryTool, ToolAnswer

TOKEN = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
MASK = "[redacted:github_token]"
NOTE: dict[str, Any] = {"type": "note", "source": "s", "confidence": 0.5}
OpenBook = Callable[..., commonplace.Book]


@pytest.fixture
def masking(open_book: OpenBook) -> Space:
    return open_book(redaction=Redactor("mask")).space("user", "u1")


@pytest.fixture
def rejecting(open_book: OpenBook) -> Space:
    space = open_book(redaction=Redactor("reject")).space("user", "u1")
    space.files.write("/a", "text")
    space.records.create(**NOTE, content="c", id="r")
    space.threads.create(id="t")
    space.threads.add("t", [{"id": "m", "role": "user", "content": "hello"}])
    return space


WRITES: dict[str, Callable[[Space], object]] = {
    "files.write": lambda space: space.files.write("/b", f"x {TOKEN}"),
    "files.append": lambda space: space.files.append("/a", TOKEN),
    "files.replace": lambda space: space.files.replace("/a", "text", TOKEN),
    "files.insert": lambda space: space.files.insert("/a", 0, TOKEN),
    "records.create": lambda space: space.records.create(**NOTE, content={"deep": [{"er": TOKEN}]}),
    "records.create source": lambda space: space.records.create(**{**NOTE, "source": TOKEN}, content="c"),
    "records.update": lambda space: space.records.update("r", content=TOKEN),
    "threads.create": lambda space: space.threads.create(TOKEN),
    "threads.create metadata": lambda space: space.threads.create(metadata={"k": {TOKEN: 1}}),
    "threads.update": lambda space: space.threads.update("t", title=TOKEN),
    "threads.add": lambda space: space.threads.add(
        "t", [{"role": "user", "content": [{"type": "text", "text": TOKEN}]}]
    ),
    "threads.update_message": lambda space: space.threads.update_message("m", content=TOKEN),
    "working.write": lambda space: space.threads.working.write({"facts": [TOKEN]}),
}
NAMED: dict[str, Callable[[Space], object]] = {
    "files.write": lambda space: space.files.write(f"/notes/{TOKEN}", "x"),
    "files.write below": lambda space: space.files.write(f"/{TOKEN}/x", "x"),
    "files.make_directory": lambda space: space.files.make_directory(f"/{TOKEN}"),
    "files.move": lambda space: space.files.move("/a", f"/{TOKEN}"),
    "records.create": lambda space: space.records.create(**NOTE, content="c2", id=TOKEN),
    "records.create type": lambda space: space.records.create(**{**NOTE, "type": TOKEN}, content="c2"),
    "threads.create": lambda space: space.threads.create(id=TOKEN),
    "threads.create resource": lambda space: space.threads.create(resource=TOKEN),
    "threads.add": lambda space: space.threads.add("t", [{"id": TOKEN, "role": "user", "content": "x"}]),
}


@pytest.mark.promise("redaction-every-write")
@pytest.mark.parametrize("name", WRITES)
def test_a_masked_secret_is_nowhere_in_the_file(open_book: OpenBook, tmp_path: Path, name: str) -> None:
    book = open_book(redaction=Redactor("mask"))
    space = book.space("user", "u1")
    space.files.write("/a", "text")
    space.records.create(**NOTE, content="c", id="r")
    space.threads.create(id="t")
    space.threads.add("t", [{"id": "m", "role": "user", "content": "hello"}])
    WRITES[name](space)
    book.close()
    written = b"".join(path.read_bytes() for path in tmp_path.glob("book.db*"))
    assert MASK.encode() in written
    assert TOKEN.encode() not in written
    assert TOKEN[4:].lower().encode() not in written.lower()


@pytest.mark.promise("redaction-reject")
@pytest.mark.parametrize("name", WRITES)
def test_a_rejected_write_changes_nothing_and_does_not_tell_the_secret(rejecting: Space, name: str) -> None:
    before = rejecting.stats()
    with pytest.raises(InvalidInput, match="github_token") as caught:
        WRITES[name](rejecting)
    assert TOKEN not in str(caught.value)
    assert rejecting.stats() == before


@pytest.mark.promise("redaction-names")
@pytest.mark.parametrize("mode", ["mask", "reject"])
@pytest.mark.parametrize("name", NAMED)
def test_a_name_cannot_be_masked_and_is_refused(rejecting: Space, open_book: OpenBook, mode: Any, name: str) -> None:
    space = open_book(redaction=Redactor(mode)).space("user", "u1")
    before = space.stats()
    with pytest.raises(InvalidInput, match="a name cannot be masked, so choose another one") as caught:
        NAMED[name](space)
    assert TOKEN not in str(caught.value)
    assert space.stats() == before


def test_the_place_is_told_without_the_secret() -> None:
    redactor = Redactor("reject", kinds=["all"])
    value = {"people": [{"name": "Ann"}, {"mails": {"a@example.org": "x"}}]}
    with pytest.raises(InvalidInput) as caught:
        redactor.screen(Draft("record", "r", value))
    assert str(caught.value) == (
        "people.1.mails.[redacted:email] contains what looks like a secret or personal data (email), from character 1 "
        "on; nothing was saved; leave it out"
    )


@pytest.mark.promise("redaction-nested")
def test_masks_stand_everywhere_in_nested_json_names_of_fields_too(masking: Space) -> None:
    content = {
        "list": ["a", f"b {TOKEN} c", {"deeper": (TOKEN, 1, None, True, 2.5)}],
        TOKEN: {"under": "x"},
        f"also {TOKEN}": 1,
        "password": "swordfish",
        "database": {"pwd": 12345678, "user": "app"},
    }
    record = masking.records.create(**NOTE, content=content)
    assert record.content == {
        "list": ["a", f"b {MASK} c", {"deeper": [MASK, 1, None, True, 2.5]}],
        MASK: {"under": "x"},
        f"also {MASK}": 1,
        "password": "[redacted:password]",
        "database": {"pwd": "[redacted:password]", "user": "app"},
    }
    [hit] = masking.search("redacted password").hits
    assert hit.entry.text.splitlines() == [
        *("a", f"b {MASK} c", MASK, "1", "2.5", "x", "1", "[redacted:password]", "[redacted:password]", "app"),
    ]


def test_two_names_of_fields_that_become_one_stay_two() -> None:
    draft = Draft("record", "r", {"a@example.org": 1, "b@example.org": 2, "[redacted:email]": 3})
    screened = Redactor(kinds=["email"]).screen(draft)
    assert screened.value == {"[redacted:email]#2": 1, "[redacted:email]#3": 2, "[redacted:email]": 3}


def test_many_secrets_by_the_names_of_their_fields_are_out_of_the_text_as_well() -> None:
    value = [{"password": f"sword{number}fish"} for number in range(500)]
    draft = Draft("record", "r", value, text="\n".join(one["password"] for one in value))
    screened = Redactor().screen(draft)
    assert screened.value == [{"password": "[redacted:password]"}] * 500
    assert screened.text == "[redacted:password]"


@pytest.mark.promise("redaction-same-draft")
def test_a_draft_without_secrets_is_given_back_itself() -> None:
    draft = Draft(
        "record", "r", {"a": ["text", {"b": (1, 2.5, None)}]}, text="text", heading="h", attributes={"tags": ["x"]}
    )
    assert Redactor(kinds=["all"]).screen(draft) is draft


def test_what_was_masked_once_is_left_alone_afterwards() -> None:
    redactor = Redactor(kinds=["all"])
    once = redactor.screen(
        Draft("record", "r", {"password": "swordfish", "x": f"token={TOKEN} password=abcdef a@example.org"})
    )
    assert redactor.screen(once) is once


@pytest.mark.promise("redaction-record-hash")
def test_a_records_hash_tells_nothing_of_what_was_masked(open_book: OpenBook) -> None:
    space = open_book(redaction=Redactor("mask", kinds=["us_ssn"])).space("user", "u1")
    first = space.records.create(**NOTE, content="123-45-6789")
    again = space.records.create(**NOTE, content="123-45-6789")
    other = space.records.create(**NOTE, content="987-65-4321".replace("987", "321"))
    plain = open_book(":memory:").space("user", "u1").records.create(**NOTE, content="[redacted:us_ssn]")
    assert first.id == again.id == other.id
    assert first.hash == plain.hash


def test_saving_the_same_message_again_changes_nothing(masking: Space) -> None:
    masking.threads.create(id="t")
    message = {"id": "m", "role": "user", "content": f"my token is {TOKEN}"}
    first = masking.threads.add("t", [message])
    assert masking.threads.add("t", [message]) == first
    assert first[0].content == f"my token is {MASK}"


def test_a_files_size_and_lines_are_those_of_what_is_kept(masking: Space) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nabc\ndef\n-----END PRIVATE KEY-----"
    info = masking.files.write("/a", f"one\n{key}\ntwo\n")
    assert masking.files.read("/a") == "one\n[redacted:private_key]\ntwo\n"
    assert (info.size, info.lines) == (len("one\n[redacted:private_key]\ntwo\n"), 3)
    assert masking.files.list("/") == [info]


@pytest.mark.parametrize(
    ("wording", "shown"),
    [
        ("seed", f"token: {MASK}"),
        (
            "anthropic",
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            f"     1\ttoken: {MASK}",
        ),
    ],
)
def test_claudes_tool_answers_with_what_is_kept(masking: Space, wording: Any, shown: str) -> None:
    masking.files.write("/a", "token: X")
    edit = {"command": "str_replace", "path": "/memories/a", "old_str": "X", "new_str": TOKEN}
    assert ClaudeMemoryTool(masking, wording).call(edit) == ToolAnswer(shown)
    assert masking.files.read("/a") == f"token: {MASK}"


def test_claudes_tool_refuses_an_edit_that_a_mask_makes_too_long(open_book: OpenBook) -> None:
    book = open_book(redaction=Redactor("mask", kinds=["email"]), limits=Limits(file_bytes=20))
    space = book.space("user", "u1")
    space.files.write("/a", "mail: X")
    for edit in (
        {"command": "str_replace", "path": "/memories/a", "old_str": "X", "new_str": "a@b.io"},
        {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "a@b.io"},
        {"command": "create", "path": "/memories/b", "content": "mail: a@b.io"},
    ):
        answer = ClaudeMemoryTool(space).call(edit)
        assert answer.is_error
        assert answer.text.endswith("bytes; at most 20 are allowed")
    assert [info.path for info in space.files.walk()] == ["/a"]
    assert space.files.read("/a") == "mail: X"


def test_what_is_restored_or_undone_is_screened_too(open_book: OpenBook) -> None:
    before = open_book().space("user", "u1")
    before.files.write("/a", TOKEN)
    commit = before.files.delete("/a").commit
    assert commit is not None
    after = open_book(redaction=Redactor("mask")).space("user", "u1")
    after.undo(commit)
    assert after.files.read("/a") == MASK


def test_a_message_time_of_many_digits_is_no_card_number(open_book: OpenBook) -> None:
    space = open_book(redaction=Redactor("reject", kinds=["all"])).space("user", "u1")
    space.threads.create(id="4111111111111111")
    for number in range(200):
        space.threads.add("4111111111111111", [{"role": "user", "content": f"message {number}"}])
    assert len(space.threads.messages("4111111111111111", last=1_000).messages) == 200


def test_a_callers_own_screen_comes_after_the_books(open_book: OpenBook) -> None:
    seen: list[object] = []

    def own(draft: Draft) -> Draft:
        seen.append(draft.value)
        return replace(draft, value=f"{draft.value}!") if draft.kind == "file" else draft

    book = open_book(redaction=Redactor("mask"))
    space = book.space("user", "u1", rules=Rules(screen=own))
    space.files.write("/a", TOKEN)
    assert seen == [MASK]
    assert space.files.read("/a") == f"{MASK}!"
    assert space.files.stat("/a").size == len(MASK) + 1


def test_a_setting_that_names_no_kind_is_told_with_its_variable() -> None:
    settings = Settings.from_environment({"COMMONPLACE_REDACT": "mask", "COMMONPLACE_REDACT_KINDS": "emails"})
    with pytest.raises(ConfigurationError, match=r"COMMONPLACE_REDACT_KINDS .*unknown kind of redaction 'emails'"):
        settings.redaction()


def test_ids_that_programs_give_out_are_never_taken_for_somebodys_numbers() -> None:
    """The first test of this asserted nothing, so ids that look like card numbers could have been refused unseen."""
    redactor = Redactor("reject", kinds=["all"])
    for id in ("4111111111111111", "12345678-4111-4111-8111-111111111111", "a1b2c3d4-e5f6-4111-8111-11111111a1b2"):
        draft = Draft("thread", id, "x", attributes={"resourceId": id}, identity=id)
        assert redactor.screen(draft) is draft
        with pytest.raises(InvalidInput, match="the id contains what looks like a secret"):
            redactor.screen(replace(draft, key="mail-ann@example.org"))


def test_a_rule_for_numbers_takes_no_hash_and_no_size_for_one_but_refuses_ids_that_a_caller_chose(
    open_book: OpenBook,
) -> None:
    rules = [Rule("digits", r"\d{2}"), Rule("code", "[0-9a-f]{6}")]
    space = open_book(redaction=Redactor("reject", rules=rules)).space("user", "u1")
    for word in ("tea", "milk", "bread"):
        space.records.create(**NOTE, content=word)
    space.files.write("/a", "text of thirty letters or more")
    assert space.files.stat("/a").size == 30
    space.threads.create(id="t")
    space.threads.add("t", [{"role": "user", "content": "tea"}])
    for call in (
        lambda: space.records.create(**NOTE, content="jam", id="r-12"),
        lambda: space.threads.add("t", [{"id": "m-12", "role": "user", "content": "jam"}]),
    ):
        with pytest.raises(InvalidInput, match=r"the id contains what looks like a secret \(digits\)"):
            call()


@pytest.mark.promise("redaction-settings")
def test_settings_switch_it_on_for_every_face(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\nname = 'employee'\npattern = 'EMP-\\d{6}'\n")
    environ = {"DATABASE_URL": str(tmp_path / "book.db"), "COMMONPLACE_REDACT": "mask"}
    own = {"COMMONPLACE_REDACT_KINDS": "email,github_token", "COMMONPLACE_REDACT_RULES": str(rules)}
    with open_from_settings(Settings.from_environment({**environ, **own}), background=False) as book:
        book.space("user", "u1").files.write("/a", f"EMP-123456 ann@example.org {TOKEN} 10.0.0.1")
        assert book.space("user", "u1").files.read("/a") == f"[redacted:employee] [redacted:email] {MASK} 10.0.0.1"
    with open_from_settings(
        Settings.from_environment({**environ, "COMMONPLACE_REDACT": "off"}), background=False
    ) as book:
        book.space("user", "u1").files.write("/b", TOKEN)
        assert book.space("user", "u1").files.read("/b") == TOKEN


def test_a_rule_that_finds_each_letter_refuses_long_texts(open_book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask for each letter of a file took gigabytes before the file was refused."""
    monkeypatch.setattr(redactor, "MAX_FINDS", 1_000)
    space = open_book(redaction=Redactor("mask", rules=[Rule("letter", "a")])).space("user", "u1")
    space.files.write("/f", "a" * 1_000)
    with pytest.raises(InvalidInput, match="redaction finds more than 1,000 places in one text, such as letter"):
        space.files.write("/f", "a" * 1_001)
