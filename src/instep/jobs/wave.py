"""Run claimed slices of one part as a wave; commit to the target first, to the ledger second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from instep.domain.counts import Counts
from instep.domain.jobs import Claim, JobPart, OpenPart
from instep.domain.planning import (
    MEASURED_SECONDS,
    Measured,
    Pace,
    learned_pace,
    share_of_requests,
    tasks_of,
)
from instep.domain.texts import cleaned, hidden
from instep.domain.waves import Mark, SliceOutcome, TaskOutcome, Wave
from instep.entities.ownership import newer_elsewhere
from instep.entities.setup import EntitySetup
from instep.error_transport import explaining
from instep.errors import Conflict, Fenced, InstepError, Overdrawn, Transient, Unknown, UpstreamMissing, UserError
from instep.jobs.batching import Batching
from instep.jobs.budget import BATCH_HELD, HELD, Budget, Held
from instep.jobs.early_upkeep import EarlyUpkeep
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.retry import MEND, OUTAGE_SECONDS, Circuit, Outage, backoff
from instep.jobs.slice_claims import SliceClaims, facts, without_giants
from instep.jobs.wave_progress import AttemptProgress, WaveProgress
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.engine import Engine
from instep.pipeline.outcomes import decode_outcome, encode_outcomes
from instep.planning.context import Context
from instep.targets.document_target import Heavy
from instep.telemetry import traces
from instep.telemetry.context import context_fields

#: Retries of one wave because another writer changed rows at the same time.
CONFLICTS = 5
#: Failed waves in a row after which the part stops instead of trying every slice.
HOPELESS = 8
#: They are among those that are the same: a source that is away may say the same of all.
GONE = "listed documents disappeared before they could be read, and stay indexed as they were: the next run looks again"


class WaveRunner:
    """Runs slices of one part, under one epoch, on one engine. `notes` collects notes for the user, `unseen` documents
    that were gone when they were to be read. `base`: the version in which the target has seen the epoch, if it has.
    """

    def __init__(
        self,
        setup: EntitySetup,
        part: JobPart,
        *,
        base: int | None = None,
        job_id: str,
        worker_id: str,
        engine: Engine,
        pace: Pace,
        context: Context,
        heartbeat: Heartbeat,
        circuit: Circuit,
        notes: list[str],
        unseen: set[str],
    ) -> None:
        self._setup = setup
        self._part = part
        self._job_id = job_id
        self._engine = engine
        self._inline = engine.name == "inline"
        self._context = context
        self._ledger = context.ledger
        self._clock = context.clock
        self._heartbeat = heartbeat
        self._circuit = circuit
        self._pauses = backoff(context.random)
        self._claims = SliceClaims(
            setup,
            part,
            job_id=job_id,
            worker_id=worker_id,
            context=context,
            heartbeat=heartbeat,
            pauses=self._pauses,
            inline=self._inline,
        )
        self._budget = Budget(
            setup,
            part,
            self._ledger,
            job_id=job_id,
            worker_id=worker_id,
            exact=self._inline,
            counters=context.counters,
            insist=self._claims.insist,
        )
        self._batching = Batching(setup, part, context, self._budget, worker_id=worker_id, heartbeat=heartbeat)
        self._pace = pace
        self._failed_in_a_row = 0
        self._done = 0
        self._base = -1 if base is None else base
        self._notes = notes
        self._unseen = unseen
        self._progress = WaveProgress(context.ledger, context.clock, worker_id)
        self._work, self._seconds, self._odd = 0, 0.0, False
        #: Seconds of CPU that tasks have used; 0 where the work is done in this process.
        self.task_cpu = 0.0
        #: Whether no slice is left but those that are in work here.
        self._last = False
        self._early_upkeep = EarlyUpkeep(context.background)

    def run(self, open_part: OpenPart, progress: Callable[[int], None]) -> bool:
        """Run one wave, as large as its time goal and the other workers' share allow. False if no slice can be claimed.

        Raises `Fenced` when the claims or the lease were taken over, `Outage`, or `UserError` when too many waves
        failed.
        """
        began = self._clock.monotonic()
        with traces.span("wave", engine=self._engine.name) as span:
            with traces.span("claim") as claim:
                claims = self._claims.claim(open_part, self._pace)
                if not claims:
                    claim.drop()
            if not claims:
                span.drop()
                return False
            self._count_step("claim", began)
            span.set(slices=len(claims))
            self._run_claimed(claims, open_part, progress)
        self._context.counters.wave(self._part.ref.entity, self._clock.monotonic() - began)
        return True

    def once(self, work: Callable[[], None]) -> None:
        """Do a piece of upkeep of the index, where waves are run."""
        self._early_upkeep.end()
        target = self._setup.target
        apart = isinstance(target, Heavy) and target.heavy(self._part.physical)
        self.task_cpu += self._engine.once(work, apart=apart)

    def _run_claimed(self, claims: Sequence[Claim], open_part: OpenPart, progress: Callable[[int], None]) -> None:
        started, self._odd = self._clock.monotonic(), False
        ids = [claim.slice_id for claim in claims]
        self._progress.share(open_part.workers)
        self._heartbeat.begin(ids)
        self._done = 0
        self._last = open_part.pending <= len(claims) and not open_part.processing
        try:
            idle = open_part.pending - len(claims) < open_part.workers - 1
            for some in without_giants(self._claims.split_long(claims, self._pace, idle=idle)):
                self._run_or_halve(some, progress)
        except UpstreamMissing as error:
            # All that is not done yet: other workers wait for it to be PENDING, and so will this one.
            self._claims.give_back(claims, cleaned(str(error)))
            raise
        finally:
            self._heartbeat.end(ids)
        with suppress(InstepError):  # The worker that finishes the part does it again.
            self._setup.acknowledge(self._part, self._ledger, self._job_id)
        seconds = self._clock.monotonic() - started
        if not self._setup.batched:  # How long a batch waits says nothing about the next one.
            self._pace = learned_pace(self._pace, self._done, seconds)
        if not self._odd:
            self._work += self._done
            self._seconds += seconds

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = self._clock.monotonic()
        with traces.span(name):
            yield
        self._count_step(name, began)

    def _count_step(self, name: str, began: float) -> None:
        self._context.counters.step(self._part.ref.entity, name, self._clock.monotonic() - began)

    def _run_or_halve(self, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        """Run slices; a wave that fails is retried in halves until the bad slice is alone."""
        if not claims:
            return
        try:
            self._run_with_retries(claims, progress)
        except (Fenced, Transient, Unknown, UserError):
            raise
        except Exception as error:
            self._failed_in_a_row += 1
            self._retried()
            reason = cleaned(f"{type(error).__name__}: {error}")
            with context_fields(**facts(claims)):
                self._context.progress.say(self._part.ref.label, f"a wave has failed: {reason}")
            if self._failed_in_a_row >= HOPELESS:
                self._claims.give_back(claims, reason)
                if self._setup.scanned:
                    # Rows are never FAILED: once the cause is mended, none may find its tries used up. Documents keep
                    # their attempts: several that fail each time would keep the part from its end for good.
                    self._claims.reset_attempts()
                raise UserError(
                    f"{self._setup.ref}: {self._failed_in_a_row} waves failed in a row; the last one with {reason}",
                    hint=MEND,
                ) from error
            if len(claims) == 1:
                self._claims.give_back(claims, reason, spent=True)
                return
            middle = len(claims) // 2
            self._run_or_halve(claims[:middle], progress)
            self._run_or_halve(claims[middle:], progress)

    def _run_with_retries(self, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        """Run one wave, retried during an outage; that costs no attempts."""
        tried, conflicts = 0, 0
        while True:
            try:
                with explaining():
                    self._attempt(claims, progress)
            except Overdrawn:
                if not self._enlarged(claims):
                    return
            except Conflict:
                conflicts += 1
                if conflicts > CONFLICTS:
                    raise
                self._retried()
            except (Transient, Unknown) as error:
                tried += 1
                if isinstance(error, Outage) or not self._waited(error, tried):
                    # The next claim looks up whether a commit succeeded without a reply.
                    self._claims.give_back(claims, cleaned(str(error)), delay=round(self._circuit.wait() * 1000))
                    raise Outage(hidden(str(error))) from error
            else:
                self._circuit.succeeded()
                return
            self._base = -1

    def _enlarged(self, claims: Sequence[Claim]) -> bool:
        """Whether more is reserved for the next try. False if the claims were given back, to wait for other waves."""
        try:
            self._budget.enlarge()
        except Held as error:
            self._claims.give_back(claims, str(error), delay=BATCH_HELD if self._setup.batched else HELD)
            return False
        except UserError as error:
            self._claims.give_back(claims, cleaned(str(error)))
            self._ledger.parts.stop(self._job_id, self._part.ref, cleaned(str(error)))  # Until a user decides.
            raise
        return True

    def _waited(self, error: Exception, tried: int) -> bool:
        """Wait before the next try, at least as long as the breaker says. False, at once, if the outage would last too
        long by then. The time that the wave itself took does not count.
        """
        self._circuit.failed()
        pause = max(self._pauses.pause(tried), self._circuit.wait())
        if self._circuit.down_for() + pause > OUTAGE_SECONDS:
            return False
        if tried == 1:
            self._context.progress.say(self._part.ref.label, f"waiting: {cleaned(str(error))}")
        self._notes.append(f"tried again after: {cleaned(str(error))}")
        self._retried()
        self._clock.sleep(pause)
        return True

    @property
    def measured(self) -> Measured | None:
        """The pace of its waves, but for those that were tried again or had their vectors at hand; None if they were
        too short to tell.
        """
        if self._work <= 0 or self._seconds < MEASURED_SECONDS:
            return None
        return Measured(self._engine.name, self._pace.cores, self._work, round(self._seconds * 1_000), self._job_id)

    def _retried(self) -> None:
        self._odd = True
        self._context.counters.retried(self._part.ref.entity)

    def _attempt(self, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        claims = self._claims.fail_worn_out(self._not_yet_committed(claims, progress))
        if not claims:
            return
        with self._progress.of(claims, progress) as attempt:
            self._run_once(claims, attempt)
        self._failed_in_a_row = 0
        self._done += sum(claim.work for claim in claims)

    def _run_once(self, claims: Sequence[Claim], progress: AttemptProgress) -> None:
        wave = self._wave(claims)
        with context_fields(wave=wave.id, **facts(claims)):
            progress.begin()
            # Between a commit and its record nothing else may fail. On Spark this process holds no corpus.
            if self._inline:
                self._ledger.documents.remember(self._part.instance)
            with self._step("run"):
                tasks = self._tasks(wave, progress)
                self.task_cpu += sum(task.cpu for task in tasks)
                outcomes = [outcome for task in tasks for outcome in task.slices]
                _check_complete(wave, outcomes)
                self._setup.require_seen(wave, outcomes)
            self._claims.demand(claims)
            counts = sum((each.counts for each in outcomes), Counts())
            self._odd |= not self._setup.scanned and 2 * counts.embedded < counts.rows_written + counts.rows_kept
            outcomes = self._with_leaving(tasks, outcomes)
            self._guard_deletes(claims, outcomes)
            with self._step("commit"):
                self._commit(wave, tasks, outcomes)
            if self._last and self._inline:
                self._early_upkeep.begin(self._setup.target, self._part.physical, outcomes)
            with self._step("complete"):
                self._claims.complete(outcomes)
            if unseen := {each.document_id for outcome in outcomes for each in outcome.unseen}:
                self._unseen |= unseen
                self._notes.append(GONE)
            progress.end(sum(outcome.counts.read for outcome in outcomes))

    def _tasks(self, wave: Wave, progress: AttemptProgress) -> Sequence[TaskOutcome]:
        program = self._setup.program(self._part, wave, self._ledger, self._job_id)
        if self._setup.batched:
            self._batching.prepare(wave, program)
        with self._budget.paying(wave, program) as (paid, done):
            stages = partial(self._context.progress.stage, self._part.ref.label)
            done.extend(self._engine.run(wave, paid, progress.tell, stages))
        return done

    def _not_yet_committed(self, claims: Sequence[Claim], progress: Callable[[int], None]) -> list[Claim]:
        """Fence the earlier holders of these slices in the target, then complete the slices that they had committed but
        not recorded. In this order: else a commit could happen in between.
        """
        suspects = [claim for claim in claims if claim.fence > 1]
        if suspects or self._base < 0:
            self._base = self._fence(claims, suspects)
        if not suspects:
            return list(claims)
        outcomes = _committed(self._setup, self._part, suspects)
        self._claims.complete(outcomes)
        done = {outcome.slice_id for outcome in outcomes}
        progress(sum(outcome.counts.read for outcome in outcomes))
        return [claim for claim in claims if claim.slice_id not in done]

    def _fence(self, claims: Sequence[Claim], suspects: Sequence[Claim]) -> int:
        part = self._part
        try:
            return self._setup.target.fence(part.physical, part.epoch, _fences(suspects))
        except Fenced as error:
            self._claims.demand(claims)
            lease = Lease(part.ref, self._job_id, part.epoch, 0)
            raise newer_elsewhere(self._setup, part.physical, lease, self._ledger, error) from error

    def _with_leaving(self, tasks: Sequence[TaskOutcome], outcomes: Sequence[SliceOutcome]) -> list[SliceOutcome]:
        """Add rows that moved out and are deleted by the wave, which no task can know, to the first slice's counts."""
        first, *others = outcomes
        found = self._setup.leaving(self._part, [task.staged for task in tasks if task.staged])
        return [replace(first, counts=first.counts + found, lost=first.lost + found.deleted), *others]

    def _guard_deletes(self, claims: Sequence[Claim], outcomes: Sequence[SliceOutcome]) -> None:
        """The delete guard for what a listing cannot show: documents that are now empty, and rows that moved out."""
        refusal = self._setup.too_much(self._part, self._ledger, sum(each.lost for each in outcomes))
        if refusal is None or self._deletes_are_allowed():
            return
        self._claims.give_back(claims, refusal.why)
        self._ledger.parts.stop(self._job_id, self._part.ref, refusal.why)  # Not retried before a user decides.
        raise UserError(refusal.why, where=str(self._part.ref), hint=refusal.hint)

    def _deletes_are_allowed(self) -> bool:
        job = self._ledger.jobs.get(self._job_id)
        return job is not None and bool(job.configuration.get("allow_deletes"))

    def _commit(self, wave: Wave, tasks: Sequence[TaskOutcome], outcomes: Sequence[SliceOutcome]) -> None:
        """Commit the wave. Repeated with the same attempt id when the reply is lost, which changes nothing if it
        succeeded.
        """
        commit = partial(
            self._setup.target.commit,
            self._part.physical,
            base=wave.base,
            epoch=self._part.epoch,
            attempt=wave.id,
            staged=[task.staged for task in tasks if task.staged],
            marks=[
                Mark(each.slice_id, each.fence, encoded)
                for each, encoded in zip(outcomes, encode_outcomes(outcomes), strict=True)
            ],
        )
        tried = 0
        while True:
            try:
                self._base = commit()
            except (Transient, Unknown) as error:
                tried += 1
                if not self._waited(error, tried):
                    raise Outage(hidden(str(error))) from error
                self._heartbeat.require(self._part.ref)
            else:
                return

    def _wave(self, claims: Sequence[Claim]) -> Wave:
        slices = tuple(self._setup.wave_slice(each, self._ledger.plans.changes) for each in claims)
        tasks = tasks_of(sum(each.work for each in slices), self._pace)
        if (most := self._setup.requests_at_once) is not None:
            tasks = min(tasks, share_of_requests(most, len(self._ledger.workers.all())))
        part = self._part
        return Wave(
            self._context.ids.new(), part.ref, part.instance, part.physical, part.epoch, self._base, slices, tasks
        )


def record_committed(setup: EntitySetup, part: JobPart, ledger: Ledger, *, job_id: str, worker_id: str) -> None:
    """Complete slices that lost workers had committed but not recorded, and do nothing else.

    The other slices stay in work here and are cancelled with the part.
    """
    ledger.jobs.start(job_id)
    while claims := ledger.slices.claim(job_id, part.ref, worker_id, work=sys.maxsize, limit=setup.most_claims):
        suspects = [claim for claim in claims if claim.fence > 1]
        if suspects:
            setup.target.fence(part.physical, part.epoch, _fences(suspects))
            ledger.slices.complete(part, worker_id, _committed(setup, part, suspects), job_id=job_id)


def _committed(setup: EntitySetup, part: JobPart, suspects: Sequence[Claim]) -> list[SliceOutcome]:
    """Outcomes of those of these slices that the target has committed."""
    try:
        found = setup.target.committed(part.physical, part.base, [claim.slice_id for claim in suspects])
    except Unknown as error:
        raise UserError(f"{setup.ref}: {error}", hint="Rebuild it: instep run --full-refresh") from error
    return [decode_outcome(found[each.slice_id], fence=each.fence) for each in suspects if each.slice_id in found]


def _fences(claims: Sequence[Claim]) -> list[Mark]:
    """Marks that tell the target the new fences of these slices.

    Slices that they were split from need none: these never ran, or were fenced before they were looked up.
    """
    return [Mark(claim.slice_id, claim.fence, b"") for claim in claims]


def _check_complete(wave: Wave, outcomes: Sequence[SliceOutcome]) -> None:
    """Raises unless every slice has exactly one outcome and every outcome is balanced: unknown is not success."""
    expected = sorted(part.slice_id for part in wave.slices)
    if sorted(outcome.slice_id for outcome in outcomes) != expected:
        raise RuntimeError(f"wave {wave.id}: outcomes of {len(outcomes)} slices where {len(expected)} were run")
    units = {part.slice_id: part.units for part in wave.slices}
    for outcome in outcomes:
        planned = units[outcome.slice_id]
        if not outcome.counts.balanced or (planned is not None and outcome.counts.read != planned):
            raise RuntimeError(f"slice {outcome.slice_id} does not add up: {outcome.counts}")
