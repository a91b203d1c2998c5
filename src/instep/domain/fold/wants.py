"""Rules for events about wants, and for missed dependencies: a derivative want, for which instances wait."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from instep.domain import events as e
from instep.domain.fold.step import Refused, Rule, Step, others
from instep.domain.instances import Instance, InstanceState
from instep.domain.state import Key, State
from instep.domain.wants import Want, WantState, watermark_needed

_IDLE, _CANCELED = WantState.IDLE, WantState.CANCELED


def _created(step: Step, event: e.WantCreated) -> None:
    refs = step.wanted(event.want, event.refs)
    current = [step.named(ref, event.generation) for ref in refs]
    want = Want(
        event.want,
        refs,
        event.generation,
        _IDLE,
        step.at,
        watermark_needed(step.at, event.fresh_within, event.as_of),
        event.fresh_within,
        event.as_of,
        step.state.text(event.by),
        traceparent=event.traceparent,
        settings=event.settings,
        retries=event.retries,
    )
    step.begin(want, current)


def _failed(step: Step, event: e.WantFailed) -> None:
    want = _open(step, event.want)
    if event.final:
        step.end(replace(want, state=WantState.FAILED, ended_at=step.at, error=event.error, upstream=()))
        return
    if event.job:
        _demand_job(step, want, event.job)
    elif want.state is not _IDLE:
        raise Refused("not-allowed", f"want {want.id} is {want.state}: a job is there for it")
    if want.rests(step.at):
        raise Refused("not-allowed", f"want {want.id} pauses after its last attempt")
    failed = want.failed(WantState.FAILED, step.at, event.error)
    # The job that was stopped is still there, to be resumed after the pause.
    step.attempted(failed if failed.ended_at is not None else replace(failed, state=want.state))


def _demand_job(step: Step, want: Want, job: str) -> None:
    """Check that the want is Building by this job."""
    instances = (step.state.current(ref, want.generation) for ref in want.refs)
    if want.state is not WantState.BUILDING or not any(each and each.worked_on_by == job for each in instances):
        raise Refused("not-allowed", f"want {want.id} is {want.state}, and not by job {job}")


def _open(step: Step, id: str) -> Want:
    want = step.wants.get(id)
    if want is None:
        raise Refused("unknown-want", f"no want {id} is known")
    if want.ended_at is not None:
        raise Refused("not-allowed", f"want {want.id} has ended, and is {want.state}")
    return want


def _canceled(step: Step, event: e.WantCanceled) -> None:
    want = step.wants.get(event.want)
    answered = want is not None and want.given_up
    if want is None or not answered:
        want = _open(step, event.want)
    by = f" by {event.by}" if event.by else ""
    why = f": {event.why}" if event.why else ""
    canceled = replace(want, state=_CANCELED, ended_at=step.at, error=f"canceled{by}{why}", upstream=())
    if answered:
        step.answer(canceled)
    else:
        step.end(canceled)


def _missed(step: Step, event: e.DependencyMissed) -> None:
    refs = step.wanted(event.want, event.missing)
    current = [step.named(ref, event.generation) for ref in refs]
    if not event.instances:
        raise Refused("malformed", f"job {event.job} names no instance that misses something")
    instances = [_waiter(step, uuid, event.job) for uuid in dict.fromkeys(event.instances)]
    loop = _waiting_for(step.state, [(ref, event.generation) for ref in refs], {each.key for each in instances})
    if loop is not None:
        raise Refused("cycle", f"{loop[0]} would wait for itself")
    for instance in instances:
        step.store(replace(instance, waits=(*instance.waits, event.want)))
    want = Want(
        event.want,
        refs,
        event.generation,
        WantState.IDLE,
        step.at,
        needed=event.as_of,
        as_of=event.as_of,
        by=f"job {event.job}",
        derivative_of=event.job,
        blocks=tuple(each.uuid for each in instances),
    )
    step.begin(want, current)


def _waiter(step: Step, uuid: str, job: str) -> Instance:
    """An instance that is to wait for others: the canonical one, in whatever state, if no other job works on it."""
    known = step.instances.get(uuid)
    instance = step.current(uuid, InstanceState.MISSING if known is None else known.state)
    if instance.worked_on_by not in (None, job):
        raise others(instance, job)
    return instance


def _waiting_for(state: State, start: list[Key], goal: set[Key]) -> Key | None:
    """The first of `goal` that these partitions are or depend on, directly or not; None if there is none."""
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


RULES: Mapping[type[e.Event], Rule] = {
    e.WantCreated: _created,
    e.WantFailed: _failed,
    e.WantCanceled: _canceled,
    e.DependencyMissed: _missed,
}
