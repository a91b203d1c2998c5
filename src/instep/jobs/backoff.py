"""What a worker leaves alone that would begin it by itself: what a person has stopped, and what has just failed.

The ledger remembers how jobs ended, on whichever server; a worker only counts how often in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from instep.domain.backoff import ended_badly, rest
from instep.domain.instances import InstanceState
from instep.domain.jobs import Job, PartStatus
from instep.domain.reasons import cleaned
from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.planning.context import Context

Key = tuple[PartitionRef, str]
#: Instances that are looked at to find how often a build has failed in the same way.
_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class _Rest:
    """`end` is the bad end that it is for: a job, and when. `until` is monotonic seconds, None for ever."""

    end: tuple[str, int | None]
    why: str
    times: int
    until: float | None
    reason: str = ""


class Backoff:
    """Of one worker."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rests: dict[Key, _Rest] = {}

    def why(self, setup: EntitySetup, generation: str) -> str | None:
        """Why the partition is not begun now, or None. What is declared otherwise since then is something else."""
        key = setup.ref, generation
        job = self._context.ledger.latest_job(setup.ref, generation)
        status = job.part(setup.ref) if job else None
        reason = ended_badly(job, status) if job and status else None
        if job is None or status is None or reason is None or setup.misfit(status.part):
            self._rests.pop(key, None)
            return None
        found = self._rests.get(key)
        if found is None or found.end != _end(job, status):
            found = self._rests[key] = self._rest(setup, generation, job, status, reason)
        if found.until is not None and found.until <= self._context.clock.monotonic():
            return None
        return found.why

    def _rest(self, setup: EntitySetup, generation: str, job: Job, status: PartStatus, reason: str) -> _Rest:
        """Says so, once for each bad end; why, where that is not the same as before."""
        context = self._context
        end = _end(job, status)
        if job.stopped_by_people:
            why = stays_stopped(job)
            context.progress.say(setup.ref.label, why)
            return _Rest(end, why, 0, None)
        before = self._rests.get((setup.ref, generation))
        times = before.times + 1 if before else max(1, self._failed_before(setup, generation))
        pause = rest(times, context.timing)
        passed = max(0, context.ledger.now() - (end[1] or 0))
        until = context.clock.monotonic() + (pause - passed) / 1000
        often = "" if times == 1 else f" ({times:,} times in a row)"
        reason = cleaned(reason)
        why = f"job {job.id[:8]} ended badly{often}: {reason}"
        said = f"job {job.id[:8]} ended as before{often}" if before and before.reason == reason else why
        context.progress.say(setup.ref.label, f"{said}; it is tried again after {_seconds(pause)}, or by `instep run`")
        return _Rest(end, why, times, until, reason)

    def _failed_before(self, setup: EntitySetup, generation: str) -> int:
        """How many builds in a row failed that were made as this one would be, before this worker was there."""
        found = self._context.ledger.instances(setup.ref, _LOOKED_AT)
        ended = [each for each in found if each.generation == generation and each.left]
        same = takewhile(
            lambda each: each.state is InstanceState.FAILED and dict(each.fingerprint or {}) == dict(setup.fingerprint),
            ended,
        )
        return len(list(same))


class Refusals:
    """What could not even be planned or begun: left alone for a time that grows, and said once while it is the same."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: dict[Key, _Rest] = {}

    def add(self, ref: PartitionRef, generation: str, why: str, *, longest: int | None = None) -> None:
        """`longest`: ms at most; by default until a person may have mended it."""
        before = self._found.get((ref, generation))
        same = before is not None and before.why == why
        times = before.times + 1 if before is not None and same else 1
        if not same:
            self._context.progress.say(ref.label, why)
        timing = self._context.timing
        pause = min(rest(times, timing), timing.orphan if longest is None else longest)
        until = self._context.clock.monotonic() + pause / 1000
        self._found[ref, generation] = _Rest(("", None), why, times, until)

    def forget(self, ref: PartitionRef, generation: str) -> None:
        self._found.pop((ref, generation), None)

    def rests(self, ref: PartitionRef, generation: str) -> bool:
        found = self._found.get((ref, generation))
        return found is not None and found.until is not None and found.until > self._context.clock.monotonic()


def stays_stopped(job: Job) -> str:
    """What is said of a job that a person has stopped."""
    return f"job {job.id[:8]} was {job.error}, and stays so; go on with it: instep job resume {job.id[:8]}"


def _end(job: Job, status: PartStatus) -> tuple[str, int | None]:
    return job.id, status.finished_at or job.finished_at


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.0f} s" if milliseconds < 120_000 else f"{milliseconds / 60_000:.0f} min"
