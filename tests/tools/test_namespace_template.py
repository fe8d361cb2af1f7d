"""A namespace from a configuration: what it becomes, and that no value crosses into another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.errors import ConfigurationError
from commonplace.tools import NamespaceTemplate


@pytest.mark.promise("facts-namespace-from-config")
@pytest.mark.parametrize("wrap", [lambda values: values, lambda values: {"configurable": values}])
def test_without_a_template_the_configuration_says_whose_facts_they_are(wrap: Any) -> None:
    anyone = NamespaceTemplate()
    assert anyone.resolve(wrap({"user_id": "u-123"})) == ("user", "u-123")
    assert anyone.resolve(wrap({"org_id": "acme", "agent_id": "alpha"})) == ("org", "acme", "alpha")
    assert anyone.resolve(wrap({"user_id": "u-123", "thread_id": "7"})) == ("user", "u-123")


@pytest.mark.promise("facts-namespace-from-config")
@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"configurable": {}},
        {"org_id": "acme"},
        {"agent_id": "alpha"},
        {"user_id": "u", "org_id": "acme"},
        {"user_id": "u", "org_id": "acme", "agent_id": "alpha"},
        {"user_id": "u", "agent_id": "alpha"},
        {"configurable": {}, "user_id": "u"},
    ],
)
def test_any_other_combination_asks_for_a_template(config: Any) -> None:
    with pytest.raises(ConfigurationError, match="create the tool with a namespace"):
        NamespaceTemplate().resolve(config)


@pytest.mark.promise("facts-namespace-template")
def test_placeholders_are_filled_from_the_configuration_of_each_call() -> None:
    template = NamespaceTemplate(("{user_id}", "memories"))
    assert template.resolve({"user_id": "a"}) == ("a", "memories")
    assert template.resolve({"configurable": {"user_id": "b"}}) == ("b", "memories")
    assert NamespaceTemplate(("org", "{org}", "{user}")).resolve({"user": "u", "org": "o"}) == ("org", "o", "u")
    assert NamespaceTemplate("{langgraph_user_id}").resolve({"langgraph_user_id": "x"}) == ("x",)
    assert NamespaceTemplate(("shared", "facts")).resolve() == ("shared", "facts")


@pytest.mark.promise("facts-namespace-template")
def test_a_missing_key_is_named_together_with_the_keys_that_are_there() -> None:
    assert issubclass(ConfigurationError, Exception)
    with pytest.raises(ConfigurationError) as caught:
        NamespaceTemplate(("{user_id}", "memories")).resolve({"org_id": "acme", "thread": "7", "__pregel_x": 1})
    assert str(caught.value) == ("the configuration lacks user_id, which the namespace needs; it has org_id, thread")
    with pytest.raises(ConfigurationError, match="it has no keys"):
        NamespaceTemplate("{user_id}").resolve()


@pytest.mark.promise("facts-namespace-template")
@pytest.mark.parametrize(
    "template",
    [(), ("",), ("a/b",), ("{a}{b}",), ("user-{a}",), ("{a",), ("{}",), ("a", 5), 5, ("x",) * 11, ("\x00",)],
)
def test_a_wrong_template_is_refused_when_the_tool_is_made(template: Any) -> None:
    with pytest.raises(ConfigurationError):
        NamespaceTemplate(template)


@pytest.mark.promise("facts-namespace-hostile-values")
@pytest.mark.parametrize(
    "value", ["", " ", "a/b", "../u2", "u\x00", "u\x01x", "u\n", "\ud800", "x" * 201, None, 5, True, ["u"], {"a": 1}]
)
def test_a_value_that_is_no_label_is_refused(value: Any) -> None:
    for template in (None, ("{user_id}", "memories")):
        with pytest.raises(ConfigurationError):
            NamespaceTemplate(template).resolve({"user_id": value})


@pytest.mark.promise("facts-namespace-hostile-values")
def test_a_value_that_looks_like_a_placeholder_stays_as_it_is() -> None:
    template = NamespaceTemplate(("{user_id}", "{org_id}"))
    assert template.resolve({"user_id": "{org_id}", "org_id": "acme"}) == ("{org_id}", "acme")
    assert template.resolve({"user_id": "{0.__class__}", "org_id": "%s"}) == ("{0.__class__}", "%s")


@pytest.mark.promise("facts-namespace-hostile-values")
def test_a_fixed_namespace_has_no_placeholders() -> None:
    assert NamespaceTemplate.fixed(("user", "{user_id}")).resolve({"user_id": "other"}) == ("user", "{user_id}")


tricky = st.sampled_from(["u", "u1", "a/b", "{user}", "{org}", "", " ", "user", "\x01", "..", "u\x01", "é", "e\u0301"])
values = st.one_of(tricky, st.text(max_size=6), st.none(), st.integers(), st.lists(st.text(max_size=2), max_size=2))
templates = st.lists(st.sampled_from(["{user}", "{org}", "memories", "user"]), min_size=1, max_size=4).map(tuple)


def resolved(template: tuple[str, ...], config: dict[str, Any]) -> tuple[str, ...] | None:
    try:
        return NamespaceTemplate(template).resolve(config)
    except ConfigurationError:
        return None


@pytest.mark.promise("facts-namespace-hostile-values")
@given(
    template=templates,
    one=st.fixed_dictionaries({"user": values, "org": values}),
    other=st.fixed_dictionaries({"user": values, "org": values}),
)
def test_different_values_never_give_the_same_namespace(
    template: tuple[str, ...], one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = resolved(template, one), resolved(template, other)
    keys = [label.strip("{}") for label in template if label.startswith("{")]
    if first is not None and second is not None:
        assert (first == second) == all(one[key] == other[key] for key in keys)
    if first is not None:
        # Each label is the template's own or a value as it was given: none was added, none taken away.
        assert first == tuple(one[label.strip("{}")] if label.startswith("{") else label for label in template)
