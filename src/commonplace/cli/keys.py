"""`keys`: who may call the service, with what, and until when."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.output import shown_time
from commonplace.cli.values import count, duration
from commonplace.errors import AlreadyExists, InvalidInput

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands
    from commonplace.server.http.api_keys import Key
    from commonplace.space.rules import Action

# Written out: the parser must not load the library for other commands. A test compares them with the rules'.
ACTIONS: tuple[Action, ...] = ("read", "write", "delete", "admin")


def register(commands: Commands) -> None:
    parser = commands.add(
        "keys",
        "Serve",
        "Make, list and revoke the keys of the service.",
        run,
        about=(
            "create NAME prints a new key, once: only its hash is kept. --namespace says whose memory it opens "
            "(default: user/NAME); a template such as user/{user_id} is filled with --claim user_id=u-1. list shows "
            "what each opens. revoke NAME refuses it from then on, within two seconds; with --forget it leaves the "
            "list as well, and a book without any key is open to its own computer again."
        ),
        examples="""\
  commonplace keys create laptop --namespace user/u-123
  commonplace keys create reader --namespace user/u-123 --actions read --expires 90d --rate 100/m
  commonplace keys create support --namespace org/acme --below
  commonplace keys list
  commonplace keys revoke laptop""",
    )
    parser.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    parser.add_argument("name", nargs="?", help="the key's name; history shows it with what the key writes")
    parser.add_argument(
        "--claim", metavar="NAME=VALUE", action="append", default=[], help="a value for the namespace's template"
    )
    reach = parser.add_mutually_exclusive_group()
    reach.add_argument("--below", action="store_true", help="it opens the namespaces below its own as well")
    reach.add_argument("--everything", action="store_true", help="it opens every namespace of the book")
    parser.add_argument(
        "--actions", metavar="LIST", type=_actions, help="read, write, delete, admin (default: read,write,delete)"
    )
    parser.add_argument("--expires", metavar="DURATION", type=duration, help="how long it is valid, such as 90d")
    parser.add_argument("--rate", metavar="N/UNIT", help="its rate limit, such as 100/m")
    parser.add_argument("--max-entries", metavar="N", type=count, help="entries that it may hold in all its namespaces")
    parser.add_argument("--max-bytes", metavar="N", type=count, help="bytes that it may hold there, history included")
    parser.add_argument("--forget", action="store_true", help="with revoke: remove the key from the list as well")


_FLAGS = {
    "create": ("claim", "below", "everything", "actions", "expires", "rate", "max_entries", "max_bytes"),
    "revoke": ("forget",),
}
"""The flags that only one action takes."""


def run(context: Context) -> int:
    arguments = context.arguments
    _refuse_what_does_nothing(arguments)
    if arguments.action == "list":
        return _list(context)
    if arguments.name is None:
        raise InvalidInput(f"name the key: {context.command('keys', arguments.action, 'NAME')}")
    return _create(context) if arguments.action == "create" else _revoke(context)


def _refuse_what_does_nothing(given: argparse.Namespace) -> None:
    if given.action == "list" and given.name is not None:
        raise InvalidInput("`keys list` takes no name; it lists all keys")
    for action, names in _FLAGS.items():
        wrong = [f"--{name.replace('_', '-')}" for name in names if getattr(given, name)]
        if wrong and given.action != action:
            raise InvalidInput(f"leave out {', '.join(wrong)}: that is for `keys {action}`")


def _create(context: Context) -> int:
    from commonplace.server.http.api_keys import Key, Keys, Rate, system_time

    given = context.arguments
    key = Key(
        name=given.name,
        namespace=_namespace(context),
        reach="all" if given.everything else "below" if given.below else "own",
        actions=frozenset(given.actions or ("read", "write", "delete")),
        expires_at=None if given.expires is None else system_time() + round(given.expires * 1_000_000),
        rate=None if given.rate is None else Rate.parse(given.rate),
        max_entries=given.max_entries,
        max_bytes=given.max_bytes,
    )
    context.rehearse(lambda book: Keys(book.store).create(key))
    with context.book(create=True) as book:
        try:
            made, text = Keys(book.store).create(key)
        except AlreadyExists as error:
            raise AlreadyExists(
                f"there is a key {key.name} already, in use or revoked; choose another name, "
                f"or remove that one: {context.command('keys', 'revoke', key.name, '--forget')}"
            ) from error
    if context.out.is_json:
        context.out.document({**_document(made, None), "key": text})
    else:
        context.out.line(text)
        context.out.note(f"the key {made.name} opens {_opens(made)}; it is shown this once, so keep it now")
    return 0


def _namespace(context: Context) -> tuple[str, ...]:
    from commonplace.tools.namespace_template import NamespaceTemplate

    given = context.arguments
    written = given.namespace or f"user/{given.name}"
    claims: dict[str, str] = {}
    for claim in given.claim:
        name, separator, value = claim.partition("=")
        if not separator or not name:
            raise InvalidInput(f"{claim!r} is not a claim; write --claim user_id=u-123")
        claims[name] = value
    labels = tuple(written.split("/"))
    template = NamespaceTemplate(labels)
    wanted = {label[1:-1] for label in labels if label.startswith("{")}
    if missing := sorted(wanted - claims.keys()):
        flags = " ".join(f"--claim {name}=VALUE" for name in missing)
        raise InvalidInput(f"the namespace {written} is a template; fill it with {flags}")
    if unknown := sorted(claims.keys() - wanted):
        places = "/".join(f"{{{name}}}" for name in unknown)
        raise InvalidInput(f"the namespace {written} has no {places} to fill; name one with --namespace that has")
    return template.resolve({"configurable": claims})


def _list(context: Context) -> int:
    from commonplace.checks import moment
    from commonplace.server.http.api_keys import Keys

    with context.book() as book:
        found = Keys(book.store).list()
    if context.out.is_json:
        context.out.document([_document(key, used) for key, used in found])
        return 0
    rows = [
        [
            key.name,
            _opens(key),
            _state(key),
            "" if key.rate is None else str(key.rate),
            "never" if used is None else shown_time(moment(used)),
        ]
        for key, used in found
    ]
    context.out.table(("name", "opens", "state", "rate", "last used"), rows)
    return 0


def _revoke(context: Context) -> int:
    from commonplace.server.http.api_keys import Keys

    with context.book() as book:
        key = Keys(book.store).revoke(context.arguments.name, forget=context.arguments.forget)
    if context.out.is_json:
        context.out.document(_document(key, None))
    else:
        context.out.line(f"revoked {key.name}; running services refuse it within two seconds")
    return 0


def _opens(key: Key) -> str:
    place = "/".join(key.namespace)
    reached = {"own": place, "below": f"{place} and below", "all": f"everything (its own: {place})"}[key.reach]
    return f"{reached}: {', '.join(action for action in ACTIONS if action in key.actions)}"


def _state(key: Key) -> str:
    from commonplace.checks import moment
    from commonplace.server.http.api_keys import system_time

    if key.revoked_at is not None:
        return f"revoked {shown_time(moment(key.revoked_at))}"
    if key.expires_at is None:
        return "good"
    word = "expired" if key.expires_at <= system_time() else "good until"
    return f"{word} {shown_time(moment(key.expires_at))}"


def _document(key: Key, used: int | None) -> dict[str, Any]:
    from commonplace.checks import moment

    def shown(time: int | None) -> Any:
        return None if time is None else moment(time)

    return {
        "name": key.name,
        "namespace": "/".join(key.namespace),
        "reach": key.reach,
        "actions": [action for action in ACTIONS if action in key.actions],
        "rate": None if key.rate is None else str(key.rate),
        "max_entries": key.max_entries,
        "max_bytes": key.max_bytes,
        "created_at": shown(key.created_at),
        "expires_at": shown(key.expires_at),
        "revoked_at": shown(key.revoked_at),
        "last_used_at": shown(used),
    }


def _actions(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words or any(word not in ACTIONS for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} are no actions; choose among {', '.join(ACTIONS)}")
    return words
