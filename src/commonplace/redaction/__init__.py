"""Redaction: secrets and personal data are masked in what is written, or such writes are refused. Pure functions."""

from __future__ import annotations

from commonplace.redaction.redactor import GROUPS, KINDS, Mode, Redactor
from commonplace.redaction.rules import Rule, load_rules
from commonplace.redaction.spans import Span

__all__ = ["GROUPS", "KINDS", "Mode", "Redactor", "Rule", "Span", "load_rules"]
