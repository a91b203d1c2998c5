"""The part of the Python API that is about jobs, and who works on them, on all servers of the ledger."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from instep.container import Container
from instep.project import Project

if TYPE_CHECKING:
    from instep.answers.job_feed import JobWatch
    from instep.answers.jobs import Job, Worker
    from instep.answers.overview import Overview


class Jobs:
    """Of one project; see `app.Instep`."""

    project: Project

    def jobs(self, *, limit: int = 20) -> list[Job]:
        """What ran and runs, on all servers of the ledger, newest first."""
        from instep.answers.jobs import job_views

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return job_views(ledger, limit=limit, timing=container.timing, tables=container.tables)

    def job(self, job_id: str) -> Job:
        """One job. The beginning of its id is enough (at least 4 characters)."""
        from instep.answers.jobs import one_job_view

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return one_job_view(ledger, job_id, timing=container.timing, tables=container.tables)

    def overview(self, before: Overview | None = None) -> Overview:
        """How things stand: jobs, workers, and what failed last. What cannot have changed is taken from `before`."""
        from instep.answers.overview import overview

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return overview(ledger, before, timing=container.timing, tables=container.tables)

    def watch_jobs(self) -> JobWatch:
        """What happens in jobs, look by look. It keeps the ledger open between looks: close it in the end."""
        from instep.answers.job_feed import JobWatch

        container = Container(self.project)
        return JobWatch(lambda: container.ledger(read_only=True), container.tables)

    def stop_job(self, job_id: str, *, reason: str = "stopped by request", wait: bool = False) -> Job:
        """Ask a job to stop: what is in work may end, the rest stays for a resume. `wait` until it has stopped."""
        from instep.answers.jobs import one_job_view, stop_job

        container = Container(self.project)
        # Looked up in a ledger that is only read: none is made just to find that it is empty.
        found = self.job(job_id)
        with closing(container.ledger()) as ledger:
            stop_job(ledger, found.id, reason, clock=container.clock, wait=wait)
            return one_job_view(ledger, found.id, timing=container.timing, tables=container.tables)

    def resume_job(self, job_id: str) -> Job:
        """A stopped job runs again; any worker may take it up."""
        from instep.answers.jobs import find_job, one_job_view, resume_job

        container = Container(self.project)
        found = self.job(job_id)
        with closing(container.ledger()) as ledger:
            resume_job(ledger, find_job(ledger, found.id))
            return one_job_view(ledger, found.id, timing=container.timing, tables=container.tables)

    def workers(self) -> list[Worker]:
        """Who is registered in the ledger, and does what, the oldest first."""
        from instep.answers.jobs import worker_views

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return worker_views(ledger, timing=container.timing)
