"""Jobs as spans. A job is worked on by many processes, none of which need be there from its beginning to its end: all
name its span alike, and who ends it tells it as a whole.
"""

from __future__ import annotations

from contextlib import suppress

from instep.domain.jobs import Job, JobState
from instep.errors import InstepError
from instep.ledger.ledger import Ledger
from instep.telemetry import traces
from instep.telemetry.context import is_traceparent, job_traceparent

#: Of a job's configuration: the trace in which it was asked for.
TRACEPARENT = "traceparent"


def trace_of(job_id: str, ledger: Ledger) -> str:
    """What spans of the job's parts and waves belong to; empty where none are made."""
    if traces.enabled():
        with suppress(InstepError):  # No work fails for being watched.
            job = ledger.job(job_id)
            return job_traceparent(job_id, _made_in(job)) if job else ""
    return ""


def tell_if_ended(job_id: str, state: JobState, ledger: Ledger) -> None:
    """To be called by whoever has ended a part of a job, with the state in which that left the job."""
    if not state.ended or not traces.enabled():
        return
    with suppress(InstepError):
        job = ledger.job(job_id)
        if job is None or job.finished_at is None:
            return
        made_in, counts = _made_in(job), job.counts
        traces.record(
            "job",
            traceparent=job_traceparent(job_id, made_in),
            parent=made_in,
            began=job.created_at,
            ended=job.finished_at,
            error=(job.error or str(state)) if state is JobState.FAILED else None,
            job=job_id,
            state=str(state),
            refs=", ".join(str(each.part.ref) for each in job.parts[:20]),
            slices=sum(job.slices.values()),
            **{name: getattr(counts, name) for name in ("read", "written", "skipped", "deleted", "failed")},
        )


def _made_in(job: Job | None) -> str:
    found = job.configuration.get(TRACEPARENT) if job else None
    return found if isinstance(found, str) and is_traceparent(found) else ""
