"""Counts tokens with the tokenizer that Anthropic published, in an older version of its package.

Today's models split texts somewhat differently; no newer tokenizer of theirs is published.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from install import python

PACKAGE = "anthropic==0.34.2"


@cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    folder = python("anthropic-tokenizer", "--no-deps", PACKAGE).parent.parent
    [file] = folder.glob("lib/python*/site-packages/anthropic/tokenizer.json")
    return Tokenizer.from_file(str(file))


def count_tokens(text: str) -> int:
    return len(_tokenizer().encode(text).ids)
