"""The part of the Python API for jobs on all servers of the ledger, their slices and workers, and requests for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from instep.answers.answer_list import Answers
from instep.container import Container
from instep.domain.jobs import JobState, SliceState
from instep.domain.settings import NO_SETTINGS, JobSettings
from instep.domain.texts import names_in
from instep.domain.whole_numbers import demand_whole
from instep.entities.partitions import all_refs, apart, declared_refs
from instep.project import Project

if TYPE_CHECKING:
    from instep.answers.job_feed import JobWatch
    from instep.answers.job_log import LogLine
    from instep.answers.jobs import Job, Worker
    from instep.answers.overview import Failure, FailureGroup, Overview
    from instep.answers.slices import Grid, Slice
    from instep.answers.status import Partition
    from instep.ledger.failures import FailureFilter, FailurePlace
    from instep.ledger.jobs import JobPlace
    from instep.ledger.ledger import Ledger
    from instep.ledger.slices import SlicePlace
    from instep.requests.job_requests import Asked


class Jobs:
    """The methods of `app.Instep` for jobs."""

    project: Project

    def jobs(self, *, limit: int = 20) -> Answers[Job]:
        """Jobs on all servers of the ledger, newest first."""
        demand_whole(limit=limit)
        from instep.answers.jobs import job_answers

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return Answers(job_answers(ledger, limit=limit, timing=container.timing, tables=container.tables))

    def job(self, job_id: str) -> Job:
        """One job. The beginning of its id is enough (at least 4 characters)."""
        from instep.answers.jobs import one_job_answer

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return one_job_answer(ledger, job_id, timing=container.timing, tables=container.tables)

    def overview(self, before: Overview | None = None) -> Overview:
        """Jobs, workers and the last failures now. Parts that cannot have changed are taken from `before`."""
        from instep.answers.overview import overview

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return overview(ledger, before, timing=container.timing, tables=container.tables)

    def watch_jobs(self) -> JobWatch:
        """Watch the jobs, poll by poll. The ledger stays open between polls: close the watch in the end."""
        from instep.answers.job_feed import JobWatch

        container = Container(self.project)
        return JobWatch(lambda: container.ledger(read_only=True), container.tables)

    def stop_job(self, job_id: str, *, reason: str = "stopped by request", wait: bool = False) -> Job:
        """Ask a job to stop: slices in work may end, the rest waits for a resume. `wait` until it has stopped."""
        from instep.answers.jobs import one_job_answer, stop_job

        container = Container(self.project)
        # Looked up in a ledger that is only read: none is made just to find that it is empty.
        found = self.job(job_id)
        with closing(container.ledger()) as ledger:
            stop_job(ledger, found.id, reason, clock=container.clock, wait=wait)
            return one_job_answer(ledger, found.id, timing=container.timing, tables=container.tables)

    def resume_job(self, job_id: str) -> Job:
        """Resume a stopped job: any worker may take it up."""
        from instep.answers.jobs import find_job, one_job_answer, resume_job

        container = Container(self.project)
        found = self.job(job_id)
        with closing(container.ledger()) as ledger:
            resume_job(ledger, find_job(ledger, found.id))
            return one_job_answer(ledger, found.id, timing=container.timing, tables=container.tables)

    def workers(self) -> Answers[Worker]:
        """Workers that are registered in the ledger, and their work, the oldest first."""
        from instep.answers.jobs import worker_answers

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            return Answers(worker_answers(ledger, timing=container.timing))

    # Pages. Each begins after the last item of the page before.

    def job_page(
        self,
        states: Collection[JobState] = (),
        *,
        entities: Iterable[str] | None = None,
        after: JobPlace | None = None,
        limit: int = 20,
    ) -> list[Job]:
        """A page of jobs, newest first: in these states and on these entities, by default in all and on all."""
        demand_whole(limit=limit)
        from instep.answers.jobs import answers_of

        refs = None if entities is None else declared_refs(entities, self.project)
        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            found = ledger.jobs.page(states=states, refs=refs, after=after, limit=limit)
            return answers_of(ledger, found, timing=container.timing, tables=container.tables)

    def slice_page(
        self,
        job_id: str,
        entity: str | None = None,
        *,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 100,
    ) -> list[Slice]:
        """Slices of a job, by partition and number: of one entity (or partition), in one state, or all."""
        demand_whole(limit=limit)
        from instep.answers.jobs import find_job
        from instep.answers.slices import slice_page

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return slice_page(ledger, find_job(ledger, job_id), entity, state=state, after=after, limit=limit)

    def slice_grid(self, job_id: str) -> Grid:
        """The states of all slices of a job."""
        from instep.answers.jobs import find_job
        from instep.answers.slices import slice_grid

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return slice_grid(ledger, find_job(ledger, job_id))

    def failure_page(
        self,
        entities: Iterable[str] | None = None,
        *,
        job: str | None = None,
        stage: str | None = None,
        reason: str | None = None,
        after: FailurePlace | None = None,
        limit: int = 100,
    ) -> list[Failure]:
        """Documents and rows that could not be indexed, newest first: all, or those of these entities that this job met
        last, at this stage, for this reason.
        """
        demand_whole(limit=limit)
        from instep.answers.overview import Failure

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            only = self._failures_of(ledger, entities, job)._replace(stage=stage, reason=reason)
            return list(map(Failure.model_validate, ledger.failures.page(only=only, after=after, limit=limit)))

    def dismiss_failures(self, uris: Iterable[str], entities: Iterable[str] | None = None) -> Answers[Failure]:
        """Forget failures that nobody is going to mend, such as messages of no document, by the URIs of their
        documents; a `*` at the end of a URI matches any ending. The documents are not tried again before they change,
        or before all is read again; one that fails again is listed again.
        """
        from instep.answers.overview import Failure

        named = list(dict.fromkeys(names_in(uris)))
        with closing(Container(self.project).ledger()) as ledger:
            found = ledger.failures.dismiss(named, only=self._failures_of(ledger, entities, None))
            return Answers(map(Failure.model_validate, found))

    def failure_groups(
        self, entities: Iterable[str] | None = None, *, job: str | None = None, offset: int = 0, limit: int = 100
    ) -> list[FailureGroup]:
        """Failures, grouped by partition, stage and reason, the largest groups first."""
        demand_whole(limit=limit, offset=offset)
        from instep.answers.overview import FailureGroup

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            found = ledger.failures.groups(only=self._failures_of(ledger, entities, job), offset=offset, limit=limit)
            return list(map(FailureGroup.model_validate, found))

    def _failures_of(self, ledger: Ledger, entities: Iterable[str] | None, job: str | None) -> FailureFilter:
        from instep.answers.jobs import find_job
        from instep.ledger.failures import FailureFilter

        refs = None if entities is None else declared_refs(entities, self.project)
        return FailureFilter(refs, find_job(ledger, job).id if job else None)

    def job_log(self, job_id: str, *, before: int | None = None, limit: int = 100) -> list[LogLine]:
        """Messages of a job's workers, and its phases: the newest first."""
        demand_whole(limit=limit)
        from instep.answers.job_log import LogLine
        from instep.answers.jobs import find_job

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            found = ledger.job_log.page(find_job(ledger, job_id).id, before=before, limit=limit)
            return list(map(LogLine.model_validate, found))

    def partition_page(
        self, entities: Iterable[str] | None = None, *, after: str | None = None, limit: int = 100
    ) -> list[Partition]:
        """Status of the declared partitions, by name. It costs one request to a target for each."""
        demand_whole(limit=limit)
        from instep.answers.status import entity_status

        refs = sorted(declared_refs(entities, self.project) if entities else all_refs(self.project), key=str)
        page = [ref for ref in refs if after is None or str(ref) > after][:limit]
        container = Container(self.project)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            setups = {setup.ref: setup for setup in container.setups_of(page)}
            return [entity_status(setups[ref], ledger) for ref in page]

    # Requests.

    def ask(
        self,
        entities: Iterable[str] | None = None,
        *,
        rebuild: bool = False,
        settings: JobSettings = NO_SETTINGS,
        generation: str | None = None,
        by: str = "",
    ) -> Asked:
        """Ask for jobs that bring these entities (all by default) in step with their sources as they are now, with
        these settings; with `rebuild`, for a rebuild beside the served index. Returns at once: a worker does the work.
        """
        from instep.entities.generations import checked_generation
        from instep.requests.job_requests import ask

        named = names_in(entities)
        refs = apart(declared_refs(named, self.project), self.project) if named else all_refs(self.project)
        container = Container(self.project)
        with closing(container.ledger()) as ledger:
            return ask(
                ledger,
                container.ids,
                refs,
                rebuild_first=rebuild,
                settings=settings,
                generation=checked_generation(generation),
                by=by,
            )

    def ask_again(self, job_id: str, *, by: str = "") -> Asked | None:
        """Ask for a new job for those entities of an ended job in which something failed, with all that failed in them.
        None if nothing did.
        """
        from instep.answers.jobs import find_job
        from instep.requests.job_requests import ask_again

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            job = find_job(ledger, job_id)
        with closing(container.ledger()) as ledger:
            return ask_again(ledger, container.ids, job, by=by)
