"""What the ledger's tables say, read by SQL: not by the code that is on trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, func, select

from instep.domain.jobs import JobState, SliceState
from instep.ledger.tables import checkpoints, documents, failures, job_parts, jobs, leases, slices, workers

_ENDED = [state.value for state in JobState if state.ended]


@dataclass(frozen=True)
class Records:
    engine: Engine

    def open_jobs(self) -> list[str]:
        """Those that have not ended, or were stopped with something left to do."""
        left = select(job_parts.c.job_id).where(job_parts.c.state.is_(None))
        stopped = jobs.c.id.in_(left)
        return [row.id for row in self._rows(select(jobs.c.id).where(jobs.c.state.not_in(_ENDED) | stopped))]

    def workers(self) -> set[str]:
        return {row.id for row in self._rows(select(workers.c.id))}

    def held_leases(self) -> list[str]:
        return [row.ref for row in self._rows(select(leases.c.ref).where(leases.c.job_id.is_not(None)))]

    def jobs(self) -> dict[str, str]:
        return {row.id: row.state for row in self._rows(select(jobs.c.id, jobs.c.state))}

    def slices(self) -> list[Row[Any]]:
        return self._rows(select(slices))

    def failures(self) -> int:
        (row,) = self._rows(select(func.count().label("number")).select_from(failures))
        return int(row.number)

    def indexed(self) -> tuple[int, int]:
        """Documents and chunks of what is served."""
        served = select(checkpoints.c.instance)
        counts = select(func.count().label("number"), func.sum(documents.c.chunks).label("chunks"))
        (row,) = self._rows(counts.where(documents.c.instance.in_(served)))
        return int(row.number), int(row.chunks)

    def taken_over(self) -> int:
        """Slices that were completed by another claim than the first."""
        return sum(row.fence > 1 for row in self.slices() if row.state == SliceState.COMPLETED)

    def _rows(self, statement: Any) -> list[Row[Any]]:
        with self.engine.connect() as connection:
            return list(connection.execute(statement).all())
