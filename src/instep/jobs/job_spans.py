"""Spans of jobs. Many processes work on a job, none from its beginning to its end: all use the same span id, and the
process that ends the job exports the span as a whole.
"""

from __future__ import annotations

from contextlib import suppress

from instep.domain.jobs import Job, JobState
from instep.errors import InstepError
from instep.ledger.ledger import Ledger
from instep.telemetry import traces
from instep.telemetry.context import is_traceparent, job_traceparent

#: Key in a job's configuration: the trace of the request.
TRACEPARENT = "traceparent"


def trace_of(job_id: str, ledger: Ledger) -> str:
    """The parent of the spans of the job's parts and waves; empty where tracing is off."""
    if traces.enabled():
        with suppress(InstepError):  # Tracing must not make work fail.
            job = ledger.jobs.get(job_id)
            return job_traceparent(job_id, _made_in(job)) if job else ""
    return ""


def tell_if_ended(job_id: str, state: JobState, ledger: Ledger) -> None:
    """Export the span of a job that has ended; for every caller that ends a part, with the job's new state."""
    if not state.ended or not traces.enabled():
        return
    with suppress(InstepError):
        job = ledger.jobs.get(job_id)
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
