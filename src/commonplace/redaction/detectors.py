"""Detectors of secrets and personal data: each finds the spans of one kind in a text, in linear time."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple, TypeAlias, cast


class Span(NamedTuple):
    start: int
    end: int
    kind: str


Detector: TypeAlias = Callable[[str], Iterator[Span]]
"""Finds all spans of its kind in a text, in time linear in its length."""


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order; overlapping ones become one span, of the kind of the first."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            if span.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=span.end)
        else:
            kept.append(span)
    return kept


def masked(text: str, spans: Iterable[Span]) -> str:
    """Replace each span with `[redacted:kind]`; the spans are in order and do not overlap."""
    parts, start = [], 0
    masks: dict[str, str] = {}
    for span in spans:
        parts += [text[start : span.start], masks.setdefault(span.kind, f"[redacted:{span.kind}]")]
        start = span.end
    return "".join((*parts, text[start:]))


# Random strings: keys look random, names and words do not.

LEAST_BITS = 3.0
"""The least Shannon entropy per character; a string below it is too repetitive to be a key."""

LEAST_CHANGES, MOST_IN_WORDS, MANY_DIGITS = 0.2, 0.6, 0.2
"""The least share of characters whose class differs from the previous one (lower case, capital, digit; a lower-case
letter after a capital does not count), the largest share of letters in word-like runs, and the share of digits from
which such runs are accepted. Chosen on the identifiers with a digit in the source code of 300 packages, of which 7 %
pass, and on random strings: 96 % of those in base64 and base62 with 20 characters pass, 99 % with 32 characters, and
83 % of those with lower-case letters and digits."""

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")
_WORDS = re.compile(r"[A-Z]?[a-z]{3,}+|[A-Z]{5,}+")
_BETWEEN = str.maketrans("", "", "-_")
_CLASSES = str.maketrans(
    {
        **dict.fromkeys(ascii_lowercase, "a"),
        **dict.fromkeys(ascii_uppercase, "A"),
        **dict.fromkeys(digits, "0"),
    }
)


def bits_per_character(text: str) -> float:
    """Return the Shannon entropy of the character frequencies."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def class_changes(text: str) -> float:
    """Return the share of characters whose class differs from the previous one."""
    classes = text.translate(_CLASSES)
    return sum(one != other and (one, other) != ("A", "a") for one, other in pairwise(classes)) / max(len(text) - 1, 1)


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def is_hex(text: str) -> bool:
    """Whether a string has only hexadecimal digits of one case, as a hash, a commit or a number has."""
    return _HEX.fullmatch(text) is not None


def has_letters_and_digits(text: str) -> bool:
    return any(map(str.isalpha, text)) and any(map(str.isdigit, text))


def looks_random(text: str) -> bool:
    """Whether a string of letters and digits looks like a key."""
    run = text.translate(_BETWEEN)
    if not has_letters_and_digits(run) or bits_per_character(run) < LEAST_BITS or class_changes(run) < LEAST_CHANGES:
        return False
    in_words = sum(map(len, _WORDS.findall(run)))
    return in_words <= MOST_IN_WORDS * len(run) or sum(map(str.isdigit, run)) >= MANY_DIGITS * len(run)


# Keys and tokens with a known format: a fixed prefix and then a run of characters of one class. A prefix inside such a
# run is skipped, so that every run is read once and the time is linear for any text.

_WORD = "A-Za-z0-9_"
_DASHED = "A-Za-z0-9_-"
_DOTTED = "A-Za-z0-9_.-"
_LEAST_DISTINCT = 5
"""`ghp_xxxxxxxx…` is a placeholder for a token."""


@dataclass(frozen=True)
class _Format:
    prefixes: tuple[str, ...]
    run: str
    least: int
    most: int | None = None
    accepts: Callable[[str], bool] = lambda run: len(set(run)) >= _LEAST_DISTINCT

    def pattern(self, prefix: str) -> re.Pattern[str]:
        literal = re.escape(prefix)
        # The prefix comes before the lookbehind, so that the search is for a literal, which is fast.
        start = f"{literal}(?<![A-Za-z0-9{self.run}]{literal})"
        if self.most is None:
            return re.compile(f"{start}([{self.run}]{{{self.least},}}+)")
        return re.compile(f"{start}([{self.run}]{{{self.least},{self.most}}}+)(?![{self.run}])")


_FORMATS: dict[str, tuple[_Format, ...]] = {
    "aws_key": (_Format(("AKIA", "ASIA", "ABIA", "ACCA"), "A-Z0-9", 16, 16),),
    "github_token": (
        _Format(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "A-Za-z0-9", 36),
        _Format(("github_pat_",), _WORD, 50),
    ),
    "gitlab_token": (
        _Format(("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "glft-", "glimt-"), _DOTTED, 20),
    ),
    "slack_token": (
        _Format(("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xapp-"), "A-Za-z0-9.-", 20),
        _Format(("hooks.slack.com/services/",), "A-Za-z0-9/", 30),
    ),
    "stripe_key": (_Format(("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"), "A-Za-z0-9", 16),),
    "google_key": (
        _Format(("AIza",), _DASHED, 35, 35),
        _Format(("GOCSPX-",), _DASHED, 28, 28),
        _Format(("ya29.",), _DOTTED, 20),
    ),
    "model_key": (
        _Format(("sk-",), _DASHED, 20, accepts=looks_random),
        _Format(("gsk_", "hf_", "r8_"), "A-Za-z0-9", 30),
        _Format(("xai-", "pplx-"), "A-Za-z0-9", 40),
    ),
    "service_token": (
        _Format(("npm_",), "A-Za-z0-9", 36, 36),
        _Format(("pypi-AgE",), _DASHED, 50),
        _Format(("dckr_pat_",), _DASHED, 27),
        _Format(("dop_v1_", "doo_v1_"), "a-f0-9", 64, 64),
        _Format(("SG.",), _DOTTED, 60),
        _Format(("shpat_", "shpss_"), "A-Fa-f0-9", 32, 32),
        _Format(("AGE-SECRET-KEY-1",), "A-Z0-9", 50),
        _Format(("hvs.",), _DASHED, 24),
        _Format(("glsa_",), _WORD, 32),
        _Format(("lin_api_",), "A-Za-z0-9", 40),
        _Format(("ATATT3",), "A-Za-z0-9_=-", 100),
    ),
    "commonplace_key": (_Format(("cp_",), _DASHED, 35, accepts=lambda run: "_" in run and looks_random(run)),),
}

_JWT = re.compile(
    r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+\.(?:eyJ)?+[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{4,}+){1,3}+"
)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = "-----END "
_END_LINE = re.compile(r"-----END [A-Z0-9 ]{1,60}-----")
_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[nr]){0,20000}+")
_LONGEST_BLOCK = 20_000


def _find(kind: str, formats: tuple[_Format, ...]) -> Detector:
    patterns = [(prefix, one.pattern(prefix), one.accepts) for one in formats for prefix in one.prefixes]

    def find(text: str) -> Iterator[Span]:
        for prefix, pattern, accepts in patterns:
            if prefix in text:
                for found in pattern.finditer(text):
                    if accepts(found[1]):
                        yield Span(found.start(), found.end(), kind)

    return find


def _find_jwt(text: str) -> Iterator[Span]:
    if "eyJ" in text:
        for found in _JWT.finditer(text):
            yield Span(found.start(), found.end(), "jwt")


def _find_private_key(text: str) -> Iterator[Span]:
    """From BEGIN to END; if there is no END nearby, up to the end of what can be key material."""
    start, end = 0, 0
    while (begin := _BEGIN.search(text, start)) is not None:
        if end < begin.end():  # search once, however many BEGINs precede it
            end = text.find(_END, begin.end())
            end = len(text) if end < 0 else end
        closing = _END_LINE.match(text, end) if end - begin.end() <= _LONGEST_BLOCK else None
        start = cast("re.Match[str]", closing or _BODY.match(text, begin.end())).end()
        yield Span(begin.start(), start, "private_key")


FORMAT_DETECTORS: dict[str, Detector] = {
    **{kind: _find(kind, formats) for kind, formats in _FORMATS.items()},
    "jwt": _find_jwt,
    "private_key": _find_private_key,
}


# Secrets that the text before them gives away: `password=…`, `Authorization: Bearer …`, `postgres://user:…@host`, "the
# API key is …". A value counts if it looks like a secret and not like code, prose or a placeholder.

LONGEST_CONTEXT = 60
"""The most characters between a word such as "key" and a random-looking string."""

LEAST_RANDOM, MOST_RANDOM = 20, 200
"""The length of such a string. A longer one is data, such as an image."""

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
    """Return the kind of secret that a field of this name holds, or None."""
    small = lower_same_length(name).replace("-", "_")
    for kind, words in (("password", _PASSWORDS), ("secret", _SECRETS)):
        if small.endswith((*words, *(f"{word}_key" for word in words))):
            return kind
    return None


def is_field_secret(kind: str, value: str) -> bool:
    """Whether the value of a field that is named like a secret is one, and not a placeholder, label or path."""
    if len(value) < 4 or any(map(str.isspace, value)) or _is_harmless(value):
        return False
    return kind == "password" or looks_random(value) or (len(value) >= _LEAST_HEX and is_hex(value))


def lower_same_length(text: str) -> str:
    """Return the text in lower case at the same length; if lower case changes the length, only ASCII is converted."""
    small = text.lower()
    return small if len(small) == len(text) else text.translate(_SMALL)


def _is_harmless(value: str) -> bool:
    return bool(_PLACEHOLDER.match(value) or _CODE_OR_PATH.match(value)) or is_uuid(value)


def _assigned(text: str, words: tuple[str, ...], kind: str) -> Iterator[Span]:
    small = lower_same_length(text)
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
    if len(value) < _LEAST_CHARACTERS[kind] or _is_harmless(value):
        return False
    if kind == "secret":
        return looks_random(value) or (len(value) >= _LEAST_HEX and is_hex(value))
    if _NAME.fullmatch(value):
        # Only letters: a word or a variable, unless a shell or a connection string assigns it.
        is_tight = found["sign"] == "=" and not found["before"] and not found["after"]
        return is_tight and value.isalpha() and not value.lower().endswith(word)
    return any(map(str.isalnum, value))


def _find_passwords(text: str) -> Iterator[Span]:
    return _assigned(text, _PASSWORDS, "password")


def _find_secrets(text: str) -> Iterator[Span]:
    return _assigned(text, _SECRETS, "secret")


def _find_authorization(text: str) -> Iterator[Span]:
    small = lower_same_length(text)
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
    small = lower_same_length(text)
    if not any(word in small for word in _KEY_WORDS):
        return
    for found in _RUN.finditer(text):
        before = text[max(0, found.start() - LONGEST_CONTEXT) : found.start()].rpartition("\n")[2]
        if _KEY_WORD.search(before) and _is_one_random_run(found[0].strip("./-~=")):
            yield Span(*found.span(), "high_entropy")


def _is_one_random_run(run: str) -> bool:
    """Whether one part is random; the parts of a path or a dotted name are examined separately."""
    if is_uuid(run) or is_hex(run):
        return False
    longest = max(_BETWEEN_PARTS.split(run), key=len)
    return len(longest) >= LEAST_RANDOM - 4 and looks_random(longest)


CONTEXT_DETECTORS: dict[str, Detector] = {
    "password": _find_passwords,
    "secret": _find_secrets,
    "authorization": _find_authorization,
    "url_password": _find_url_passwords,
    "high_entropy": _find_random,
}


# Personal data: e-mail addresses, telephone, card and account numbers, US social security numbers, IP addresses. Check
# digits are verified, so that other long numbers are left alone.

_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}\Z")
_DOMAIN = re.compile(r"@((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}+[^\W\d_]{2,24})(?![\w-])")
_LONGEST_LOCAL = 64

# The first character comes before the lookbehind: a search for one of a few characters is fast.
_CARD = re.compile(r"[2-6](?<![\w.-].)(?<!\d[ ].)\d{3}(?:[ -]?\d){10,15}+(?! ?\d)(?![\w-]|\.\d)")
_CARD_NUMBERS = re.compile(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|35(?:2[89]|[3-8]\d)\d{12}|6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14,17}"
)
_IBAN = re.compile(r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d{2}(?: ?[A-Z0-9]){11,30}+(?![A-Za-z0-9])")
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ",
    24: "AD CZ ES MD PK RO SA SE SK TN",
    25: "PT",
    26: "IS TR",
    27: "FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT",
}
"""Countries by the length of their account numbers."""
_IBAN_LENGTHS = {country: length for length, countries in _IBAN_COUNTRIES.items() for country in countries.split()}
_SSN = re.compile(r"[0-8](?<![\w-].)\d\d(?<!000)(?<!666)-(?!00)\d\d-(?!0000)\d{4}(?![\w-])")
_PHONE = re.compile(
    r"""[+(0-9](?<![\w.+/=-].)(?:
        (?<=\+)\d{1,3}[ .-]?(?:\(\d{1,5}\)[ .-]?)?\d(?:[ ./-]?\d){5,12}+    # +49 30 901820
      | (?<=\()\d{3}\)[ ]?\d{3}[ .-]\d{4}                                 # (555) 123-4567
      | (?<=[2-9])\d{2}([ .-])[2-9]\d{2}\1\d{4}                           # 555-123-4567
      | (?<=1)([ .-])[2-9]\d{2}\2[2-9]\d{2}\2\d{4}                        # 1-555-123-4567
      | (?<=0)\d{2,4}[ /-]\d{6,9}                                         # 0171 2345678
    )(?![\w=-]|\.\d)""",
    re.VERBOSE,
)
_PHONE_WORDS = ("phone", "tel", "mobil", "cell", "fax", "whatsapp")
_NAMED_PHONE = re.compile(
    r"(?:e?phone|efon|e)?(?:[^\w\n+(]{0,4}(?:number|no\.?|nr\.?))?[^\w\n+(]{0,8}"
    r"([+(]?\d(?:[ ()./-]{0,2}\d){6,14}+)(?!\w)",
    re.IGNORECASE,
)
_IPV4 = re.compile(r"\d(?<![\w.-].)\d{0,2}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"[0-9A-Fa-f:](?<![\w:.].)[0-9A-Fa-f:]{1,38}+(?![\w:])")
_LEAST_PHONE_DIGITS, _MOST_PHONE_DIGITS = 8, 15


def _find_email(text: str) -> Iterator[Span]:
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at)
        if domain is not None:
            # Search backwards from the @, so that a long text is read once.
            local = _LOCAL.search(text, max(0, at - _LONGEST_LOCAL), at)
            if local is not None and local[0].strip("."):
                yield Span(local.start(), domain.end(), "email")
        at = text.find("@", at + 1 if domain is None else domain.end())


def _digits(text: str) -> str:
    return "".join(character for character in text if character in "0123456789")


def has_luhn_digit(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit of a card number."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 * (number > 9) for number in doubled) % 10 == 0


def _find_card(text: str) -> Iterator[Span]:
    for found in _CARD.finditer(text):
        digits = _digits(found[0])
        if _CARD_NUMBERS.fullmatch(digits) and has_luhn_digit(digits) and len(set(digits)) > 1:
            yield Span(*found.span(), "credit_card")


def has_iban_digits(account: str) -> bool:
    """Whether an account number has its country's length and the right check digits (ISO 7064, mod 97-10)."""
    if len(account) != _IBAN_LENGTHS.get(account[:2]):
        return False
    return int("".join(str(int(character, 36)) for character in account[4:] + account[:4])) % 97 == 1


def _find_iban(text: str) -> Iterator[Span]:
    for found in _IBAN.finditer(text):
        # A word in capitals may follow, so the number ends at its country's length.
        length = _IBAN_LENGTHS.get(found[0][:2], 0)
        places = [place for place, character in enumerate(found[0]) if character != " "]
        if 0 < length <= len(places):
            end = places[length - 1] + 1
            account = found[0][:end].replace(" ", "")
            if has_iban_digits(account) and found[0][end : end + 1] in ("", " "):
                yield Span(found.start(), found.start() + end, "iban")


def _find_ssn(text: str) -> Iterator[Span]:
    for found in _SSN.finditer(text):
        yield Span(*found.span(), "us_ssn")


def _find_phone(text: str) -> Iterator[Span]:
    for found in _PHONE.finditer(text):
        if _LEAST_PHONE_DIGITS <= len(_digits(found[0])) <= _MOST_PHONE_DIGITS:
            yield Span(*found.span(), "phone")
    small = lower_same_length(text)
    for word in _PHONE_WORDS:
        start = small.find(word)
        while start >= 0:
            named = _NAMED_PHONE.match(text, start + len(word))
            if named is not None and not small[max(0, start - 1) : start].isalpha():
                yield Span(*named.span(1), "phone")
            start = small.find(word, start + len(word))


def _find_ip(text: str) -> Iterator[Span]:
    for pattern, mark in ((_IPV4, "."), (_IPV6, ":")):
        if mark in text:
            for found in pattern.finditer(text):
                if _is_address(found[0], mark):
                    yield Span(*found.span(), "ip_address")


def _is_address(written: str, mark: str) -> bool:
    """Whether this is an IP address, and neither a loopback address nor a C++ name such as `ab::cd`."""
    if mark == ":" and (written.count(":") < 2 or not any(map(str.isdigit, written))):
        return False
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


PERSONAL_DETECTORS: dict[str, Detector] = {
    "email": _find_email,
    "phone": _find_phone,
    "credit_card": _find_card,
    "iban": _find_iban,
    "us_ssn": _find_ssn,
    "ip_address": _find_ip,
}
