"""Pauses after a failed job, before a worker tries it again by itself.

A user's own request never waits: the pauses are for programs that poll, such as a worker that watches its sources.
"""

from __future__ import annotations

from instep.domain.jobs import Job, JobState, PartStatus, SliceState
from instep.domain.timing import Timing


def rest(times: int, timing: Timing) -> int:
    """Milliseconds to pause after so many failures in a row (from 1)."""
    return min(timing.rest << min(times - 1, 30), timing.longest_rest)


def ended_badly(job: Job, part: PartStatus) -> str | None:
    """The error of a job after which a partition's work is still undone and in no job; None if it is not so.

    The writes of a refresh stay, even if the target holds more or fewer rows: there is nothing to repeat. A failed
    build serves nothing, and the next job reads failed slices again.
    """
    if job.state is JobState.STOPPED:
        return job.error or "it was stopped"
    if part.error is None:
        return None
    undone = part.slices.get(SliceState.FAILED, 0) + part.slices.get(SliceState.CANCELLED, 0)
    return part.error if part.part.fresh or undone or part.state is JobState.FAILED else None
