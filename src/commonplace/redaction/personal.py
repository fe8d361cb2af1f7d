"""What tells who someone is: e-mail addresses, telephone, card and account numbers, US social security numbers; and IP
addresses. Numbers that have a check digit are checked, so that other long numbers stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from commonplace.redaction.contexts import in_small_letters
from commonplace.redaction.spans import Detector, Span

_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}\Z")
_DOMAIN = re.compile(r"@((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}+[^\W\d_]{2,24})(?![\w-])")
_LONGEST_LOCAL = 64

# The first character comes before the look behind it: a search for one of a few characters is quick.
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
"""By the length of their account numbers."""
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
_TOLD_PHONE = re.compile(
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
            # Backwards from the @, so that long texts without one are read once.
            local = _LOCAL.search(text, max(0, at - _LONGEST_LOCAL), at)
            if local is not None and local[0].strip("."):
                yield Span(local.start(), domain.end(), "email")
        at = text.find("@", at + 1 if domain is None else domain.end())


def _digits(text: str) -> str:
    return "".join(character for character in text if character in "0123456789")


def has_luhn_digit(digits: str) -> bool:
    """Whether the last digit is the check digit that card numbers have."""
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
        # A word in capitals may follow the number: its end is where the country's length is reached.
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
    small = in_small_letters(text)
    for word in _PHONE_WORDS:
        start = small.find(word)
        while start >= 0:
            told = _TOLD_PHONE.match(text, start + len(word))
            if told is not None and not small[max(0, start - 1) : start].isalpha():
                yield Span(*told.span(1), "phone")
            start = small.find(word, start + len(word))


def _find_ip(text: str) -> Iterator[Span]:
    for pattern, mark in ((_IPV4, "."), (_IPV6, ":")):
        if mark in text:
            for found in pattern.finditer(text):
                if _is_somebodys(found[0], mark):
                    yield Span(*found.span(), "ip_address")


def _is_somebodys(written: str, mark: str) -> bool:
    """Whether this is an address, and neither every machine's own (127.0.0.1, ::1) nor a C++ name such as `ab::cd`."""
    if mark == ":" and (written.count(":") < 2 or not any(map(str.isdigit, written))):
        return False
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


DETECTORS: dict[str, Detector] = {
    "email": _find_email,
    "phone": _find_phone,
    "credit_card": _find_card,
    "iban": _find_iban,
    "us_ssn": _find_ssn,
    "ip_address": _find_ip,
}
