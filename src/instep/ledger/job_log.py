"""The log of a job: its phases, and what its workers said of it. For people: nothing is decided by it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import delete, func, insert, select

from instep.domain.jobs import FINISHING, Phase
from instep.ledger import job_transitions
from instep.ledger.tables import job_log
from instep.ledger.transaction import Store, Transaction, reads, writes

#: Lines that are kept of a job, the newest; phases and addresses of Spark are kept besides.
KEPT: Final = 500
#: Kinds of lines that are no phases: words of a worker, and the address of Spark's own page.
SAID, SPARK = "said", "spark"


class LogLine(NamedTuple):
    """A line of a job's log. `kind` is a phase, SAID or SPARK; `ref` is empty in what concerns the whole job."""

    number: int
    at: int
    ref: str
    worker_id: str
    kind: str
    text: str


_LINE = [job_log.c[name] for name in LogLine._fields]


class JobLog(Store):
    """Logs of jobs. They go with their jobs."""

    @writes
    def add(self, tx: Transaction, job_id: str, kind: str, text: str, *, ref: str = "", worker_id: str = "") -> None:
        """Add a line to the log of a job, if the job is there; the oldest of too many goes."""
        if job_transitions.lock(tx, job_id) is None:
            return
        here = job_log.c.job_id == job_id
        last = tx.connection.scalar(select(func.max(job_log.c.number)).where(here)) or 0
        line = LogLine(last + 1, tx.now(), ref, worker_id, kind, text)
        tx.connection.execute(insert(job_log).values(job_id=job_id, **line._asdict()))
        old = (here, job_log.c.number <= line.number - KEPT, job_log.c.kind == SAID)
        tx.connection.execute(delete(job_log).where(*old))

    @reads
    def page(self, tx: Transaction, job_id: str, *, before: int | None = None, limit: int = 100) -> list[LogLine]:
        """Lines of a job, the newest first; `before`: only those with a smaller number."""
        page = select(*_LINE).where(job_log.c.job_id == job_id).order_by(job_log.c.number.desc()).limit(limit)
        if before is not None:
            page = page.where(job_log.c.number < before)
        return [LogLine(*row) for row in tx.connection.execute(page)]


def phases(tx: Transaction, job_ids: Collection[str]) -> dict[tuple[str, str], Phase]:
    """The phase told last of each part of these jobs, by job and partition."""
    told = select(job_log.c.job_id, job_log.c.ref, job_log.c.kind).where(
        job_log.c.job_id.in_(sorted(job_ids)), job_log.c.kind.in_(sorted(FINISHING))
    )
    rows = tx.connection.execute(told.order_by(job_log.c.job_id, job_log.c.number))
    return {(row.job_id, row.ref): Phase(row.kind) for row in rows}
