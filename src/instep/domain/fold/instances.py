"""Rules for events about instances: their builds, a dropped partition, the collection of old ones."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from instep.domain import events as e
from instep.domain.fold.step import Refused, Rule, Step, others
from instep.domain.instances import Instance, InstanceState, Reason, tally_of
from instep.domain.refs import PartitionRef, generation_text, instance_id
from instep.domain.state import Dropped, Forgotten, Key, Promoted, Served, State
from instep.domain.texts import duration_text
from instep.domain.wants import WantState

# Asking an enumeration for a member takes longer than all that is done with it here.
_MISSING, _BUILDING = InstanceState.MISSING, InstanceState.BUILDING
_LIVE, _REFRESHING = InstanceState.LIVE, InstanceState.REFRESHING
_NEW = frozenset({Reason.FIRST, Reason.GENERATION})
_AGAIN = frozenset({Reason.REBUILD, Reason.FINGERPRINT})


def _created(step: Step, event: e.InstanceCreated) -> None:
    ref, reason = event.ref, event.reason
    old = step.named(ref, event.generation)
    if reason in _NEW:
        if old is not None:
            raise Refused("not-allowed", f"{ref} has an instance already, and it is {old.state}")
    elif reason in _AGAIN:
        if old is None:
            raise Refused("not-allowed", f"{ref} has no instance that could be built again")
        if old.state is not _LIVE:
            raise Refused("not-allowed", f"{ref} is {old.state}, and would have to be Live to be built again")
        step.store(replace(old, ended_at=step.at, why=reason.value, waits=()))
    else:
        raise Refused("not-allowed", f"an instance is not made by itself for the reason {reason}")
    step.succeed(old, ref, event.generation, reason, event.by)


def _imported(step: Step, event: e.InstanceImported) -> None:
    if step.named(event.ref, "") is not None:
        raise Refused("not-allowed", f"{event.ref} has an instance already: only the first one can be imported")
    instance = Instance(
        str(instance_id(PartitionRef.parse(event.ref), event.build)),
        event.ref,
        "",
        step.sequence,
        None,
        Reason.IMPORTED,
        _LIVE,
        step.at,
        job=event.job,
        live_at=step.at,
        target=event.watermark,
        watermark=event.watermark,
        fingerprint=step.state.fingerprint(event.fingerprint),
        physical=event.physical,
    )
    if instance.uuid in step.instances:
        raise Refused("taken", f"there is an instance {instance.uuid} already")
    step.point(instance)
    _serve(step, instance)


def _building(step: Step, event: e.InstanceBuilding) -> None:
    old = step.current(event.instance, _MISSING)
    _check_inputs(step, old, event.inputs)
    _check_window(old, event.floor, event.target)
    step.store(
        replace(
            old,
            state=_BUILDING,
            job=event.job,
            started_at=step.at,
            floor=event.floor,
            target=event.target,
            fingerprint=step.state.fingerprint(event.fingerprint),
            revision=step.state.text(event.revision),
            inputs=_known(step, (*old.inputs, *event.inputs)),
        )
    )


def _live(step: Step, event: e.InstanceLive) -> None:
    old = _in_work(step, event.instance, _BUILDING, event.job)
    step.store(
        replace(
            old,
            state=_LIVE,
            live_at=step.at,
            watermark=_within(old, event.watermark),
            physical=event.physical,
            tally=tally_of(event.counts),
            waits=(),
        )
    )


def _failed(step: Step, event: e.InstanceFailed) -> None:
    old = _in_work(step, event.instance, _BUILDING, event.job)
    if not event.retry:
        step.fail(old, WantState.FAILED, f"the build of {old.ref} failed: {event.error}")
    step.leave(old, InstanceState.FAILED, Reason.FAILURE, event.error)


def _refreshing(step: Step, event: e.InstanceRefreshing) -> None:
    old = step.current(event.instance, _LIVE)
    _check_inputs(step, old, event.inputs)
    _check_window(old, event.floor, event.target)
    if old.watermark is None or event.floor > old.watermark:
        reason = f"{old.ref} is complete up to {old.watermark}, a refresh from {event.floor} on would leave a gap"
        raise Refused("window", reason)
    step.store(
        replace(
            old,
            state=_REFRESHING,
            refreshed_by=event.job,
            floor=event.floor,
            target=event.target,
            inputs=_known(step, (*old.inputs, *event.inputs)) if event.inputs else old.inputs,
        )
    )


def _refreshed(step: Step, event: e.InstanceRefreshed) -> None:
    old = _in_work(step, event.instance, _REFRESHING, event.job)
    watermark = _within(old, event.watermark)
    if old.watermark is not None and watermark < old.watermark:
        raise Refused("window", f"the watermark of {old.ref} is {old.watermark}, it never goes back")
    step.store(
        replace(
            old,
            state=_LIVE,
            watermark=watermark,
            tally=tally_of(event.counts),
            refreshes=old.refreshes + 1,
            error=None,
            waits=(),
        )
    )


def _refresh_failed(step: Step, event: e.RefreshFailed) -> None:
    old = _in_work(step, event.instance, _REFRESHING, event.job)
    if not event.retry:
        step.fail(old, WantState.FAILED, f"a refresh of {old.ref} failed: {event.error}")
    step.store(replace(old, state=_LIVE, error=event.error, waits=()))


def _tainted(step: Step, event: e.InstanceTainted) -> None:
    old = step.current(event.instance, _LIVE)
    step.leave(old, InstanceState.TAINTED, Reason.TAINT, event.why, event.by)


def _expired(step: Step, event: e.InstanceExpired) -> None:
    old = step.current(event.instance, _LIVE)
    why = f"its time to live of {duration_text(event.ttl)} was over" if event.ttl else ""
    step.leave(old, InstanceState.EXPIRED, Reason.EXPIRY, step.state.text(why), event.by)


def _served(step: Step, event: e.InstanceServed) -> None:
    instance = step.instances.get(event.instance)
    if instance is None:
        raise Refused("unknown-instance", f"no instance {event.instance} is known")
    if not instance.usable:
        raise Refused("not-allowed", f"instance {instance.uuid} of {instance.ref} is {instance.state}, and not Live")
    if instance.key not in step.canonical:
        raise Refused("not-allowed", f"{instance.ref} was dropped, and has not been built again")
    _serve(step, instance)


def _serve(step: Step, instance: Instance) -> None:
    key = instance.ref, instance.generation
    step.state.served[key] = instance.uuid
    step.changes.append(Served(instance.ref, instance.generation, instance.uuid))
    if instance.ref not in step.state.promoted:
        _promote(step, *key)


def _promoted(step: Step, event: e.GenerationPromoted) -> None:
    if (event.ref, event.generation) not in step.state.served:
        raise Refused("not-allowed", f"nothing is served of {generation_text(event.ref, event.generation)}")
    _promote(step, event.ref, event.generation)


def _promote(step: Step, ref: str, generation: str) -> None:
    step.state.promoted[ref] = generation
    step.changes.append(Promoted(ref, generation))


def _in_work(step: Step, uuid: str, state: InstanceState, job: str) -> Instance:
    """The instance that this job builds or refreshes; refused for any other job."""
    instance = step.current(uuid, state)
    if job != (instance.job if state is _BUILDING else instance.refreshed_by):
        raise others(instance, job)
    return instance


def _check_window(instance: Instance, floor: int, target: int) -> None:
    if floor > target:
        raise Refused("window", f"the window ({floor}, {target}] of {instance.ref} ends before it begins")


def _within(instance: Instance, watermark: int) -> int:
    """A watermark in the window of the job; nearly always its end, and then that very number, not another equal one."""
    target = instance.target
    if target is None or watermark < target:
        return watermark
    if watermark > target:
        raise Refused("window", f"watermark {watermark} of {instance.ref} is beyond its window, {target}")
    return target


def _check_inputs(step: Step, instance: Instance, inputs: tuple[str, ...]) -> None:
    for each in inputs:
        if each not in step.instances:
            raise Refused("unknown-instance", f"input {each} is not known")
        if each == instance.uuid:
            raise Refused("cycle", f"instance {each} cannot be made from itself")


def _known(step: Step, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts that the state has already; of an input that was collected since, its own."""
    if not inputs:
        return ()
    found = ((step.instances.get(each), each) for each in dict.fromkeys(inputs))
    return tuple(uuid if instance is None else instance.uuid for instance, uuid in found)


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


RULES: Mapping[type[e.Event], Rule] = {
    e.InstanceCreated: _created,
    e.InstanceImported: _imported,
    e.InstanceBuilding: _building,
    e.InstanceLive: _live,
    e.InstanceFailed: _failed,
    e.InstanceRefreshing: _refreshing,
    e.InstanceRefreshed: _refreshed,
    e.RefreshFailed: _refresh_failed,
    e.InstanceTainted: _tainted,
    e.InstanceExpired: _expired,
    e.InstanceServed: _served,
    e.GenerationPromoted: _promoted,
    e.PartitionDropped: _dropped,
    e.Collected: _collected,
}
