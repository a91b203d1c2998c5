"""The part of the Python API that a server and its page ask: pages of what the ledger has, and requests for jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from instep.container import Container
from instep.domain.jobs import Job, JobState, SliceState
from instep.domain.refs import PartitionRef, own_name
from instep.domain.settings import NO_SETTINGS, JobSettings
from instep.entities.partitions import all_refs, declared_refs
from instep.errors import Missing
from instep.project import Project

if TYPE_CHECKING:
    from instep.answers.jobs import JobView
    from instep.answers.status import EntityStatus
    from instep.ledger.ledger import FailureRecord
    from instep.ledger.paging import FailurePlace, JobPlace, SlicePlace, SliceView
    from instep.requests.job_requests import Asked


class Watching:
    """Of one project; see `app.Instep`."""

    project: Project

    # Pages. Each begins after the last item of the one before.

    def job_page(
        self, states: Collection[JobState] = (), *, after: JobPlace | None = None, limit: int = 20
    ) -> list[JobView]:
        """Newest first; of all states, unless some are named."""
        from instep.answers.jobs import views_of

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            found = ledger.job_page(states=states, after=after, limit=limit)
            return views_of(ledger, found, timing=container.timing, tables=container.tables)

    def slice_page(
        self,
        job_id: str,
        entity: str | None = None,
        *,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 100,
    ) -> list[SliceView]:
        """Slices of a job, by partition and number: of one entity (or partition), in one state, or all."""
        from instep.answers.jobs import find_job

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            job = find_job(ledger, job_id)
            refs = None if entity is None else _named_in(job, entity)
            return ledger.slice_page(job.id, refs=refs, state=state, after=after, limit=limit)

    def slice_states(self, job_id: str) -> dict[tuple[PartitionRef, str], list[SliceState]]:
        """The states of all slices, by their numbers: of each partition of a job, and its generation."""
        from instep.answers.jobs import find_job

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            job = find_job(ledger, job_id)
            found: dict[PartitionRef, list[SliceState]] = {each.part.ref: [] for each in job.parts}
            for ref, _, state in ledger.slice_states(job.id):
                found.setdefault(ref, []).append(state)
        generations = {each.part.ref: each.part.generation for each in job.parts}
        return {(ref, generations.get(ref, "")): states for ref, states in found.items()}

    def failure_page(
        self, entities: Iterable[str] | None = None, *, after: FailurePlace | None = None, limit: int = 100
    ) -> list[FailureRecord]:
        """Documents and rows that could not be indexed, newest first."""
        refs = None if entities is None else declared_refs(entities, self.project)
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return ledger.failure_page(refs=refs, after=after, limit=limit)

    def partition_page(
        self, entities: Iterable[str] | None = None, *, after: str | None = None, limit: int = 100
    ) -> list[EntityStatus]:
        """How partitions are, as far as their namespaces are declared, by name. What is asked of their targets costs
        a question each.
        """
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
        """Ask for these entities (all by default) as they are now in their sources, and say how their jobs are to be
        done; with `rebuild`, have them built anew beside what is served. Returns at once: a worker does it.
        """
        from instep.entities.generations import checked_generation
        from instep.requests.job_requests import ask

        named = list(entities or ())
        refs = declared_refs(named, self.project) if named else all_refs(self.project)
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
        """Ask for the entities in which something of an ended job failed, with all that failed in them. None if nothing
        did.
        """
        from instep.answers.jobs import find_job
        from instep.requests.job_requests import ask_again

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            job = find_job(ledger, job_id)
        with closing(container.ledger()) as ledger:
            return ask_again(ledger, container.ids, job, by=by)


def _named_in(job: Job, entity: str) -> Sequence[PartitionRef]:
    """Partitions of a job that are called so: it may be on some that are not declared any more."""
    refs = [each.part.ref for each in job.parts]
    found = [ref for ref in refs if entity in (str(ref), ref.entity, own_name(ref.entity))]
    if not found:
        raise Missing(f"job {job.id} is not on {entity!r}", hint=f"It is on: {', '.join(map(str, refs)) or 'nothing'}.")
    return found
