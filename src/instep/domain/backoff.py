"""How long what ended badly is left alone, before somebody who was not asked to tries it again.

A person who asks is never kept waiting: this is for who looks again and again by itself, such as a worker that watches.
"""

from __future__ import annotations

from instep.domain.jobs import Job, JobState, PartStatus, SliceState
from instep.domain.timing import Timing


def rest(times: int, timing: Timing) -> int:
    """Milliseconds of rest after so many bad ends in a row (from 1)."""
    return min(timing.rest << min(times - 1, 30), timing.longest_rest)


def ended_badly(job: Job, part: PartStatus) -> str | None:
    """Why what was to be done to a partition is still to be done though nobody is at it; None if it is not so.

    What a refresh wrote stays written, also if the target holds more or less than that: there is nothing to repeat. Of
    a build nothing is served, and slices that failed are read again by the next job.
    """
    if job.state is JobState.STOPPED:
        return job.error or "it was stopped"
    if part.error is None:
        return None
    undone = part.slices.get(SliceState.FAILED, 0) + part.slices.get(SliceState.CANCELLED, 0)
    return part.error if part.part.fresh or undone or part.state is JobState.FAILED else None
