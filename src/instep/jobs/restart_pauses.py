"""Pauses before a restart: a worker does not start by itself what a user has stopped, nor at once what has just failed.

The ledger records how jobs ended, on any server; a worker only counts failures in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from instep.domain.instances import InstanceState
from instep.domain.jobs import Job, PartStatus, ended_badly, rest
from instep.domain.refs import PartitionRef
from instep.domain.texts import clause, cleaned
from instep.entities.setup import EntitySetup
from instep.planning.context import Context

Key = tuple[PartitionRef, str]
#: Number of past instances read to count how often a build has failed in the same way.
_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class _Rest:
    """A pause before a partition is tried again. `end`: the failed job, and when it ended. `until`: monotonic seconds,
    None for ever.
    """

    end: tuple[str, int | None]
    why: str
    times: int
    until: float | None
    reason: str = ""


class RestartPauses:
    """The pauses of one worker, by partition and generation."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rests: dict[Key, _Rest] = {}

    def why(self, setup: EntitySetup, generation: str) -> str | None:
        """The reason why the partition is not started now, or None. A change of its declaration ends the pause."""
        key = setup.ref, generation
        job = self._context.ledger.jobs.latest(setup.ref, generation)
        status = job.part(setup.ref) if job else None
        reason = ended_badly(job, status) if job and status else None
        if job is None or status is None or reason is None or not setup.fits(status.part):
            self._rests.pop(key, None)
            return None
        found = self._rests.get(key)
        if found is None or found.end != _end(job, status):
            found = self._rests[key] = self._rest(setup, generation, job, status, reason)
        if found.until is not None and found.until <= self._context.clock.monotonic():
            return None
        return found.why

    def _rest(self, setup: EntitySetup, generation: str, job: Job, status: PartStatus, reason: str) -> _Rest:
        """Make the pause for a failed job and report it once; the reason only if it differs from the last one."""
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
        context.progress.say(
            setup.ref.label, f"{clause(said)}; it is tried again after {_seconds(pause)}, or by `instep run`"
        )
        return _Rest(end, why, times, until, reason)

    def _failed_before(self, setup: EntitySetup, generation: str) -> int:
        """Number of builds in a row that failed with the same fingerprint before this worker started."""
        found = self._context.ledger.instances.newest(setup.ref, _LOOKED_AT)
        ended = [each for each in found if each.generation == generation and each.left]
        same = takewhile(
            lambda each: each.state is InstanceState.FAILED and dict(each.fingerprint or {}) == dict(setup.fingerprint),
            ended,
        )
        return len(list(same))


class Refusals:
    """Partitions that could not be planned or started: a pause that grows, reported once per reason."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: dict[Key, _Rest] = {}

    def add(self, ref: PartitionRef, generation: str, why: str, *, longest: int | None = None) -> None:
        """Add a refusal. `longest`: the longest pause in ms; by default long enough for a user to mend the cause."""
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
    """The message about a job that a user has stopped."""
    return f"job {job.id[:8]} was {clause(job.error)}, and stays stopped; resume it: instep job resume {job.id[:8]}"


def _end(job: Job, status: PartStatus) -> tuple[str, int | None]:
    return job.id, status.finished_at or job.finished_at


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.0f} s" if milliseconds < 120_000 else f"{milliseconds / 60_000:.0f} min"
