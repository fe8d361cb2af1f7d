"""`commonplace keys`: a key is shown once, opens what the words say, and is refused once it is revoked."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

import commonplace
from commonplace.cli.service_commands import ACTIONS
from commonplace.server.http.api_keys import Key, Keys, Rate, system_time
from commonplace.space import rules


def kept(book_file: Any) -> list[Key]:
    with commonplace.open(book_file, background=False) as book:
        return [key for key, _ in Keys(book.store).list()]


@pytest.mark.promise("service-keys-command")
def test_a_key_is_made_with_all_that_the_words_say(run, book_file):
    made = run(
        *shlex.split("keys create support --namespace org/{org} --claim org=acme --below --actions read,admin"),
        *shlex.split("--expires 90d --rate 100/m --max-entries 5 --max-bytes 6"),
    )
    assert (made.code, made.out.startswith("cp_"), made.out.count("\n")) == (0, True, 1)
    assert "shown this once" in made.err
    (key,) = kept(book_file)
    assert key.expires_at is not None
    assert abs(key.expires_at - system_time() - 90 * 86_400 * 1_000_000) < 60_000_000
    assert key == Key(
        "support",
        ("org", "acme"),
        "below",
        frozenset(("read", "admin")),
        key.expires_at,
        Rate(100, 60),
        5,
        6,
        key.created_at,
    )
    with commonplace.open(book_file, background=False) as book:
        assert Keys(book.store).check(made.out.strip()) == key


def test_a_plain_key_reads_writes_and_deletes_in_a_namespace_of_its_name(run, book_file):
    run("keys", "create", "laptop")
    (key,) = kept(book_file)
    assert (key.namespace, key.reach, key.actions) == (("user", "laptop"), "own", {"read", "write", "delete"})


@pytest.mark.promise("service-keys-command")
def test_the_list_tells_everything_but_the_secret(run):
    text = run("keys", "create", "laptop", "--namespace", "user/u-1").out.strip()
    run("keys", "create", "all", "--everything", "--actions", "read")
    run("keys", "revoke", "laptop")
    listed = run("keys", "list")
    assert "user/u-1: read, write, delete" in listed.out
    assert "everything (its own: user/all): read" in listed.out
    assert "revoked" in listed.out
    assert text.rpartition("_")[2] not in listed.out
    documents = run("keys", "list", "--json").json
    assert [(one["name"], one["reach"], one["last_used_at"]) for one in documents] == [
        ("laptop", "own", None),
        ("all", "all", None),
    ]
    assert text.rpartition("_")[2] not in str(documents)


def test_a_key_that_was_kept_with_an_expiry_past_all_dates_is_listed_and_revoked(run, book_file):
    run("keys", "create", "robot", "--expires", "90d")
    with commonplace.open(book_file, background=False) as book:
        ((id, row),) = book.store.system_list("keys").items()
        book.store.system_put("keys", id, {**row, "expires_at": 10**18})
    assert "good until" in run("keys", "list").out
    assert run("keys", "list", "--json").json[0]["expires_at"].startswith("9999-")
    assert run("keys", "revoke", "robot", "--json").json["revoked_at"] is not None


def test_a_forgotten_key_leaves_the_list(run, book_file):
    run("keys", "create", "laptop")
    assert run("keys", "revoke", "laptop", "--forget").code == 0
    assert kept(book_file) == []
    assert run("keys", "revoke", "laptop").code == 3


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("keys create", 2, "name the key"),
        ("keys revoke", 2, "name the key"),
        ("keys create x --namespace user/{user_id}", 2, "--claim user_id=VALUE"),
        ("keys create x --namespace {org}/{user}", 2, "--claim org=VALUE --claim user=VALUE"),
        ("keys create x --claim org=acme", 2, "user/x has no {org} to fill"),
        ("keys create x --namespace org/{org} --claim org=acme --claim user=u", 2, "has no {user} to fill"),
        ("keys create x --forget", 2, "remove --forget; it is only for `keys revoke`"),
        ("keys create x --namespace user/{user_id} --claim user_id=a/b", 6, 'must not contain "/"'),
        ("keys create x --namespace user/u-{id} --claim id=1", 6, "a placeholder is a whole label"),
        ("keys create x --claim nonsense", 2, "is not a claim"),
        ("keys create x --actions fly", 2, "is not a list of actions"),
        ("keys create x --actions ,", 2, "is not a list of actions"),
        ("keys create x --rate fast", 2, "is not a rate"),
        ("keys create x --expires never", 2, "is not a duration"),
        ("keys create x --expires 9999999d", 2, "is too long"),
        (f"keys create x --expires {'9' * 400}", 2, "is too long"),
        ("keys create x --max-bytes 0", 2, "above 0"),
        ("keys create x --below --everything", 2, "not allowed with"),
        ("keys create a/b --namespace user/x", 2, "is not a valid name for a key"),
        ("keys lose x", 2, "invalid choice"),
    ],
)
def test_a_wrong_word_is_told_and_makes_no_key(run, book_file, words, code, told):
    done = run(*words.split())
    assert (done.code, done.out) == (code, "")
    assert told in done.err
    assert not book_file.exists() or kept(book_file) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("keys list extra", "lists all keys; remove the name"),
        ("keys list --below --rate 5/m", "remove --below, --rate; it is only for `keys create`"),
        ("keys list --forget", "remove --forget; it is only for `keys revoke`"),
        ("keys revoke laptop --max-bytes 5", "remove --max-bytes; it is only for `keys create`"),
    ],
)
def test_what_would_do_nothing_is_refused(run, book_file, words, told):
    run("keys", "create", "laptop")
    refused = run(*words.split())
    assert (refused.code, refused.out, told in refused.err) == (2, "", True)
    assert [key.revoked_at for key in kept(book_file)] == [None]


def test_a_name_is_used_once(run):
    assert run("keys", "create", "laptop").code == 0
    again = run("keys", "create", "laptop", "--db", "book.db")
    assert (again.code, again.out) == (4, "")
    assert again.err.endswith("or remove that one: commonplace --db book.db keys revoke laptop --forget\n")


def test_the_actions_that_the_command_knows_are_those_of_the_rules():
    assert ACTIONS == rules.ACTIONS
