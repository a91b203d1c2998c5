"""Rules for the collection of old instances and wants: forget them."""

from __future__ import annotations

from collections.abc import Mapping

from instep.domain import events as e
from instep.domain.fold.step import Refused, Rule, Step
from instep.domain.state import Forgotten, State


def _collected(step: Step, event: e.Collected) -> None:
    _check_instances(step.state, event.instances)
    _check_wants(step.state, event.wants)
    for uuid in event.instances:
        step.instances.pop(uuid, None)
    for id in event.wants:
        step.wants.pop(id, None)
    step.changes.append(Forgotten(event.instances, event.wants))


def _check_instances(state: State, uuids: tuple[str, ...]) -> None:
    for uuid in uuids:
        instance = state.instances.get(uuid)
        if instance is None:
            raise Refused("unknown-instance", f"no instance {uuid} is known")
        if instance.ended_at is None:
            raise Refused("in-use", f"instance {uuid} is the canonical one of {instance.ref}")
        if state.served.get((instance.ref, instance.generation)) == uuid:
            raise Refused("in-use", f"instance {uuid} of {instance.ref} is served")


def _check_wants(state: State, ids: tuple[str, ...]) -> None:
    for id in ids:
        want = state.wants.get(id)
        if want is None:
            raise Refused("unknown-want", f"no want {id} is known")
        if want.ended_at is None:
            raise Refused("in-use", f"want {id} has not ended")


RULES: Mapping[type[e.Event], Rule] = {e.Collected: _collected}
