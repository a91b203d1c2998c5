"""The fold: what the ledger's events make of instances and wants.

`apply` is a function of the state and one event, without a clock (there is `Recorded.at`) and without chance:
folding the same log again gives the same state, UUIDs included. Every pair of state and event is defined: the event
is applied, or it is `Rejected` in words and nothing has changed.

The rules, beside which moves are allowed (`INSTANCE_MOVES`):

* Events about instances name UUIDs and, where a job reports, the job; only the canonical instance of a partition's
  generation takes them, and only from the job that works on it. What was left never changes again.
* A taint, an expiry and a failure leave the instance and make the next one, Missing, in the same step: the
  canonical instance is always one that is Missing, Building, Live or Refreshing.
* A rebuild needs a Live instance: a Missing one will be built anyway, one in work is to be waited for or stopped.
* What is served is apart from what is canonical: any instance that is Live can be, so that an earlier one can be served
  again, and a taint changes nothing for readers until there is something better.
* Wants follow the canonical instances of their refs (`wants.state_of`), in the step that changes these.
* A want fails when a build or refresh of one of its partitions does that it waits for, unless the event says that it
  will be retried: who appends it counts the tries. The next instance is made in any case, so that a later want finds
  one that is Missing and not one that has failed.
* A derivative want that ends badly (failed, canceled) takes along what waits for it, in the same step: instances that
  are Building fail, those Refreshing are Live as before, the wants on them become UpstreamFailed with the chain in
  words, and so on. When it succeeds, they wait no more: the job can go on.
* A dependency that would make an instance wait for itself is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from instep.domain import events as e
from instep.domain.durations import duration_text
from instep.domain.instances import Instance, InstanceState, Reason, tally_of
from instep.domain.refs import PartitionRef, instance_id
from instep.domain.state import Change, Forgotten, Key, Rejected, Served, State
from instep.domain.step import Step
from instep.domain.wants import WantState, watermark_needed

# Asking an enumeration for a member takes longer than all that is done with it here.
_MISSING, _BUILDING = InstanceState.MISSING, InstanceState.BUILDING
_LIVE, _REFRESHING = InstanceState.LIVE, InstanceState.REFRESHING
_FIRST, _GENERATION, _REBUILD, _FINGERPRINT = Reason.FIRST, Reason.GENERATION, Reason.REBUILD, Reason.FINGERPRINT


def apply(state: State, recorded: e.Recorded) -> tuple[Change, ...] | Rejected:
    """Apply the next event of the log, all or nothing: one that is to be appended is tried in this way first."""
    step = Step(state)
    rejected = _apply(step, recorded)
    return tuple(step.changes) if rejected is None else rejected


def follow(state: State, recorded: e.Recorded) -> tuple[Change, ...]:
    """Apply an event of the log, or skip it by rule: what is rejected or cannot be read is counted by name, and so is
    what is missing before it. What was applied already changes nothing.
    """
    step = Step(state)
    rejected = _apply(step, recorded)
    if rejected is not None:
        _skip(step, recorded, rejected)
    return tuple(step.changes)


def replay(log: Iterable[e.Recorded], state: State | None = None) -> State:
    """The state after these events: from the beginning, or on top of a state (which is changed)."""
    state = State() if state is None else state
    step = Step(state)
    for recorded in log:
        rejected = _apply(step, recorded)
        if rejected is not None:
            _skip(step, recorded, rejected)
        step.changes.clear()
    return state


def _apply(step: Step, recorded: e.Recorded) -> Rejected | None:
    sequence, event = recorded.sequence, recorded.event
    if sequence != step.state.sequence + 1:
        return Rejected("out-of-order", f"event {sequence} is not the one after {step.state.sequence}")
    handler = _HANDLERS.get(type(event))
    if handler is None:
        if isinstance(event, e.Unreadable):
            return Rejected(event.name, event.reason)
        return Rejected("unknown-kind", f"no event is a {type(event).__name__}")
    step.sequence, step.at = sequence, recorded.at
    rejected = handler(step, event)
    if rejected is not None:
        return rejected
    if step.touched or step.ended:
        step.settle()
    step.state.sequence = sequence
    return None


def _skip(step: Step, recorded: e.Recorded, rejected: Rejected | None) -> None:
    """Go on without an event that was rejected; if that was because others are missing, go on without those."""
    state = step.state
    missing = recorded.sequence - state.sequence - 1
    if missing < 0:
        return
    if missing:
        state.skipped["missing"] = state.skipped.get("missing", 0) + missing
        state.sequence += missing
        rejected = _apply(step, recorded)
    if rejected is not None:
        state.skipped[rejected.name] = state.skipped.get(rejected.name, 0) + 1
        state.sequence = recorded.sequence


# Handlers: one for each kind of event.


def _created(step: Step, event: e.InstanceCreated) -> Rejected | None:
    wrong = step.naming((event.ref,), event.generation)
    if wrong is not None:
        return wrong
    old = step.state.current(event.ref, event.generation)
    if event.reason is _FIRST or event.reason is _GENERATION:
        if old is not None:
            return Rejected("not-allowed", f"{event.ref} has an instance already, and it is {old.state}")
    elif event.reason is _REBUILD or event.reason is _FINGERPRINT:
        if old is None:
            return Rejected("not-allowed", f"{event.ref} has no instance that could be built again")
        if old.state is not _LIVE:
            return Rejected("not-allowed", f"{event.ref} is {old.state}, and would have to be Live to be built again")
        step.store(replace(old, ended_at=step.at, why=event.reason.value, waits=()))
    else:
        return Rejected("not-allowed", f"an instance is not made by itself for the reason {event.reason}")
    step.succeed(old, event.ref, event.generation, event.reason, event.by)
    return None


def _imported(step: Step, event: e.InstanceImported) -> Rejected | None:
    wrong = step.naming((event.ref,), "")
    if wrong is not None:
        return wrong
    if step.state.current(event.ref) is not None:
        return Rejected("not-allowed", f"{event.ref} has an instance already: only the first one can be imported")
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
        fingerprint=step.state.share(event.fingerprint, tuple(event.fingerprint.items())),
        physical=event.physical,
    )
    if instance.uuid in step.instances:
        return Rejected("taken", f"there is an instance {instance.uuid} already")
    step.point(instance)
    _serve(step, instance)
    return None


def _building(step: Step, event: e.InstanceBuilding) -> Rejected | None:
    old = step.current(event.instance, _MISSING)
    if isinstance(old, Rejected):
        return old
    wrong = step.links(event.inputs, old.uuid)
    if wrong is not None:
        return wrong
    if event.floor > event.target:
        return Rejected("window", f"the window ({event.floor}, {event.target}] of {old.ref} ends before it begins")
    state = step.state
    step.store(
        replace(
            old,
            state=_BUILDING,
            job=event.job,
            started_at=step.at,
            floor=event.floor,
            target=event.target,
            fingerprint=state.share(event.fingerprint, tuple(event.fingerprint.items())),
            revision=state.share(event.revision, event.revision),
            inputs=tuple(state.instances[each].uuid for each in dict.fromkeys(event.inputs)),
        )
    )
    return None


def _others(instance: Instance, job: str) -> Rejected:
    """Only the job that works on an instance says what becomes of it."""
    return Rejected("other-job", f"{instance.ref} is in work by job {instance.worked_on_by}, not {job}")


def _beyond(instance: Instance, watermark: int) -> Rejected:
    return Rejected("window", f"watermark {watermark} of {instance.ref} is beyond its window, {instance.target}")


def _known(step: Step, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts that the state has already; of an input that was collected since, its own."""
    found = ((step.instances.get(each), each) for each in dict.fromkeys(inputs))
    return tuple(uuid if instance is None else instance.uuid for instance, uuid in found)


def _live(step: Step, event: e.InstanceLive) -> Rejected | None:
    old = step.current(event.instance, _BUILDING)
    if isinstance(old, Rejected):
        return old
    if event.job != old.job:
        return _others(old, event.job)
    if old.target is not None and event.watermark > old.target:
        return _beyond(old, event.watermark)
    step.store(
        replace(
            old,
            state=_LIVE,
            live_at=step.at,
            watermark=old.target if event.watermark == old.target else event.watermark,
            physical=event.physical,
            tally=tally_of(event.counts),
            waits=(),
        )
    )
    return None


def _failed(step: Step, event: e.InstanceFailed) -> Rejected | None:
    old = step.current(event.instance, _BUILDING)
    if isinstance(old, Rejected):
        return old
    if event.job != old.job:
        return _others(old, event.job)
    if not event.retry:
        step.fail(old, WantState.FAILED, f"the build of {old.ref} failed: {event.error}")
    step.leave(old, InstanceState.FAILED, Reason.FAILURE, event.error)
    return None


def _refreshing(step: Step, event: e.InstanceRefreshing) -> Rejected | None:
    old = step.current(event.instance, _LIVE)
    if isinstance(old, Rejected):
        return old
    wrong = step.links(event.inputs, old.uuid)
    if wrong is not None:
        return wrong
    if event.floor > event.target:
        return Rejected("window", f"the window ({event.floor}, {event.target}] of {old.ref} ends before it begins")
    if old.watermark is None or event.floor > old.watermark:
        reason = f"{old.ref} is complete up to {old.watermark}, a refresh from {event.floor} on would leave a gap"
        return Rejected("window", reason)
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
    return None


def _refreshed(step: Step, event: e.InstanceRefreshed) -> Rejected | None:
    old = step.current(event.instance, _REFRESHING)
    if isinstance(old, Rejected):
        return old
    if event.job != old.refreshed_by:
        return _others(old, event.job)
    if old.target is not None and event.watermark > old.target:
        return _beyond(old, event.watermark)
    if old.watermark is not None and event.watermark < old.watermark:
        return Rejected("window", f"the watermark of {old.ref} is {old.watermark}, it never goes back")
    step.store(
        replace(
            old,
            state=_LIVE,
            watermark=old.target if event.watermark == old.target else event.watermark,
            tally=tally_of(event.counts),
            refreshes=old.refreshes + 1,
            error=None,
            waits=(),
        )
    )
    return None


def _refresh_failed(step: Step, event: e.RefreshFailed) -> Rejected | None:
    old = step.current(event.instance, _REFRESHING)
    if isinstance(old, Rejected):
        return old
    if event.job != old.refreshed_by:
        return _others(old, event.job)
    if not event.retry:
        step.fail(old, WantState.FAILED, f"a refresh of {old.ref} failed: {event.error}")
    step.store(replace(old, state=_LIVE, error=event.error, waits=()))
    return None


def _tainted(step: Step, event: e.InstanceTainted) -> Rejected | None:
    old = step.current(event.instance, _LIVE)
    if isinstance(old, Rejected):
        return old
    step.leave(old, InstanceState.TAINTED, Reason.TAINT, event.why, event.by)
    return None


def _expired(step: Step, event: e.InstanceExpired) -> Rejected | None:
    old = step.current(event.instance, _LIVE)
    if isinstance(old, Rejected):
        return old
    why = f"its time to live of {duration_text(event.ttl)} was over" if event.ttl else ""
    why = step.state.share(why, why)
    step.leave(old, InstanceState.EXPIRED, Reason.EXPIRY, why, event.by)
    return None


def _served(step: Step, event: e.InstanceServed) -> Rejected | None:
    instance = step.instances.get(event.instance)
    if instance is None:
        return Rejected("unknown-instance", f"no instance {event.instance} is known")
    if not instance.usable:
        return Rejected("not-allowed", f"instance {instance.uuid} of {instance.ref} is {instance.state}, and not Live")
    _serve(step, instance)
    return None


def _serve(step: Step, instance: Instance) -> None:
    # The one that was promoted last comes last.
    step.state.served.pop(instance.key, None)
    step.state.served[instance.key] = instance.uuid
    step.changes.append(Served(instance.ref, instance.generation, instance.uuid))


def _collected(step: Step, event: e.Collected) -> Rejected | None:
    state = step.state
    for uuid in event.instances:
        instance = state.instances.get(uuid)
        if instance is None:
            return Rejected("unknown-instance", f"no instance {uuid} is known")
        if not instance.left:
            return Rejected("in-use", f"instance {uuid} is the canonical one of {instance.ref}")
        if state.served.get(instance.key) == uuid:
            return Rejected("in-use", f"instance {uuid} of {instance.ref} is served")
    for id in event.wants:
        want = state.wants.get(id)
        if want is None:
            return Rejected("unknown-want", f"no want {id} is known")
        if not want.state.ended:
            return Rejected("in-use", f"want {id} has not ended")
    for uuid in event.instances:
        state.instances.pop(uuid, None)
    for id in event.wants:
        state.wants.pop(id, None)
    step.changes.append(Forgotten(event.instances, event.wants))
    return None


def _new_want(step: Step, id: str, refs: tuple[str, ...], generation: str) -> Rejected | None:
    if id in step.state.wants:
        return Rejected("taken", f"there is a want {id} already")
    if not refs:
        return Rejected("malformed", f"want {id} names no partition")
    return step.naming(refs, generation)


def _once(refs: tuple[str, ...]) -> tuple[str, ...]:
    return refs if len(refs) == 1 else tuple(dict.fromkeys(refs))


def _wanted(step: Step, event: e.WantCreated) -> Rejected | None:
    wrong = _new_want(step, event.want, event.refs, event.generation)
    if wrong is not None:
        return wrong
    step.begin(
        event.want,
        _once(event.refs),
        event.generation,
        watermark_needed(step.at, event.fresh_within, event.as_of),
        fresh_within=event.fresh_within,
        as_of=event.as_of,
        by=step.state.share(event.by, event.by),
    )
    return None


def _canceled(step: Step, event: e.WantCanceled) -> Rejected | None:
    want = step.state.wants.get(event.want)
    if want is None:
        return Rejected("unknown-want", f"no want {event.want} is known")
    if want.state.ended:
        return Rejected("not-allowed", f"want {want.id} has ended, and is {want.state}")
    by = f" by {event.by}" if event.by else ""
    why = f": {event.why}" if event.why else ""
    step.end(want, WantState.CANCELED, error=f"canceled{by}{why}", upstream=())
    return None


def _missed(step: Step, event: e.DependencyMissed) -> Rejected | None:
    wrong = _new_want(step, event.want, event.missing, event.generation)
    if wrong is not None:
        return wrong
    if not event.instances:
        return Rejected("malformed", f"job {event.job} names no instance that misses something")
    instances = []
    for uuid in dict.fromkeys(event.instances):
        instance = _waiter(step, uuid, event.job)
        if isinstance(instance, Rejected):
            return instance
        instances.append(instance)
    missing = [(ref, event.generation) for ref in event.missing]
    loop = _waiting_for(step.state, missing, {each.key for each in instances})
    if loop is not None:
        return Rejected("cycle", f"{loop[0]} would wait for itself")
    for instance in instances:
        step.store(replace(instance, waits=(*instance.waits, event.want)))
    step.begin(
        event.want,
        _once(event.missing),
        event.generation,
        event.as_of,
        as_of=event.as_of,
        by=f"job {event.job}",
        derivative_of=event.job,
        blocks=tuple(each.uuid for each in instances),
    )
    return None


def _waiter(step: Step, uuid: str, job: str) -> Instance | Rejected:
    """An instance that is to wait for others: the canonical one, in whatever state, if no other job works on it."""
    instance = step.instances.get(uuid)
    found = step.current(uuid, _MISSING if instance is None else instance.state)
    if isinstance(found, Rejected):
        return found
    return found if found.worked_on_by in (None, job) else _others(found, job)


def _waiting_for(state: State, start: list[Key], goal: set[Key]) -> Key | None:
    """Which of `goal` is among these partitions, or what they wait for, or what that waits for."""
    seen: set[Key] = set()
    pending = list(start)
    while pending:
        key = pending.pop()
        if key in goal:
            return key
        instance = state.current(*key)
        if key not in seen and instance is not None:
            seen.add(key)
            wants = [state.wants[each] for each in instance.waits]
            pending += [(ref, want.generation) for want in wants for ref in want.refs]
    return None


_HANDLERS: Mapping[type[Any], Callable[[Step, Any], Rejected | None]] = {
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
    e.Collected: _collected,
    e.WantCreated: _wanted,
    e.WantCanceled: _canceled,
    e.DependencyMissed: _missed,
}
