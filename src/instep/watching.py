"""The part of the Python API that a server and its page ask: pages of what the ledger has, and requests for jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from instep.domain.jobs import Job, JobState, SliceState
from instep.domain.refs import PartitionRef, own_name
from instep.domain.settings import NO_SETTINGS, JobSettings
from instep.errors import Missing
from instep.project import Project
from instep.service.compose import Workshop
from instep.service.partitions import all_refs, declared_refs

if TYPE_CHECKING:
    from instep.ledger.pages import FailurePlace, JobPlace, SlicePlace, SliceView
    from instep.ledger.port import FailureRecord
    from instep.service.asking import Asked
    from instep.service.jobs import JobView
    from instep.service.status import EntityStatus


class Watching:
    """Of one project; see `app.Instep`."""

    project: Project

    # Pages. Each begins after the last item of the one before.

    def job_page(
        self, states: Collection[JobState] = (), *, after: JobPlace | None = None, limit: int = 20
    ) -> list[JobView]:
        """Newest first; of all states, unless some are named."""
        from instep.service.jobs import views_of

        workshop = Workshop(self.project)
        with closing(workshop.ledger(read_only=True)) as ledger:
            found = ledger.job_page(states=states, after=after, limit=limit)
            return views_of(ledger, found, timing=workshop.timing, tables=workshop.tables)

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
        from instep.service.jobs import find_job

        with closing(Workshop(self.project).ledger(read_only=True)) as ledger:
            job = find_job(ledger, job_id)
            refs = None if entity is None else _named_in(job, entity)
            return ledger.slice_page(job.id, refs=refs, state=state, after=after, limit=limit)

    def slice_states(self, job_id: str) -> dict[tuple[PartitionRef, str], list[SliceState]]:
        """The states of all slices, by their numbers: of each partition of a job, and its generation."""
        from instep.service.jobs import find_job

        with closing(Workshop(self.project).ledger(read_only=True)) as ledger:
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
        with closing(Workshop(self.project).ledger(read_only=True)) as ledger:
            return ledger.failure_page(refs=refs, after=after, limit=limit)

    def partition_page(
        self, entities: Iterable[str] | None = None, *, after: str | None = None, limit: int = 100
    ) -> list[EntityStatus]:
        """How partitions are, as far as their namespaces are declared, by name. What is asked of their targets costs
        a question each.
        """
        from instep.service.status import entity_status

        refs = sorted(declared_refs(entities, self.project) if entities else all_refs(self.project), key=str)
        page = [ref for ref in refs if after is None or str(ref) > after][:limit]
        workshop = Workshop(self.project)
        with closing(workshop), closing(workshop.ledger(read_only=True)) as ledger:
            setups = {setup.ref: setup for setup in workshop.setups_of(page)}
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
        from instep.service.asking import ask
        from instep.service.generations import checked_generation

        named = list(entities or ())
        refs = declared_refs(named, self.project) if named else all_refs(self.project)
        workshop = Workshop(self.project)
        with closing(workshop.ledger()) as ledger:
            return ask(
                ledger,
                workshop.ids,
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
        from instep.service.asking import ask_again
        from instep.service.jobs import find_job

        workshop = Workshop(self.project)
        with closing(workshop.ledger(read_only=True)) as ledger:
            job = find_job(ledger, job_id)
        with closing(workshop.ledger()) as ledger:
            return ask_again(ledger, workshop.ids, job, by=by)


def _named_in(job: Job, entity: str) -> Sequence[PartitionRef]:
    """Partitions of a job that are called so: it may be on some that are not declared any more."""
    refs = [each.part.ref for each in job.parts]
    found = [ref for ref in refs if entity in (str(ref), ref.entity, own_name(ref.entity))]
    if not found:
        raise Missing(f"job {job.id} is not on {entity!r}", hint=f"It is on: {', '.join(map(str, refs)) or 'nothing'}.")
    return found
