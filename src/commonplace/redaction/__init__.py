"""Redaction: mask secrets and personal data in everything that is written, or refuse such writes."""

from __future__ import annotations

from commonplace.redaction.custom_rules import Rule, load_rules
from commonplace.redaction.detectors import Span
from commonplace.redaction.redactor import GROUPS, KINDS, Mode, Redactor

__all__ = ["GROUPS", "KINDS", "Mode", "Redactor", "Rule", "Span", "load_rules"]
