"""Keys and tokens that are known by their form, whoever wrote them and wherever they stand.

Each begins with a fixed prefix and goes on with a run of characters of one class. A prefix inside such a run is passed
over, so that every run is read once: the time is linear whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from commonplace.redaction.randomness import looks_random
from commonplace.redaction.spans import Detector, Span

_WORD = "A-Za-z0-9_"
_DASHED = "A-Za-z0-9_-"
_DOTTED = "A-Za-z0-9_.-"
_LEAST_DISTINCT = 5
"""`ghp_xxxxxxxx…` is how people write that a token goes here."""


@dataclass(frozen=True)
class _Format:
    prefixes: tuple[str, ...]
    run: str
    least: int
    most: int | None = None
    accepts: Callable[[str], bool] = lambda run: len(set(run)) >= _LEAST_DISTINCT

    def pattern(self, prefix: str) -> re.Pattern[str]:
        literal = re.escape(prefix)
        # The prefix comes before the look behind it: so the search is for a literal, which is quick.
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
    """From BEGIN to END; where there is no END near, what follows and may be the key."""
    start, end = 0, 0
    while (begin := _BEGIN.search(text, start)) is not None:
        if end < begin.end():  # looked for once, however many BEGINs stand before it
            end = text.find(_END, begin.end())
            end = len(text) if end < 0 else end
        closing = _END_LINE.match(text, end) if end - begin.end() <= _LONGEST_BLOCK else None
        start = cast("re.Match[str]", closing or _BODY.match(text, begin.end())).end()
        yield Span(begin.start(), start, "private_key")


DETECTORS: dict[str, Detector] = {
    **{kind: _find(kind, formats) for kind, formats in _FORMATS.items()},
    "jwt": _find_jwt,
    "private_key": _find_private_key,
}
