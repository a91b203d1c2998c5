"""Claims slices and runs them as waves until none is left; commits target first, ledger second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instep.documents.rows import decode_outcome, encode_outcome
from instep.domain.clock import Clock, Ids
from instep.domain.jobs import Claim, JobPart
from instep.domain.manifest import decode_changes
from instep.domain.planning import Pace, learned_pace, wave_work
from instep.domain.waves import Mark, SliceOutcome, Wave, WaveSlice
from instep.engine.choice import pace_of
from instep.engine.port import Engine
from instep.errors import Conflict, Fenced, Transient, UserError
from instep.ledger.port import Ledger
from instep.service.keeper import Keeper
from instep.service.setup import EntitySetup

#: Slices in one claim at most; bounds the size of one commit and of what a crash can lose.
MAX_CLAIM = 64
#: Waits between tries of a wave while the target or the embedder is out of reach, in seconds.
BACKOFF = (0.5, 2.0, 8.0, 20.0)
#: Waves that may fail in a row, none succeeding, before the job stops instead of trying every slice.
HOPELESS = 8


class WaveRunner:
    """Runs one job part's slices on one engine. `notes` collects what the user should know."""

    def __init__(
        self,
        setup: EntitySetup,
        part: JobPart,
        *,
        job_id: str,
        worker_id: str,
        ledger: Ledger,
        clock: Clock,
        ids: Ids,
        keeper: Keeper,
    ) -> None:
        self._setup = setup
        self._part = part
        self._job_id = job_id
        self._worker = worker_id
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._keeper = keeper
        self._failed_in_a_row = 0
        self._base = 0
        self.notes: list[str] = []

    def run(self, engine: Engine, *, base: int, progress: Callable[[int], None]) -> None:
        """Until nothing is claimable. Raises `Fenced` when taken over, `UserError` when it is hopeless."""
        self._base = base
        pace = pace_of(engine.name)
        while claims := self._claim(pace):
            started = self._clock.monotonic()
            fresh = self._already_committed(claims, progress)
            if fresh:
                self._run_or_halve(engine, fresh, progress)
            pace = learned_pace(pace, sum(claim.work for claim in claims), self._clock.monotonic() - started)

    def _claim(self, pace: Pace) -> list[Claim]:
        self._keeper.require()
        return self._ledger.claim(self._job_id, self._part.ref, self._worker, work=wave_work(pace), limit=MAX_CLAIM)

    def _already_committed(self, claims: Sequence[Claim], progress: Callable[[int], None]) -> list[Claim]:
        """Complete from the target's commits what an earlier holder committed but did not record."""
        suspects = [claim.slice_id for claim in claims if claim.fence > 1]
        if not suspects:
            return list(claims)
        found = self._setup.target.committed(self._part.physical, self._part.base, suspects)
        outcomes = [
            decode_outcome(found[claim.slice_id], fence=claim.fence) for claim in claims if claim.slice_id in found
        ]
        if outcomes:
            self._ledger.complete(self._part, self._worker, outcomes, job_id=self._job_id)
            progress(sum(claim.units for claim in claims if claim.slice_id in found))
        return [claim for claim in claims if claim.slice_id not in found]

    def _run_or_halve(self, engine: Engine, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        """A wave that dies is tried again in halves until the slice at fault stands alone."""
        try:
            self._run_wave(engine, claims, progress)
        except (Fenced, UserError):
            raise
        except Exception as error:
            self._failed_in_a_row += 1
            reason = f"{type(error).__name__}: {error}"[:500]
            if self._failed_in_a_row >= HOPELESS:
                self._ledger.give_back(claims, self._worker, error=reason, spent=False)
                raise UserError(
                    f"{self._setup.ref}: {self._failed_in_a_row} waves failed in a row; the last one with {reason}",
                    hint="Mend the cause and run again: finished slices are not redone.",
                ) from error
            if len(claims) == 1:
                self._ledger.give_back(claims, self._worker, error=reason, spent=True)
                return
            middle = len(claims) // 2
            self._run_or_halve(engine, claims[:middle], progress)
            self._run_or_halve(engine, claims[middle:], progress)
        else:
            self._failed_in_a_row = 0

    def _run_wave(self, engine: Engine, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        """One wave, tried again while something out there is down; that spends no attempts."""
        for pause in (*BACKOFF, None):
            try:
                return self._attempt(engine, claims, progress)
            except (Transient, Conflict) as error:
                if pause is None:
                    self._ledger.give_back(claims, self._worker, error=str(error)[:500], spent=False)
                    raise UserError(
                        f"{self._setup.ref}: {error}",
                        hint="It was tried for half a minute. Run again when it is back: the job resumes.",
                    ) from error
                self.notes.append(f"tried again after: {str(error)[:200]}")
                self._clock.sleep(pause)
                self._base = self._setup.target.fence(self._part.physical, self._part.epoch)
        return None

    def _attempt(self, engine: Engine, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        part, target = self._part, self._setup.target
        wave = self._wave(claims)
        tasks = engine.run(wave, self._setup.program(part, self._base), progress)
        outcomes = [outcome for task in tasks for outcome in task.slices]
        _check_complete(wave, outcomes)
        self._keeper.require()
        if not self._ledger.holds(claims, self._worker):
            raise Fenced(f"slices of job {self._job_id} were taken over before their commit")
        self._base = target.commit(
            part.physical,
            base=self._base,
            epoch=part.epoch,
            attempt=wave.id,
            staged=[task.staged for task in tasks],
            marks=[Mark(each.slice_id, each.fence, encode_outcome(each)) for each in outcomes],
        )
        self._ledger.complete(part, self._worker, outcomes, job_id=self._job_id)

    def _wave(self, claims: Sequence[Claim]) -> Wave:
        slices = tuple(
            WaveSlice(claim.slice_id, claim.fence, claim.bucket, claim.work, decode_changes(claim.payload))
            for claim in claims
        )
        part = self._part
        return Wave(self._ids.new(), part.ref, part.instance, part.physical, part.epoch, self._base, slices)


def _check_complete(wave: Wave, outcomes: Sequence[SliceOutcome]) -> None:
    """Every slice exactly once, and every outcome balanced: unknown is not success."""
    expected = sorted(part.slice_id for part in wave.slices)
    if sorted(outcome.slice_id for outcome in outcomes) != expected:
        raise RuntimeError(f"wave {wave.id}: outcomes of {len(outcomes)} slices where {len(expected)} were run")
    units = {part.slice_id: len(part.changes) for part in wave.slices}
    for outcome in outcomes:
        if not outcome.counts.balanced or outcome.counts.read != units[outcome.slice_id]:
            raise RuntimeError(f"slice {outcome.slice_id} does not add up: {outcome.counts}")
