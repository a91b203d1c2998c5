"""Finishing a part: may its instance be served? Live data stays unless what replaces it is proved better."""

from __future__ import annotations

from contextlib import suppress

from instep.domain.amounts import amount
from instep.domain.jobs import Job, JobPart, JobState, end_of_part
from instep.domain.status import IndexState
from instep.entities.setup import EntitySetup
from instep.errors import Conflict, InstepError
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.job_spans import tell_if_ended
from instep.jobs.live_refresh import LiveRefresh
from instep.ledger.ledger import Lease, Ledger
from instep.planning.context import Context
from instep.telemetry import traces

#: An index that is not served any more stays this long, for readers that have it open.
SWEEP_SECONDS = 3600.0


def finish(
    setup: EntitySetup,
    lease: Lease,
    context: Context,
    *,
    job_id: str,
    worker_id: str,
    heartbeat: Heartbeat,
    live_refresh: LiveRefresh,
    sound: bool = False,
) -> list[str] | None:
    """End a part without open slices, and serve its instance if it may be served; None if another worker
    does, or if it got more slices, of what came meanwhile. Returns notes for the user. Safe to repeat after a crash.
    `sound`: see `PartContext`.
    """
    if not context.ledger.begin_finish(job_id, setup.ref, worker_id):
        return None
    with traces.span("promotion"):
        sealed, part = _seal(setup, lease, context, heartbeat)
        if taken := live_refresh.catch_up(part):
            context.progress.say(setup.ref.label, f"{amount(taken, 'change')} came while it was built")
            return None
        return _end(setup, sealed, part, context, job_id=job_id, worker_id=worker_id, heartbeat=heartbeat, sound=sound)


def _end(
    setup: EntitySetup,
    lease: Lease,
    part: JobPart,
    context: Context,
    *,
    job_id: str,
    worker_id: str,
    heartbeat: Heartbeat,
    sound: bool,
) -> list[str]:
    ledger, target = context.ledger, setup.target
    context.progress.say(setup.ref.label, "bringing indexes up to date")
    notes: list[str] = []
    try:
        target.maintain(part.physical)
    except InstepError as error:
        # Searches find everything without the index too, only slower: not a reason to fail the job.
        notes.append(f"indexes are not up to date: {error}")
    job = _job(ledger, job_id)
    status = job.part(part.ref)
    state = end_of_part(status.slices, status.counts)
    if state is None:
        raise Conflict(f"job {job_id} still has {status.unfinished_slices} open slices")
    left = _left(ledger, part, job_id)
    problem = left or (None if sound else setup.problem(part, ledger, job, state))
    heartbeat.require(part.ref)
    if problem is None:
        setup.remove_replaced(part)
        problem = left = _promote(setup, part, ledger, state, job_id=job_id, worker_id=worker_id)
    if problem is None:
        _serve_all(setup, part, ledger)
        rows = status.counts.read
        context.status_reporter.tell(part.ref, IndexState.INDEXED, epoch=part.epoch, job=job_id, rows=rows)
        _settle(setup, part, ledger, job_id, notes)
        _sweep(setup, ledger)
        _refine(setup, part, context, notes)
        return notes
    notes.append(problem)
    if setup.staged(part):
        if _moved(setup, part, ledger):
            _, part = _seal(setup, lease, context, heartbeat)  # One epoch serves one index.
        _serve_as_recorded(setup, part, ledger)
    end = JobState.FAILED if part.fresh or left else state
    ended = ledger.finish_part(job_id, part, end, worker_id=worker_id, error=problem)
    tell_if_ended(job_id, ended, ledger)
    _settle(setup, part, ledger, job_id, notes)
    context.status_reporter.tell(part.ref, IndexState.ERROR, epoch=part.epoch, job=job_id, error=problem)
    if setup.staged(part):
        target.drop(part.physical)
    return notes


def _settle(setup: EntitySetup, part: JobPart, ledger: Ledger, job_id: str, notes: list[str]) -> None:
    """The part has ended by now, however this ends: the next run catches up."""
    try:
        setup.settle(part, ledger, job_id)
    except InstepError as error:
        notes.append(f"what is done is not acknowledged yet: {error}")


def _seal(setup: EntitySetup, lease: Lease, context: Context, heartbeat: Heartbeat) -> tuple[Lease, JobPart]:
    """A new epoch for the last steps. From here on the target refuses whoever still had a slice of this
    part in hand (of one that was given up as FAILED, say), and the ledger an earlier finisher.
    """
    since = context.clock.monotonic()
    sealed = context.ledger.transfer_lease(lease, lease.job_id)
    heartbeat.keep(sealed, since=since)
    part = context.ledger.adopt_part(sealed)
    setup.target.fence(part.physical, part.epoch)
    return sealed, part


def _left(ledger: Ledger, part: JobPart, job_id: str) -> str | None:
    """Why the instance does not take what the job has made of it, or None. What it was to be made from failed, say."""
    instance = ledger.instance(part.instance)
    if instance is not None and instance.worked_on_by == job_id:
        return None
    why = instance.error if instance else "it was collected"
    return f"the job does not work on this instance any more, so it is not served{f': {why}' if why else ''}"


def _promote(
    setup: EntitySetup, part: JobPart, ledger: Ledger, state: JobState, *, job_id: str, worker_id: str
) -> str | None:
    """Aliases first, ledger second: a crash in between is made good by whoever finishes the part. Returns why the
    ledger does not take it, if something has happened to the instance at the last moment.
    """
    if not setup.in_place:
        _serve(setup, part, ledger)
    try:
        whole = setup.reads_all(part)
        ended = ledger.finish_part(job_id, part, state, worker_id=worker_id, promote=True, whole=whole)
        tell_if_ended(job_id, ended, ledger)
    except Conflict:
        left = _left(ledger, part, job_id)
        if left is None or _job(ledger, job_id).part(part.ref).state is not None:
            raise  # The job was stopped, say: its next finisher goes on.
        return left
    return None


def _serve(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    for alias in _aliases(setup, part.generation, ledger):
        setup.target.promote(alias, part.physical, part.epoch)


def _serve_all(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    for alias in late_aliases(setup, part.generation, part.physical, ledger):
        setup.target.promote(alias, part.physical, part.epoch)


def late_aliases(setup: EntitySetup, generation: str, physical: str, ledger: Ledger) -> list[str]:
    """Aliases that are to serve an index that several partitions share, and do not: all of these that are built are in
    it by now. Each partition looks when it has recorded its own, so the last one sees them all; if that dies, the next
    run of any of them does.
    """
    if not setup.in_place:
        return []
    late = [each for each in _aliases(setup, generation, ledger) if setup.target.served(each) != physical]
    if not late or not setup.target.exists(physical):
        return []  # What is gone is built again, which is for the next plan to say.
    built = [each for each in ledger.entity_checkpoints(setup.ref.entity) if each.generation == generation]
    return late if all(each.physical == physical for each in built) else []


def _serve_as_recorded(setup: EntitySetup, part: JobPart, ledger: Ledger) -> None:
    """What the ledger says is served, from now on: aliases that were moved to what may not be served after all are
    moved back, and an earlier finisher who has not moved them yet cannot any more, under its older epoch.
    """
    checkpoint = ledger.checkpoint(part.ref, part.generation)
    for alias in _aliases(setup, part.generation, ledger):
        setup.target.promote(alias, checkpoint.physical if checkpoint else None, part.epoch)


def _aliases(setup: EntitySetup, generation: str, ledger: Ledger) -> list[str]:
    """What a generation is read by: its own alias, if it has a name, and that of the entity if it is the
    promoted one, or the first that is built.
    """
    own = setup.alias_of(generation)
    is_promoted = ledger.promoted(setup.ref) in (None, generation)
    return [*([own] if own else []), *([setup.alias] if is_promoted else [])]


def _moved(setup: EntitySetup, part: JobPart, ledger: Ledger) -> list[str]:
    """Those of its aliases that serve the part's index already."""
    return [each for each in _aliases(setup, part.generation, ledger) if setup.target.served(each) == part.physical]


def give_up(setup: EntitySetup, part: JobPart, ledger: Ledger, *, job_id: str, worker_id: str, why: str) -> None:
    """End a part that cannot be continued (its transform changed, say), under an epoch that it has just been adopted
    under.
    """
    aliases = _aliases(setup, part.generation, ledger)
    if setup.staged(part) and aliases and _moved(setup, part, ledger) == aliases:
        # Verified and promoted by a worker that died before it could say so: that is done, not given up.
        status = _job(ledger, job_id).part(part.ref)
        state = end_of_part(status.slices, status.counts)
        if state and _left(ledger, part, job_id) is None:
            _serve(setup, part, ledger)  # Again: readers may not see yet what was decided.
            ledger.start_job(job_id)
            whole = setup.reads_all(part)
            ended = ledger.finish_part(job_id, part, state, worker_id=worker_id, promote=True, whole=whole)
            tell_if_ended(job_id, ended, ledger)
            _settle(setup, part, ledger, job_id, [])
            return
    # Whoever gives it up begins anew: wants go on waiting.
    _end_failed(setup, part, ledger, job_id=job_id, worker_id=worker_id, error=f"given up: {why}", retry=True)


def strand(
    setup: EntitySetup, lease: Lease, context: Context, *, worker_id: str, heartbeat: Heartbeat, error: str
) -> None:
    """End a part with open slices whose instance has been taken from its job: what it waited for has failed."""
    _, part = _seal(setup, lease, context, heartbeat)
    _end_failed(setup, part, context.ledger, job_id=lease.job_id, worker_id=worker_id, error=error, retry=False)


def _end_failed(
    setup: EntitySetup, part: JobPart, ledger: Ledger, *, job_id: str, worker_id: str, error: str, retry: bool
) -> None:
    """What the part had begun is dropped; what it had committed in an index that stays is recorded first."""
    staged = setup.staged(part)
    if staged:
        _serve_as_recorded(setup, part, ledger)
    elif setup.target.exists(part.physical):
        from instep.jobs.wave import record_committed  # Brings Arrow: for the rare case.

        setup.target.fence(part.physical, part.epoch)  # Nobody commits any more what would not be recorded.
        record_committed(setup, part, ledger, job_id=job_id, worker_id=worker_id)
    ended = ledger.finish_part(job_id, part, JobState.FAILED, worker_id=worker_id, error=error, retry=retry)
    tell_if_ended(job_id, ended, ledger)
    _settle(setup, part, ledger, job_id, [])
    if staged:
        setup.target.drop(part.physical)


def _job(ledger: Ledger, job_id: str) -> Job:
    job = ledger.job(job_id)
    if job is None:
        raise Conflict(f"job {job_id} is not in the ledger any more")
    return job


def _sweep(setup: EntitySetup, ledger: Ledger) -> None:
    """Drop what no build will finish and no reader holds any more. What is built of another generation is no leftover,
    though the alias does not serve it; nor is what a job that was stopped has begun.
    """
    with suppress(InstepError):  # The next run sweeps again.
        left = setup.target.leftovers(setup.alias, idle_seconds=SWEEP_SECONDS)
        needed = ledger.indexes(setup.ref.entity) if left else set()
        for physical in left:
            if physical not in needed:
                setup.target.drop(physical)


def _refine(setup: EntitySetup, part: JobPart, context: Context, notes: list[str]) -> None:
    """After the part has ended well: a failure or Ctrl-C here loses nothing but time."""

    def begin() -> None:
        context.progress.say(setup.ref.label, "done, searches work; building the index that makes them quicker")

    try:
        setup.target.refine(part.physical, begin)
    except InstepError as error:
        notes.append(f"searches are slower than they could be: {error}")
