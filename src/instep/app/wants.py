"""The part of the Python API for wants: ask for partitions to be built, or to be fresh enough."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from instep.answers.answer_list import Answers
from instep.container import Container
from instep.domain.refs import PartitionRef
from instep.domain.texts import names_in
from instep.domain.whole_numbers import demand_whole
from instep.entities.generations import checked_generation, one_generation_of
from instep.entities.partitions import declared_ref, wanted_refs
from instep.project import Project

if TYPE_CHECKING:
    from instep.answers.wants import Want


class Wants:
    """The methods of `app.Instep` that make, list and cancel wants."""

    project: Project

    def want(
        self,
        refs: Iterable[str],
        *,
        namespaces: Iterable[str] = (),
        fresh_within: timedelta | None = None,
        as_of: datetime | None = None,
        generation: str | None = None,
        by: str = "",
    ) -> Want:
        """Ask for partitions (`Document` or `Document@global`): as of a time, not older than so long, or at all; in the
        promoted generation or another. `namespaces`: the partitions in these, declared or not.

        Returns at once: the next run, or a worker, builds what is not there.
        """
        from instep.jobs.namespaces import namespaces_of

        wanted = wanted_refs(names_in(refs), namespaces_of(namespaces), self.project)
        (made,) = self._make_wants([wanted], fresh_within, as_of, generation, by)
        return made

    def want_all(
        self,
        *,
        namespaces: Iterable[str] = (),
        fresh_within: timedelta | None = None,
        as_of: datetime | None = None,
        generation: str | None = None,
        by: str = "",
    ) -> list[Want]:
        """Ask for all declared entities (if namespaces are named, only in these): one want for each entity, so that
        none waits for another.
        """
        from instep.jobs.namespaces import namespaces_of

        wanted = wanted_refs([], namespaces_of(namespaces), self.project)
        by_entity: dict[str, list[PartitionRef]] = {}
        for ref in wanted:
            by_entity.setdefault(ref.entity, []).append(ref)
        return self._make_wants(by_entity.values(), fresh_within, as_of, generation, by)

    def _make_wants(
        self,
        wanted: Iterable[list[PartitionRef]],
        fresh_within: timedelta | None,
        as_of: datetime | None,
        generation: str | None,
        by: str,
    ) -> list[Want]:
        from instep.requests.wants import make_want

        container = Container(self.project)
        named = checked_generation(generation)
        with closing(container.ledger()) as ledger:
            return [
                make_want(
                    ledger,
                    container.ids.new(),
                    refs,
                    generation=one_generation_of(ledger, refs, named),
                    fresh_within=None if fresh_within is None else round(fresh_within.total_seconds() * 1000),
                    as_of=None if as_of is None else round(as_of.timestamp() * 1000),
                    by=by,
                )
                for refs in wanted
            ]

    def wants(
        self, ref: str | None = None, *, ended: bool = False, after: str | None = None, limit: int = 100
    ) -> Answers[Want]:
        """Open wants (with `ended`, all) on one partition or all, newest first. `after`: those that
        are older than the want of this id.
        """
        demand_whole(limit=limit)
        from instep.requests.wants import want_views

        only = None if ref is None else declared_ref(ref, self.project)
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return Answers(want_views(ledger, ref=only, open_only=not ended, after=after, limit=limit))

    def want_of(self, want_id: str) -> Want:
        """The want of this id; its beginning is enough (at least 4 characters). Raises `Missing` if there is none."""
        from instep.requests.wants import want_view

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return want_view(ledger, want_id)

    def cancel_want(self, want_id: str, *, by: str = "", why: str = "") -> Want:
        """Cancel a want. The beginning of its id is enough (at least 4 characters)."""
        from instep.requests.wants import cancel_want, find_want

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            found = find_want(ledger, want_id)
        with closing(container.ledger()) as ledger:
            return cancel_want(ledger, found.id, by=by, why=why)
