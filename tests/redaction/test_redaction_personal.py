"""Personal data: numbers with a check digit are checked, so that other long numbers stay."""

from __future__ import annotations

import pytest

from commonplace.redaction import Redactor

FOUND = [
    ("email", "ann.lee+home@mail.example.co.uk"),
    ("email", "o'brien@example.org"),
    ("email", "anna@пример.рф"),
    ("phone", "+49 30 901820"),
    ("phone", "+1 (555) 123-4567"),
    ("phone", "(555) 123-4567"),
    ("phone", "555-234-5678"),
    ("phone", "0171 2345678"),
    ("credit_card", "4111 1111 1111 1111"),
    ("credit_card", "5555-5555-5555-4444"),
    ("credit_card", "378282246310005"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "GB29NWBK60161331926819"),
    ("us_ssn", "123-45-6789"),
    ("ip_address", "203.0.113.9"),
    ("ip_address", "2001:db8::ff00:42:8329"),
    ("ip_address", "fe80::1"),
]
LEFT = [
    ("email", "user@localhost, @decorator, a@b, git@github"),
    ("phone", "1.2.3.4, 2024-01-15, 12345678, 10:30:00, 1-2-3, 555-1234, v2.10.333.4444, 100 200 300"),
    ("credit_card", "a1b2c3d4-4111-1111-1111-1111a1b2c3d4, x4111111111111111, 4111111111111111-x"),
    ("credit_card", "4111 1111 1111 1112, 1750000000000000, 1234567812345670, 0.4111111111111111"),
    ("iban", "DE88 3704 0044 0532 0130 00, AB12CDEF34567890, GB29NWBK6016133192681"),
    ("us_ssn", "000-12-3456, 666-12-3456, 912-34-5678, 123-00-4567, 123-45-0000, 2123-45-67890, 123456789"),
    ("ip_address", "127.0.0.1, ::1, 1.2.3, 256.1.1.1, v1.2.3.4, std::map, ab::cd, 12:30:45, 00:1b:44:11:3a:b7"),
]


@pytest.mark.promise("redaction-personal-data")
@pytest.mark.parametrize(("kind", "one"), FOUND)
def test_it_is_found_whole_in_a_sentence(kind: str, one: str) -> None:
    redactor = Redactor(kinds=[kind])
    for before, after in (("", ""), ("It is ", ", I think."), ("(", ")"), ('"', '"'), ("x: ", "\n")):
        assert redactor.text(before + one + after) == f"{before}[redacted:{kind}]{after}"


@pytest.mark.parametrize(("kind", "text"), LEFT)
def test_what_only_looks_like_it_stays(kind: str, text: str) -> None:
    assert Redactor(kinds=[kind]).text(text) == text


@pytest.mark.parametrize("text", ["Phone: 901820 44", "call my cell phone number 5551234567", "Telefon 030 901820"])
def test_a_number_that_is_said_to_be_a_telephones_is_one(text: str) -> None:
    assert Redactor(kinds=["phone"]).text(text).endswith("[redacted:phone]")


def test_the_words_after_an_account_number_stay() -> None:
    text = "GB29 NWBK 6016 1331 9268 19 IS MINE"
    assert Redactor(kinds=["iban"]).text(text) == "[redacted:iban] IS MINE"


def test_personal_data_is_left_alone_unless_it_is_asked_for() -> None:
    text = "Ann: ann@example.org, 4111 1111 1111 1111, 203.0.113.9"
    assert Redactor().text(text) == text
    assert Redactor(kinds=["pii"]).text(text) == "Ann: [redacted:email], [redacted:credit_card], 203.0.113.9"
    assert Redactor(kinds=["all"]).text(text) == "Ann: [redacted:email], [redacted:credit_card], [redacted:ip_address]"
