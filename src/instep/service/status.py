"""Status: what is served, how fresh it is, and what stands in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.fingerprint import changed_parts
from instep.domain.jobs import Job, JobState
from instep.domain.refs import PartitionRef
from instep.domain.status import IndexState
from instep.errors import InstepError
from instep.ledger.port import Checkpoint, Ledger
from instep.service.setup import EntitySetup


@dataclass(frozen=True, slots=True)
class EntityStatus:
    """One partition. `rows` is what the target holds; None when that could not be read."""

    ref: PartitionRef
    state: IndexState
    documents: int
    rows: int | None
    bytes: int
    failures: int
    instance: str | None
    physical: str | None
    watermark: int | None
    job: Job | None
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        job = self.job
        return {
            "ref": str(self.ref),
            "state": str(self.state),
            "documents": self.documents,
            "rows": self.rows,
            "bytes": self.bytes,
            "failures": self.failures,
            "instance": self.instance,
            "physical": self.physical,
            "watermark": self.watermark,
            "job": {
                "id": job.id,
                "state": str(job.state),
                "created_at": job.created_at,
                "finished_at": job.finished_at,
                "error": job.error,
                "counts": job.counts.as_dict(),
                "slices": {str(state): number for state, number in job.slices.items()},
            }
            if job
            else None,
            "notes": list(self.notes),
        }


def entity_status(setup: EntitySetup, ledger: Ledger) -> EntityStatus:
    checkpoint = ledger.checkpoint(setup.ref)
    job = _last_job(setup.ref, ledger)
    failures = ledger.count_failures(setup.ref)
    notes: list[str] = []
    rows: int | None = 0
    documents = size = 0
    if checkpoint:
        documents, recorded, size = ledger.totals(checkpoint.instance)
        rows = _rows(setup, checkpoint, recorded, notes)
        changed = changed_parts(setup.fingerprint, checkpoint.fingerprint)
        if changed:
            notes.append(f"{', '.join(changed)} changed since; the next run rebuilds")
    if failures:
        notes.append(f"{failures:,} documents failed; see `instep failures`")
    if job and job.error:
        notes.append(f"last job: {job.error}")
    return EntityStatus(
        ref=setup.ref,
        state=_state(checkpoint, job, rows),
        documents=documents,
        rows=rows,
        bytes=size,
        failures=failures,
        instance=checkpoint.instance if checkpoint else None,
        physical=checkpoint.physical if checkpoint else None,
        watermark=checkpoint.watermark if checkpoint else None,
        job=job,
        notes=notes,
    )


def _state(checkpoint: Checkpoint | None, job: Job | None, rows: int | None) -> IndexState:
    if rows is None:
        return IndexState.UNKNOWN
    working = job is not None and (not job.state.ended or job.state is JobState.STOPPED)
    if checkpoint is None:
        if working:
            return IndexState.BACKFILLING
        return IndexState.ERROR if job and job.state is JobState.FAILED else IndexState.NOT_INDEXED
    if working:
        return IndexState.INDEXING
    return IndexState.ERROR if job and job.state is JobState.FAILED else IndexState.INDEXED


def _rows(setup: EntitySetup, checkpoint: Checkpoint, recorded: int, notes: list[str]) -> int | None:
    """Rows in the target; an unreadable count is unknown, never zero."""
    try:
        rows = setup.target.rows(checkpoint.physical)
    except InstepError as error:
        notes.append(f"target {setup.target_name!r} cannot be read: {error}")
        return None
    if rows != recorded:
        notes.append(f"the target holds {rows:,} rows, the ledger recorded {recorded:,}: run with --full-refresh")
    return rows


def _last_job(ref: PartitionRef, ledger: Ledger) -> Job | None:
    unfinished = ledger.unfinished_job(ref)
    if unfinished:
        return unfinished
    return next((job for job in ledger.jobs(limit=200) if any(part.ref == ref for part in job.parts)), None)
