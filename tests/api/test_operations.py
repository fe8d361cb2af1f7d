"""The table of operations is true: of the library's methods, of the rights that a caller needs, and of the client."""

from __future__ import annotations

import inspect
from operator import attrgetter
from typing import Any

import pytest

from commonplace.api.operations import BY_NAME, OPERATIONS
from commonplace.api.parameters import ABSENT, REQUIRED, Operation
from commonplace.space.files import Files
from commonplace.space.items import Items
from commonplace.space.records import Records
from commonplace.space.space import Space
from commonplace.space.threads import Threads
from commonplace.space.working_memory import WorkingMemories

OWNERS = {
    "": Space,
    "files": Files,
    "records": Records,
    "items": Items,
    "threads": Threads,
    "threads.working": WorkingMemories,
}
CALLS = [operation for operation in OPERATIONS if operation.call is not None]
NOT_OF_THE_METHOD = {"wrapped", "everywhere"}
"""Arguments that are about the answer, which a handler takes out."""


def method_of(operation: Operation) -> Any:
    owner, _, name = str(operation.call).rpartition(".")
    return getattr(OWNERS[owner], name)


@pytest.mark.parametrize("operation", CALLS, ids=attrgetter("name"))
def test_the_arguments_of_an_operation_are_those_of_its_method(operation: Operation) -> None:
    parameters = inspect.signature(method_of(operation)).parameters
    for argument in operation.arguments:
        if argument.sent is not None or argument.name in NOT_OF_THE_METHOD:
            continue
        assert argument.name in parameters
        if argument.place == "query" and argument.default not in (REQUIRED, ABSENT):
            # The client leaves out an argument that has the library's default.
            assert argument.kind.receive(argument.default) == parameters[argument.name].default, argument.name


def test_names_and_addresses_are_unique() -> None:
    assert len(BY_NAME) == len(OPERATIONS) == len({operation.request for operation in OPERATIONS})


def test_the_client_has_one_operation_for_each_method() -> None:
    called = [operation.call for operation in CALLS if operation.in_client]
    assert len(called) == len(set(called))
