"""Switch readers from the anti-join to the queue, and back."""

from __future__ import annotations

from instep.errors import UserError
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.opening import demand_created
from instep.queues.states import recall, remember_reader


def switch(store: PendingStore, now: int) -> bool:
    """From now on `next` reads the queue. Refused unless it was equal to its anti-join not long ago. Whether anything
    changed.
    """
    demand_created(store)
    store.check()
    words, name = recall(store), store.spec.name
    if words.switched:
        return False
    if (reason := words.why_not_switch(now)) is not None:
        why, command = reason
        raise UserError(f"the queue {name} {why}", hint=f"Run: instep queue {command} {name}")
    remember_reader(store, switched=True)
    return True


def switch_back(store: PendingStore) -> bool:
    """From now on `next` reads the anti-join. Whether anything changed."""
    demand_created(store)
    if not recall(store).switched:
        return False
    remember_reader(store, switched=False)
    return True
