"""Namespace templates, filled at call time from the caller's configuration.

A placeholder is a whole label, and a value becomes a whole label. A value can therefore not add or remove labels or
name another placeholder. A value that cannot be a label is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from commonplace.checks import Namespace, check_namespace
from commonplace.errors import ConfigurationError, InvalidInput

__all__ = ["NamespaceTemplate"]

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_OWNERS = ("user_id", "org_id", "agent_id")
_DEFAULTS: dict[frozenset[str], tuple[str, ...]] = {
    frozenset({"user_id"}): ("user", "{user_id}"),
    frozenset({"org_id", "agent_id"}): ("org", "{org_id}", "{agent_id}"),
}


class NamespaceTemplate:
    """Labels such as `("{user_id}", "memories")`. None uses `user_id`, or `org_id` with `agent_id`."""

    def __init__(self, template: tuple[str, ...] | str | None = None) -> None:
        labels = (template,) if isinstance(template, str) else template
        self._labels = None if labels is None else _check_template(labels)

    @classmethod
    def fixed(cls, namespace: Namespace) -> NamespaceTemplate:
        """The same namespace for every call, even if its labels have braces."""
        made = cls(("fixed",))
        made._labels = tuple((label, False) for label in check_namespace(namespace))
        return made

    def resolve(self, config: Mapping[str, Any] | None = None) -> Namespace:
        """The namespace for a configuration, flat or under `configurable`; raises ConfigurationError."""
        values = _values(config)
        labels = _default_labels(values) if self._labels is None else self._labels
        filled = tuple(_value(values, label) if is_placeholder else label for label, is_placeholder in labels)
        try:
            return check_namespace(filled)
        except InvalidInput as error:
            raise ConfigurationError(f"the configuration does not give a valid namespace: {error}") from error


_Labels = tuple[tuple[str, bool], ...]
"""Each label, or the key to look up, and whether it is a placeholder."""


def _check_template(labels: object) -> _Labels:
    if not isinstance(labels, (tuple, list)) or not all(isinstance(label, str) for label in labels):
        raise ConfigurationError('namespace must be a tuple of labels, such as ("{user_id}", "memories")')
    try:
        check_namespace(tuple(labels))
    except InvalidInput as error:
        raise ConfigurationError(f"{tuple(labels)!r} is not a valid namespace: {error}") from error
    return tuple(map(_parse_label, labels))


def _parse_label(label: str) -> tuple[str, bool]:
    if found := _PLACEHOLDER.fullmatch(label):
        return found[1], True
    if "{" in label or "}" in label:
        # With two placeholders or text in one label, different values could give the same namespace.
        raise ConfigurationError(f"{label!r}: a placeholder is a whole label, such as {{user_id}}")
    return label, False


def _values(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if config is None:
        return {}
    # If there is a `configurable`, the rest belongs to the framework.
    values = config.get("configurable", config) if isinstance(config, Mapping) else None
    if not isinstance(values, Mapping):
        raise ConfigurationError('the configuration must be an object, such as {"user_id": "u-123"}')
    return values


def _default_labels(values: Mapping[str, Any]) -> _Labels:
    given = frozenset(key for key in _OWNERS if key in values)
    if given not in _DEFAULTS:
        raise ConfigurationError(
            f"the configuration needs user_id alone, or org_id with agent_id; it has {_names(values)}. "
            'For anything else create the tool with a namespace, such as ("{user_id}", "memories")'
        )
    return tuple(map(_parse_label, _DEFAULTS[given]))


def _value(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        raise ConfigurationError(f"the configuration lacks {key}, which the namespace needs; it has {_names(values)}")
    value = values[key]
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{key} in the configuration must be a non-empty string, not {value!r}")
    return value


def _names(values: Mapping[str, Any]) -> str:
    """The keys that the caller gave. Those of a framework begin with underscores."""
    return ", ".join(str(key) for key in values if not str(key).startswith("__")) or "no keys"
