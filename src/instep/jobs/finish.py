"""Finish a part: check its instance and serve it. The live index stays unless its replacement passes the checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from instep.domain.jobs import Job, JobPart, JobState, Phase, end_of_part
from instep.domain.status import IndexState
from instep.domain.texts import amount
from instep.entities.aliases import aliases_of, late_aliases, lost_aliases
from instep.entities.setup import EntitySetup
from instep.errors import Conflict, InstepError
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.job_spans import tell_if_ended
from instep.jobs.live_refresh import LiveRefresh
from instep.jobs.refining import Once, Refining
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.own_faults import own_fault
from instep.planning.context import Context
from instep.targets.ownership import NotOurs
from instep.telemetry import traces

#: An index that is no longer served is kept this long, for readers that have it open.
SWEEP_SECONDS = 3600.0
#: So long a process does not look again for indexes that were replaced, where nothing changes.
_SWEEP_AGAIN = 600.0


def here(work: Callable[[], None]) -> None:
    work()


def finish(
    setup: EntitySetup,
    lease: Lease,
    context: Context,
    *,
    job_id: str,
    worker_id: str,
    heartbeat: Heartbeat,
    live_refresh: LiveRefresh,
    once: Once = here,
    sound: bool = False,
    refining: Refining | None = None,
) -> list[str] | None:
    """End a part without open slices, and serve its instance if the checks pass. Returns notes for the user; None if
    another worker finishes the part, or if changes in the source gave it new slices. Safe to repeat after a crash.
    `once` does upkeep of the index; `sound`: see `PartContext`. `refining`: of a worker that goes on; without it the
    index is refined before this returns.
    """
    if not context.ledger.parts.begin_finish(job_id, setup.ref, worker_id):
        return None
    with traces.span("promotion"):
        sealed, part = _seal(setup, lease, context, heartbeat)
        if taken := live_refresh.catch_up(part):
            context.progress.say(setup.ref.label, f"{amount(taken, 'change')} came while it was built")
            return None
        notes: list[str] = []
        with _compacting(setup, part, context, notes):
            _end(
                setup,
                sealed,
                part,
                context,
                notes,
                job_id=job_id,
                worker_id=worker_id,
                heartbeat=heartbeat,
                once=once,
                sound=sound,
                refining=refining,
            )
        return notes


def _untold(_: Phase) -> None:
    """Nothing."""


def _end(
    setup: EntitySetup,
    lease: Lease,
    part: JobPart,
    context: Context,
    notes: list[str],
    *,
    job_id: str,
    worker_id: str,
    heartbeat: Heartbeat,
    once: Once,
    sound: bool,
    refining: Refining | None,
) -> None:
    ledger = context.ledger
    done = _job(ledger, job_id).part(part.ref).counts
    # Of what wrote nothing there is nothing to tell.
    tell = partial(context.progress.phase, setup.ref.label) if done.written or done.deleted else _untold
    tell(Phase.INDEXES)
    if (found := _maintain(setup, part, once, refining)) is not None:
        notes.append(found)
    tell(Phase.CHECKS)
    job = _job(ledger, job_id)
    status = job.part(part.ref)
    state = end_of_part(status.slices, status.counts)
    if state is None:
        raise Conflict(f"job {job_id} still has {status.unfinished_slices} open slices")
    left = _left(ledger, part, job_id)
    problem = left or (None if sound else setup.problem(part, ledger, job, state))
    heartbeat.require(part.ref)
    if problem is None:
        tell(Phase.PROMOTION)
        setup.remove_replaced(part)
        try:
            problem = left = _promote(setup, part, ledger, state, job_id=job_id, worker_id=worker_id)
        except NotOurs as error:  # Another ledger has built its first index meanwhile, and was quicker.
            if not setup.staged(part):
                raise
            problem = str(error)
    if problem is None:
        _serve_all(setup, part, ledger)
        context.contacts.note(part.ref, part.generation, part.physical, part.epoch)
        rows = status.counts.read
        context.status_reporter.tell(part.ref, IndexState.INDEXED, epoch=part.epoch, job=job_id, rows=rows)
        tell(Phase.SERVED)
        _acknowledge(setup, part, ledger, job_id, notes)
        if problem := sweep(setup, ledger):
            notes.append(problem)
        if (problem := _refine(setup, part, context, once, refining)) is not None:
            notes.append(problem)
        return
    notes.append(problem)
    if setup.staged(part):
        if _moved(setup, part, ledger):
            _, part = _seal(setup, lease, context, heartbeat)  # One epoch serves one index.
        _serve_as_recorded(setup, part, ledger)
    elif not (part.fresh or left):
        _serve_again(setup, part, ledger)
    end = JobState.FAILED if part.fresh or left else state
    ended = ledger.parts.finish(job_id, part, end, worker_id=worker_id, error=problem)
    tell_if_ended(job_id, ended, ledger)
    _acknowledge(setup, part, ledger, job_id, notes)
    context.status_reporter.tell(part.ref, IndexState.ERROR, epoch=part.epoch, job=job_id, error=problem)
    if setup.staged(part):
        setup.target.drop(part.physical)


@contextmanager
def _compacting(setup: EntitySetup, part: JobPart, context: Context, notes: list[str]) -> Iterator[None]:
    """Compact what is recorded while the part ends. A failure becomes a note: all works without it, only slower. An
    error or Ctrl-C within does not wait for it.
    """
    compacted = context.background.beside(partial(setup.compact, part, context.ledger), "compaction")
    yield
    try:
        compacted()
    except Exception as error:
        notes.append(f"the records are not compacted: {own_fault(error) or error}")


def _maintain(setup: EntitySetup, part: JobPart, once: Once, refining: Refining | None) -> str | None:
    """Bring the indexes up to date. Returns what went wrong: searches work without, only slower, so that is no reason
    to fail the job.
    """
    try:
        if refining is None or not refining.is_under_way(setup, part.physical):
            once(partial(setup.target.maintain, part.physical))
    except Exception as error:
        return f"indexes are not up to date: {own_fault(error) or error}"
    return None


def _acknowledge(setup: EntitySetup, part: JobPart, ledger: Ledger, job_id: str, notes: list[str]) -> None:
    """Acknowledge the part's work. An error only becomes a note, as the part has ended: the next run catches up."""
    try:
        setup.acknowledge(part, ledger, job_id)
    except Exception as error:
        notes.append(f"finished keys are not acknowledged yet: {own_fault(error) or error}")
    if not setup.scanned:  # Of a table it is little, and says later which slice a row was in.
        with suppress(InstepError):  # It goes with its job.
            ledger.slices.forget_work(job_id, part.ref)


def _seal(setup: EntitySetup, lease: Lease, context: Context, heartbeat: Heartbeat) -> tuple[Lease, JobPart]:
    """Get a new epoch for the last steps. From here on the target rejects workers that still run a slice of this part
    (one given up as FAILED, for example), and the ledger rejects an earlier finisher.
    """
    sealed, part = _adopt(lease, context, heartbeat)
    setup.target.fence(part.physical, part.epoch)
    return sealed, part


def _adopt(lease: Lease, context: Context, heartbeat: Heartbeat) -> tuple[Lease, JobPart]:
    """Get a new epoch in the ledger alone."""
    since = context.clock.monotonic()
    sealed = context.ledger.leases.transfer(lease, lease.job_id)
    heartbeat.keep(sealed, since=since)
    return sealed, context.ledger.parts.adopt(sealed)


def _left(ledger: Ledger, part: JobPart, job_id: str) -> str | None:
    """The reason why the instance does not accept the job's result, or None: its upstream failed, for example."""
    instance = ledger.instances.get(part.instance)
    if instance is not None and instance.worked_on_by == job_id:
        return None
    why = instance.error if instance else "it was collected"
    return f"the job does not work on this instance any more, so it is not served{f': {why}' if why else ''}"


def _promote(
    setup: EntitySetup, part: JobPart, ledger: Ledger, state: JobState, *, job_id: str, worker_id: str
) -> str | None:
    """Move the aliases first, then record it in the ledger: the next finisher repairs a crash in between. Returns why
    the ledger rejects it, if the instance changed at the last moment.
    """
    if not setup.in_place:
        _serve(setup, part, ledger)
    try:
        whole = setup.reads_all(part)
        ended = ledger.parts.finish(job_id, part, state, worker_id=worker_id, promote=True, whole=whole)
        tell_if_ended(job_id, ended, ledger)
    except Conflict:
        left = _left(ledger, part, job_id)
        if left is None or _job(ledger, job_id).part(part.ref).state is not None:
            raise  # The job was stopped, for example: its next finisher goes on.
        return left
    return None


def _serve(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    for alias in aliases_of(setup, part.generation, ledger):
        setup.target.promote(alias, part.physical, part.epoch)


def _serve_all(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    for alias in late_aliases(setup, part.generation, part.physical, ledger):
        setup.target.promote(alias, part.physical, part.epoch)


def _serve_again(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    """Make aliases again that were dropped, of an index that is served as it is."""
    checkpoint = ledger.checkpoints.get(part.ref, part.generation)
    for alias in lost_aliases(setup, checkpoint, ledger) if checkpoint else ():
        setup.target.promote(alias, part.physical, part.epoch)


def _serve_as_recorded(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    """Move aliases back to the index that the ledger records as served. An earlier finisher that has not moved them yet
    is rejected because of its older epoch.
    """
    checkpoint = ledger.checkpoints.get(part.ref, part.generation)
    recorded = checkpoint.physical if checkpoint and setup.target.exists(checkpoint.physical) else None
    for alias in filter(setup.target.mine, aliases_of(setup, part.generation, ledger)):
        setup.target.promote(alias, recorded, part.epoch)


def _moved(setup: EntitySetup, part: JobPart, ledger: Ledger) -> list[str]:
    """The generation's aliases that serve the part's index already."""
    return [each for each in aliases_of(setup, part.generation, ledger) if setup.target.served(each) == part.physical]


def give_up(setup: EntitySetup, part: JobPart, ledger: Ledger, *, job_id: str, worker_id: str, why: str) -> None:
    """End a part that cannot be continued (its transform changed, for example), under an epoch just adopted."""
    aliases = aliases_of(setup, part.generation, ledger)
    if setup.staged(part) and aliases and _moved(setup, part, ledger) == aliases:
        # It was verified and promoted by a worker that died before recording it: complete it.
        status = _job(ledger, job_id).part(part.ref)
        state = end_of_part(status.slices, status.counts)
        if state and _left(ledger, part, job_id) is None:
            _serve(setup, part, ledger)  # Repeat it: readers may not see the new alias yet.
            ledger.jobs.start(job_id)
            whole = setup.reads_all(part)
            ended = ledger.parts.finish(job_id, part, state, worker_id=worker_id, promote=True, whole=whole)
            tell_if_ended(job_id, ended, ledger)
            _acknowledge(setup, part, ledger, job_id, [])
            return
    # The caller starts again, so wants keep waiting.
    _end_failed(setup, part, ledger, job_id=job_id, worker_id=worker_id, error=f"given up: {why}", retry=True)


def fail_without_upstream(
    setup: EntitySetup, lease: Lease, context: Context, *, worker_id: str, heartbeat: Heartbeat, error: str
) -> None:
    """End a part with open slices whose instance was taken from its job because its upstream failed."""
    _, part = _seal(setup, lease, context, heartbeat)
    _end_failed(setup, part, context.ledger, job_id=lease.job_id, worker_id=worker_id, error=error, retry=False)


def abandon(
    setup: EntitySetup, lease: Lease, context: Context, *, worker_id: str, heartbeat: Heartbeat, why: str
) -> None:
    """End a part that this worker has begun and no worker can continue: its plan or its index is lost, for example. The
    rest is planned again.
    """
    _, part = _adopt(lease, context, heartbeat)
    if setup.target.exists(part.physical):
        setup.target.fence(part.physical, part.epoch)
    give_up(setup, part, context.ledger, job_id=lease.job_id, worker_id=worker_id, why=why)


def _end_failed(
    setup: EntitySetup, part: JobPart, ledger: Ledger, *, job_id: str, worker_id: str, error: str, retry: bool
) -> None:
    """Drop the part's staged data; what it committed to an index that stays is recorded first."""
    staged = setup.staged(part)
    if staged:
        _serve_as_recorded(setup, part, ledger)
    elif setup.target.exists(part.physical):
        from instep.jobs.wave import record_committed  # Imports Arrow: only for this rare case.

        setup.target.fence(
            part.physical, part.epoch
        )  # From here on no worker can commit: such a commit would not be recorded.
        record_committed(setup, part, ledger, job_id=job_id, worker_id=worker_id)
    ended = ledger.parts.finish(job_id, part, JobState.FAILED, worker_id=worker_id, error=error, retry=retry)
    tell_if_ended(job_id, ended, ledger)
    _acknowledge(setup, part, ledger, job_id, [])
    if staged:
        setup.target.drop(part.physical)


def _job(ledger: Ledger, job_id: str) -> Job:
    job = ledger.jobs.get(job_id)
    if job is None:
        raise Conflict(f"job {job_id} is not in the ledger any more")
    return job


def sweep_unchanged(setups: Iterable[EntitySetup], context: Context) -> None:
    """Sweep for partitions with nothing to do, whose next part may be far away; of those of an entity for one, now and
    then. Their target is asked only if the ledger knows of indexes that were replaced, and only those are dropped.
    """
    now = context.clock.monotonic()
    for setup in setups:
        if context.swept.get(setup.alias, -math.inf) > now - _SWEEP_AGAIN:
            continue
        context.swept[setup.alias] = now
        with suppress(InstepError):
            replaced = context.ledger.partitions.replaced(setup.ref)
            if replaced and (problem := sweep(setup, context.ledger, among=replaced)):
                context.progress.say(setup.ref.label, problem)


def sweep(setup: EntitySetup, ledger: Ledger, among: Collection[str] | None = None) -> str | None:
    """Drop indexes that no build will finish and no reader uses any more. An index of another generation stays though
    the alias does not serve it, and so does one that a stopped job has begun, or of which no job is known: a ledger
    from a backup does not know of later ones. Returns what is left, unless the next run may well do it.
    """
    try:
        left = setup.target.leftovers(setup.alias, idle_seconds=SWEEP_SECONDS)
        needed = ledger.partitions.indexes(setup.ref.entity) if left else set()
        free = [each for each in left if each not in needed and (among is None or each in among)]
        made = ledger.partitions.made(free) if free else set()
        for physical in free:
            if physical in made:
                setup.target.drop(physical)
    except InstepError:
        return None
    except Exception as error:
        return f"indexes that were replaced are not dropped: {own_fault(error) or error}"
    if strange := [each for each in free if each not in made]:
        return (
            f"kept, because this ledger does not know them: {', '.join(strange)}. If it is a backup, they may be of"
            f" later generations: instep adopt {setup.alias} --generation NAME. Otherwise drop them in the store."
        )
    return None


def _refine(setup: EntitySetup, part: JobPart, context: Context, once: Once, refining: Refining | None) -> str | None:
    """Optimize the index after the part has ended: a failure, which it returns, or Ctrl-C here costs time only."""
    try:
        if refining is not None:
            refining.begin(setup, part.physical, once)
        elif setup.target.refinable(part.physical):
            context.progress.say(setup.ref.label, "done, searches work; building the index that makes them quicker")
            once(partial(setup.target.refine, part.physical))
    except Exception as error:
        return f"searches are slower than they could be: {own_fault(error) or error}"
    return None
