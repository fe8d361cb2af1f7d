"""Secrets that are known by what stands before them: `password=…`, `Authorization: Bearer …`, `postgres://user:…@host`,
"the API key is …".

A value is taken where it looks like a secret rather than like code or prose; what a placeholder says is no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase

from commonplace.redaction.randomness import (
    LEAST_CHANGES,
    class_changes,
    has_letters_and_digits,
    is_hex,
    is_uuid,
    looks_random,
)
from commonplace.redaction.spans import Detector, Span

LONGEST_CONTEXT = 60
"""How many characters may stand between a word such as "key" and a string that only looks random."""

LEAST_RANDOM, MOST_RANDOM = 20, 200
"""The lengths of such a string. A longer one is data, such as an image."""

_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_SECRETS = ("secret", "token", "api_key", "api-key", "apikey", "access_key", "accesskey", "private_key", "credential")
_KEY_WORDS = ("key", "token", "secret", "password", "passphrase", "credential", "auth")
_LEAST_CHARACTERS = {"password": 6, "secret": 12}
_LEAST_HEX = 32

_ASSIGNED = re.compile(
    r"""(?:[_-]?(?:access[_-]?key|key|token|value|secret))?+["'`\]]{0,2}+
        (?P<before>[ \t]{0,8}+) (?P<sign>:=|=>|==?|:) (?P<after>[ \t]{0,8}+)
        (?: (?P<quote>["'`]) (?P<quoted>[^"'`\s\\]{4,200}+) (?P=quote)
          | (?P<bare>[^\s"'`,;<>(){}\[\]&|\\]{4,200}+) )""",
    re.VERBOSE | re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"""\$[({]|\$[A-Z_]+\b|%[A-Z_(]|%s|<|\{|\*{3}|\.\.\.|…|\[redacted|x{4}
      | (?:your|my|the|some|any|an?|example|sample|dummy|fake|changeme|placeholder)(?![a-z0-9])
      | (?:none|null|nil|true|false|undefined|string|str|bytes|bool|int|secret|password|passwd|pass|pwd|token|key|user
      | required|optional|redacted|hidden|env|process|self|os|config|settings|test|foo|bar)
        (?:[._-]?(?:here|value|string|key|token|password|secret)){0,2}+[._-]?(?![a-z0-9])""",
    re.VERBOSE | re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z_$.\-]*+")
_CODE_OR_PATH = re.compile(r"\w{1,100}+\.\w{1,100}+\.|\w{0,100}+::|\.{0,2}/|[A-Za-z]:\\|https?:|@")
_BEARER = re.compile(r"(?:bearer|basic)[ \t]{1,4}+([A-Za-z0-9._~+/=-]{16,}+)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"://[^\s/:@\"'<>`]{0,100}+:([^\s/@\"'<>`]{1,200}+)@")
_RUN = re.compile(
    rf"(?<![A-Za-z0-9+/_.~=-])[A-Za-z0-9+/_.~-]{{{LEAST_RANDOM},{MOST_RANDOM}}}+(?![A-Za-z0-9+/_.~-])={{0,2}}+"
)
_KEY_WORD = re.compile(rf"(?:{'|'.join(_KEY_WORDS)})s?(?![a-z])", re.IGNORECASE)
_BETWEEN_PARTS = re.compile(r"[/._~-]")
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def kind_of_field(name: str) -> str | None:
    """The kind of secret that a field of this name holds, or None."""
    small = in_small_letters(name).replace("-", "_")
    for kind, words in (("password", _PASSWORDS), ("secret", _SECRETS)):
        if small.endswith((*words, *(f"{word}_key" for word in words))):
            return kind
    return None


def is_field_secret(kind: str, value: str) -> bool:
    """Whether the value of a field that is named like a secret is one, and no placeholder, label or path."""
    if len(value) < 4 or any(map(str.isspace, value)) or _is_something_else(value):
        return False
    return kind == "password" or looks_random(value) or (len(value) >= _LEAST_HEX and is_hex(value))


def in_small_letters(text: str) -> str:
    """A text of the same length with ASCII in small letters; a few letters of other scripts grow when made small."""
    small = text.lower()
    return small if len(small) == len(text) else text.translate(_SMALL)


def _is_something_else(value: str) -> bool:
    return bool(_PLACEHOLDER.match(value) or _CODE_OR_PATH.match(value)) or is_uuid(value)


def _assigned(text: str, words: tuple[str, ...], kind: str) -> Iterator[Span]:
    small = in_small_letters(text)
    for word in words:
        start = small.find(word)
        while start >= 0:
            end = start + len(word)
            found = _ASSIGNED.match(text, end)
            if found is not None and _is_assigned_secret(found, kind, small[start:end]):
                value = "quoted" if found["quoted"] else "bare"
                yield Span(*found.span(value), kind)
                end = found.end(value)
            start = small.find(word, end)


def _is_assigned_secret(found: re.Match[str], kind: str, word: str) -> bool:
    value = found["quoted"] or found["bare"].rstrip(".:!?")
    if len(value) < _LEAST_CHARACTERS[kind] or _is_something_else(value):
        return False
    if kind == "secret":
        return looks_random(value) or (len(value) >= _LEAST_HEX and is_hex(value))
    if _NAME.fullmatch(value):
        # Letters alone are a word of prose or a variable, but for what a shell or a connection string assigns.
        is_tight = found["sign"] == "=" and not found["before"] and not found["after"]
        return is_tight and value.isalpha() and not value.lower().endswith(word)
    return any(map(str.isalnum, value))


def _find_passwords(text: str) -> Iterator[Span]:
    return _assigned(text, _PASSWORDS, "password")


def _find_secrets(text: str) -> Iterator[Span]:
    return _assigned(text, _SECRETS, "secret")


def _find_authorization(text: str) -> Iterator[Span]:
    small = in_small_letters(text)
    if "bearer" in small or "basic" in small:
        for found in _BEARER.finditer(text):
            if has_letters_and_digits(found[1]) or class_changes(found[1]) >= LEAST_CHANGES:
                yield Span(*found.span(1), "authorization")


def _find_url_passwords(text: str) -> Iterator[Span]:
    if "://" in text and "@" in text:
        for found in _URL_PASSWORD.finditer(text):
            if not _PLACEHOLDER.match(found[1]):
                yield Span(*found.span(1), "url_password")


def _find_random(text: str) -> Iterator[Span]:
    small = in_small_letters(text)
    if not any(word in small for word in _KEY_WORDS):
        return
    for found in _RUN.finditer(text):
        before = text[max(0, found.start() - LONGEST_CONTEXT) : found.start()].rpartition("\n")[2]
        if _KEY_WORD.search(before) and _is_one_random_run(found[0].strip("./-~=")):
            yield Span(*found.span(), "high_entropy")


def _is_one_random_run(run: str) -> bool:
    """Random in one piece: the parts of a path or a dotted name are looked at one by one."""
    if is_uuid(run) or is_hex(run):
        return False
    longest = max(_BETWEEN_PARTS.split(run), key=len)
    return len(longest) >= LEAST_RANDOM - 4 and looks_random(longest)


DETECTORS: dict[str, Detector] = {
    "password": _find_passwords,
    "secret": _find_secrets,
    "authorization": _find_authorization,
    "url_password": _find_url_passwords,
    "high_entropy": _find_random,
}
