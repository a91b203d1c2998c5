"""The part of the Python API for instances: their history, lineage and provenance, and abandoning them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from instep.answers.answer_list import Answers
from instep.container import Container
from instep.domain.refs import PartitionRef
from instep.domain.settings import JobSettings
from instep.domain.texts import names_in
from instep.domain.whole_numbers import demand_whole
from instep.entities.generations import checked_generation, generation_of
from instep.entities.partitions import declared_ref, declared_refs
from instep.errors import UserError
from instep.project import Project

if TYPE_CHECKING:
    from instep.answers.instances import Change, Instance
    from instep.answers.lineage import Lineage, Moment
    from instep.answers.why import Provenance
    from instep.jobs.garbage_collection import Garbage


class Instances:
    """The methods of `app.Instep` for instances."""

    project: Project

    def history(self, ref: str, *, limit: int = 100) -> Answers[Instance]:
        """Every instance of a partition, newest first."""
        demand_whole(limit=limit)
        from instep.answers.instances import instance_answer

        found = self._ref(ref)
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return Answers(map(instance_answer, ledger.instances.newest(found, limit=limit)))

    def taint(self, ref: str, *, generation: str | None = None, why: str = "", by: str = "") -> Change:
        """Mark the Live instance as wrong: the next run builds a new one; until then it is served as before."""
        from instep.answers.instances import change_answer
        from instep.entities.instances import live, taint

        found, container = self._ref(ref), Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            name = generation_of(ledger, found, checked_generation(generation))
            live(ledger, found, name, "tainted")  # No ledger is made just to find that it is empty.
        with closing(container.ledger()) as ledger:
            return change_answer(taint(ledger, found, name, why=why, by=by))

    def rebuild(self, ref: str, *, generation: str | None = None, allow_empty: bool = False, by: str = "") -> Change:
        """Have the next run build a new instance, though the Live one is right. `allow_empty`: let it become empty if
        its source is empty; a want records this, so that a worker builds it, too.
        """
        from instep.answers.instances import change_answer
        from instep.entities.instances import rebuild
        from instep.requests.wants import make_want

        found, container = self._ref(ref), Container(self.project)
        with closing(container.ledger()) as ledger:
            name = generation_of(ledger, found, checked_generation(generation))
            left = rebuild(ledger, found, name, by=by)
            if allow_empty:
                settings = JobSettings(allow_empty=True)
                make_want(ledger, container.ids.new(), [found], generation=name, by=by, settings=settings)
                left = replace(left, wanted=True)
            return change_answer(left)

    def expire(self, refs: Iterable[str] | None = None, *, generation: str | None = None, by: str = "") -> list[Change]:
        """Expire these partitions; by default those that are past their time to live."""
        from instep.answers.instances import change_answer
        from instep.entities.instances import expire, expire_overdue, live, overdue

        container = Container(self.project)
        named = declared_refs(refs or (), self.project)
        declared = self.project.entities.items()
        ttls = {PartitionRef(name): entity.ttl for name, entity in declared if entity.ttl is not None}
        with closing(container.ledger(read_only=True)) as ledger:
            # All of them, before the first is: and no ledger is made just to find that it is empty.
            names = {ref: generation_of(ledger, ref, checked_generation(generation)) for ref in named}
            for ref, name in names.items():
                live(ledger, ref, name, "expired")
            if not named and not overdue(ledger, ttls):
                return []
        with closing(container.ledger()) as ledger:
            done = (
                [expire(ledger, ref, name, by=by) for ref, name in names.items()]
                if named
                else expire_overdue(ledger, ttls, by=by)
            )
            return list(map(change_answer, done))

    def why(
        self,
        target: str | None,
        row_id: str,
        *,
        principals: Iterable[str] = (),
        generation: str | None = None,
        explain: bool = True,
    ) -> Provenance:
        """Origin of a served row: its instance, job, wants, inputs, and its document or slice.

        `target` names an entity, or a target of documents (None: any document); `row_id` is a chunk_id, a document_id
        or a source URI; for a table, the row's key, its columns joined by commas. If documents have readers, only those
        that `principals` may find are shown. With `explain`, the error for a missing row says why it is missing: that
        is for people who may see the files of this machine.
        """
        from instep.answers.readers import as_principals
        from instep.answers.why import provenance_answer, why

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            found = why(
                container.one_each(),
                ledger,
                target,
                row_id,
                generation=checked_generation(generation),
                principals=as_principals(principals),
                explain=explain,
            )
            return provenance_answer(found)

    def lineage(self, ref: str, *, at: datetime | None = None) -> Lineage:
        """Inputs of the canonical instance of a partition, direct and indirect; `at`: as they were known at that time.

        Name an older instance by its UUID, or by the first 8 characters of that.
        """
        from instep.answers.lineage import lineage

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return lineage(ledger, ref, at=None if at is None else _milliseconds(at))

    def status_at(
        self, entities: Iterable[str] | None = None, *, at: datetime | None = None, job: str | None = None
    ) -> list[Moment]:
        """The canonical instances and their states at a time, or when a job ended; by default now."""
        from instep.answers.jobs import find_job
        from instep.answers.lineage import end_of, moments

        if at is not None and job is not None:
            raise UserError("either a time or a job can be looked back at, not both")
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            now = ledger.now()
            time = end_of(find_job(ledger, job), now) if job is not None else now if at is None else _milliseconds(at)
            return moments(ledger, self.project.entities, at=time, entities=names_in(entities))

    def gc(self, *, keep: timedelta | None = None, dry_run: bool = False) -> Garbage:
        """Forget jobs and wants that ended, and instances that were abandoned, more than `keep` ago (by default, the
        project's retention). Jobs stay for the longest `deletes.window` of the entities in any case.
        """
        from instep.jobs.garbage_collection import collect

        losses = max((entity.deletes.window for entity in self.project.entities.values()), default=0)
        milliseconds = self.project.retention if keep is None else round(keep.total_seconds() * 1000)
        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            found = collect(ledger, keep=milliseconds, losses=losses, dry_run=True)
        if dry_run or found.empty:
            return found
        with closing(container.ledger()) as ledger:
            return collect(ledger, keep=milliseconds, losses=losses)

    def _ref(self, text: str) -> PartitionRef:
        return declared_ref(text, self.project)


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
