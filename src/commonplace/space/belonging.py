"""That every message, and every working memory of a thread, has a thread that is there and is of the thread's resource.

Calls that write conversations see to it; bringing back former states does not, so it is checked after that, and
taking in what another book had does not, so it is asked before that.
"""

from __future__ import annotations

from collections.abc import Sequence

from commonplace.checks import JSON
from commonplace.entry import SEPARATOR, Entry
from commonplace.errors import Conflict
from commonplace.filters import Filter
from commonplace.space import timeline
from commonplace.space.keys import MESSAGE, THREAD, WORKING
from commonplace.space.messages import thread_of_key, thread_prefix
from commonplace.space.working import thread_key
from commonplace.store import Scan, Transaction


def belongs(transaction: Transaction, state: Entry) -> bool:
    """Whether this state may be written: it is of no thread, or of one that is there and of the same resource."""
    thread_id = _thread_of(state)
    return thread_id is None or _tear(thread_id, _owner(transaction, thread_id), state) is None


def check_belonging(transaction: Transaction, replaced: Sequence[Entry], brought_back: Sequence[Entry]) -> None:
    """Raise Conflict where these states, gone and come back in this transaction, have torn a conversation."""
    owners: dict[str, JSON] = {}
    for state in brought_back:
        thread_id = _thread_of(state)
        if thread_id is None:
            continue
        if thread_id not in owners:
            owners[thread_id] = _owner(transaction, thread_id)
        _check_owner(thread_id, owners[thread_id], state)
    former_owners = {state.key: state.attributes["resourceId"] for state in replaced if state.kind == THREAD}
    for thread_id, former_owner in former_owners.items():
        owner = _owner(transaction, thread_id)
        if owner is None:
            _check_nothing_left(transaction, thread_id)
        elif owner != former_owner:
            for state in (*timeline.all_messages(transaction, thread_id), *_working(transaction, thread_id)):
                _check_owner(thread_id, owner, state)


def _thread_of(state: Entry) -> str | None:
    """The thread that a message or a working memory is of."""
    if state.kind == WORKING:
        scope, _, id = state.key.partition(SEPARATOR)
        return id if scope == "thread" else None
    return thread_of_key(state.key) if state.kind == MESSAGE else None


def _owner(transaction: Transaction, thread_id: str) -> JSON:
    thread = transaction.get(THREAD, thread_id)
    return None if thread is None else thread.attributes["resourceId"]


def _working(transaction: Transaction, thread_id: str) -> Sequence[Entry]:
    found = transaction.get(WORKING, thread_key(thread_id))
    return () if found is None else (found,)


def _check_owner(thread_id: str, owner: JSON, state: Entry) -> None:
    tear = _tear(thread_id, owner, state)
    if tear is not None:
        raise Conflict(f"nothing was changed: {tear}")


def _tear(thread_id: str, owner: JSON, state: Entry) -> str | None:
    """What is wrong with a state in a thread of this owner, in words."""
    if owner is None:
        return f"the thread {thread_id} is no longer there; bring it back first"
    resource = state.attributes.get("resourceId")
    if resource != owner:
        return (
            f"the thread {thread_id} would hold messages of two resources; "
            f"it belongs to {owner!r}, a {state.kind} of it to {resource!r}"
        )
    return None


def _check_nothing_left(transaction: Transaction, thread_id: str) -> None:
    some = transaction.scan(Scan(Filter(kinds=(MESSAGE,), key_prefix=thread_prefix(thread_id)), limit=1)).entries
    if some or _working(transaction, thread_id):
        raise Conflict(f"nothing was changed: the thread {thread_id} is used since; delete it instead")
