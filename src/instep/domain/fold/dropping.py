"""Rules for a dropped partition: its canonical instances are left, without a successor."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from instep.domain import events as e
from instep.domain.fold.step import Refused, Rule, Step
from instep.domain.instances import Instance, InstanceState
from instep.domain.state import Dropped, Key
from instep.domain.wants import WantState

#: Final states of instances that were in work.
_LEFT_AS: Mapping[InstanceState, InstanceState] = {
    InstanceState.BUILDING: InstanceState.FAILED,
    InstanceState.REFRESHING: InstanceState.LIVE,
}


def _dropped(step: Step, event: e.PartitionDropped) -> None:
    keys = [(event.ref, generation) for generation in dict.fromkeys(event.generations)]
    found = [step.named(*key) for key in keys]
    if not any(found) and not any(key in step.open for key in keys):
        raise Refused("not-allowed", f"nothing is indexed of {event.ref}, and no want names it")
    why = f"dropped by {event.by}" if event.by else "dropped"
    for key in keys:
        _cancel(step, key, f"canceled: {event.ref} was {why}")
    for instance in found:
        if instance is not None:
            _leave(step, instance, why)
    for key in keys:
        step.state.served.pop(key, None)
    step.state.promoted.pop(event.ref, None)
    step.changes.append(Dropped(event.ref, tuple(generation for _, generation in keys)))


def _cancel(step: Step, key: Key, why: str) -> None:
    """Cancel open wants of the partition first: it will not exist."""
    for want in step.state.open_wants(*key):
        step.end(replace(want, state=WantState.CANCELED, ended_at=step.at, error=why, upstream=()))


def _leave(step: Step, old: Instance, why: str) -> None:
    state = _LEFT_AS.get(old.state, old.state)
    error = why if state is InstanceState.FAILED else old.error
    step.store(replace(old, state=state, ended_at=step.at, why=why, error=error, waits=()))
    del step.canonical[old.key]


RULES: Mapping[type[e.Event], Rule] = {e.PartitionDropped: _dropped}
