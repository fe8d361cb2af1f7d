"""The user's own rules are checked when they are loaded: none can be wrong later, or take for ever."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from commonplace import ConfigurationError
from commonplace.entry import Draft
from commonplace.redaction import Redactor, Rule, load_rules

TOML = """
[[rule]]
name = "employee"
pattern = 'EMP-\\d{6}'

[[rule]]
name = "project"
pattern = 'project (orion|lyra)'
ignore_case = true
"""
RULES = (Rule("employee", r"EMP-\d{6}"), Rule("project", "project (orion|lyra)", ignore_case=True))


@pytest.mark.promise("redaction-own-rules")
def test_own_rules_are_read_from_toml_and_json(tmp_path: Path) -> None:
    toml, also_json = tmp_path / "rules.toml", tmp_path / "rules.json"
    toml.write_text(TOML)
    also_json.write_text(
        json.dumps(
            {"rule": [{"name": one.name, "pattern": one.pattern, "ignore_case": one.ignore_case} for one in RULES]}
        )
    )
    assert load_rules(toml) == load_rules(also_json) == RULES
    redactor = Redactor(kinds=["email"], rules=RULES)
    text = "EMP-123456 leads Project Orion: ann@example.org"
    assert redactor.text(text) == "[redacted:employee] leads [redacted:project]: [redacted:email]"


@pytest.mark.promise("redaction-own-rules")
def test_own_rules_find_texts_and_fields_of_any_length() -> None:
    redactor = Redactor(kinds=["all"], rules=[Rule("pin", r"\b\d{4}\b")])
    draft = Draft("record", "r", {"pin": 1234, "1234": ["1234", "12345"]}, text="1234")
    screened = redactor.screen(draft)
    assert screened.value == {"pin": "[redacted:pin]", "[redacted:pin]": ["[redacted:pin]", "12345"]}
    assert screened.text == "[redacted:pin]"
    assert redactor.text("a 1234") == "a [redacted:pin]"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[[rule]\n", "are not valid TOML"),
        ("rules = []", r"must contain \[\[rule\]\] tables"),
        ("[rule]\nname = 'x'", r"must contain \[\[rule\]\] tables"),
        ("[[rule]]\nname = 'x'", "rule 1 in .* must have name and pattern"),
        ("[[rule]]\nname = 'x'\npattern = 'y'\nflags = 'i'", "it has name, pattern, flags"),
        ("[[rule]]\nname = 'No Spaces'\npattern = 'y'", "rule 1 in .*needs a name of lower-case letters"),
        ("[[rule]]\nname = 'x'\npattern = 5", "pattern must be a string, not int"),
        ("[[rule]]\nname = 'x'\npattern = 'y'\nignore_case = 'no'", "ignore_case must be true or false"),
        ("[[rule]]\nname = 'x'\npattern = ''", "1 to 1,000 characters"),
        ("[[rule]]\nname = 'x'\npattern = '(a'", "is not a regular expression: missing \\)"),
        ("[[rule]]\nname = 'x'\npattern = 'a{0,3}'", "matches the empty text"),
        ("[[rule]]\nname = 'x'\npattern = 'EMP-\\d+'", "has an unbounded repeat"),
        ("[[rule]]\nname = 'x'\npattern = '(a{1,20}){1,20}b'", "can match in too many ways"),
        ("".join(f"[[rule]]\nname = 'x{n}'\npattern = 'y'\n" for n in range(101)), "101 redaction rules; at most 100"),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong_in_it(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=told):
        load_rules(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the redaction rules in .*absent\.toml"):
        load_rules(tmp_path / "absent.toml")
    binary = tmp_path / "rules.json"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="are not valid JSON"):
        load_rules(binary)


@pytest.mark.promise("redaction-rules-bounded")
@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+b", "(a|a)*b", "(a|aa)+$", r"(\w*\s*)*:", "a*a*a*a*b", "(?:a?){30}a{30}", "(a{1,30}){1,30}b"),
        *(
            "a{0,60}a{0,60}a{0,60}b",
            "(?=(a{1,99}){9})x",
            "((a|b){1,8}){1,8}c",
            "(x|(a{1,90}){2}){1,4}y",
            "a{5000}",
            "a++b",
        ),
    ],
)
def test_a_pattern_that_could_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unbounded repeat|too many ways"):
        Rule("x", pattern)


@pytest.mark.parametrize(
    "pattern", [r"\w{1,40}-\d{1,10}", "(a|ab|abc){1,5}d", r"[a-z]{1,30}@[a-z]{1,30}", "(?:ab?){1,8}c"]
)
def test_what_is_allowed_is_quick_on_the_worst_text(pattern: str) -> None:
    rule = Rule("x", pattern)
    for unit in ("a", "ab", "abc", "a1-", "a@"):
        start = time.process_time()
        Redactor(kinds=(), rules=[rule]).find(unit * 100_000)
        assert time.process_time() - start < 10


@pytest.mark.parametrize("name", ["email", "secrets"])
def test_a_rule_cannot_take_the_name_of_a_kind(name: str) -> None:
    with pytest.raises(ConfigurationError, match="more than one kind"):
        Redactor(rules=[Rule(name, "x")])


def test_an_unknown_kind_or_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown kind of redaction 'emails'; known are secrets, pii, all, aws_key"
    ):
        Redactor(kinds=["emails"])
    with pytest.raises(ConfigurationError, match='"mask" and "reject", not \'hide\''):
        Redactor("hide")  # type: ignore[arg-type]
