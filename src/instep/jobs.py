"""The part of the Python API that is about jobs, and who works on them, on all servers of the ledger."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from instep.project import Project
from instep.service.compose import Workshop

if TYPE_CHECKING:
    from instep.service.job_watch import JobWatch
    from instep.service.jobs import JobView, WorkerView
    from instep.service.overview import Overview


class Jobs:
    """Of one project; see `app.Instep`."""

    project: Project

    def jobs(self, *, limit: int = 20) -> list[JobView]:
        """What ran and runs, on all servers of the ledger, newest first."""
        from instep.service.jobs import job_views

        workshop = Workshop(self.project)
        with closing(workshop.ledger(read_only=True)) as ledger:
            return job_views(ledger, limit=limit, timing=workshop.timing, tables=workshop.tables)

    def job(self, job_id: str) -> JobView:
        """One job. The beginning of its id is enough (at least 4 characters)."""
        from instep.service.jobs import one_job_view

        workshop = Workshop(self.project)
        with closing(workshop.ledger(read_only=True)) as ledger:
            return one_job_view(ledger, job_id, timing=workshop.timing, tables=workshop.tables)

    def overview(self, before: Overview | None = None) -> Overview:
        """How things stand: jobs, workers, and what failed last. What cannot have changed is taken from `before`."""
        from instep.service.overview import overview

        workshop = Workshop(self.project)
        with closing(workshop.ledger(read_only=True)) as ledger:
            return overview(ledger, before, timing=workshop.timing, tables=workshop.tables)

    def watch_jobs(self) -> JobWatch:
        """What happens in jobs, look by look. It keeps the ledger open between looks: close it in the end."""
        from instep.service.job_watch import JobWatch

        workshop = Workshop(self.project)
        return JobWatch(lambda: workshop.ledger(read_only=True), workshop.tables)

    def stop_job(self, job_id: str, *, reason: str = "stopped by request", wait: bool = False) -> JobView:
        """Ask a job to stop: what is in work may end, the rest stays for a resume. `wait` until it has stopped."""
        from instep.service.jobs import one_job_view, stop_job

        workshop = Workshop(self.project)
        # Looked up in a ledger that is only read: none is made just to find that it is empty.
        found = self.job(job_id)
        with closing(workshop.ledger()) as ledger:
            stop_job(ledger, found.id, reason, clock=workshop.clock, wait=wait)
            return one_job_view(ledger, found.id, timing=workshop.timing, tables=workshop.tables)

    def resume_job(self, job_id: str) -> JobView:
        """A stopped job runs again; any worker may take it up."""
        from instep.service.jobs import find_job, one_job_view, resume_job

        workshop = Workshop(self.project)
        found = self.job(job_id)
        with closing(workshop.ledger()) as ledger:
            resume_job(ledger, find_job(ledger, found.id))
            return one_job_view(ledger, found.id, timing=workshop.timing, tables=workshop.tables)

    def workers(self) -> list[WorkerView]:
        """Who is registered in the ledger, and does what, the oldest first."""
        from instep.service.jobs import worker_views

        workshop = Workshop(self.project)
        with closing(workshop.ledger(read_only=True)) as ledger:
            return worker_views(ledger, timing=workshop.timing)
