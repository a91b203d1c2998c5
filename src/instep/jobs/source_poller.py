"""Poll sources for changes, and start jobs for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from instep.domain.manifest import LEFT_UNREAD
from instep.domain.refs import PartitionRef
from instep.entities.generations import generation_of
from instep.entities.plan_request import Kind
from instep.jobs.job_starter import JobStarter
from instep.jobs.restart_pauses import RestartPauses
from instep.planning.plan import EntityPlan
from instep.planning.planner import Planner
from instep.planning.upstream import in_hand, missing_upstream, upstream_first

#: The pause after a slow poll, as a multiple of its duration.
REST = 4
#: First and longest pause, in seconds, between two tries of documents that could not be read.
_UNREAD_FIRST, _UNREAD_MOST = 10.0, 3_600.0


class SourcePoller(JobStarter):
    """Starts jobs for sources that differ from their index, in the promoted generation. Not for jobs that a user has
    stopped; after a pause for failed ones; and only when the upstream exists. `every`: seconds between two polls of a
    source, or more if a poll takes long.
    """

    def __init__(self, planner: Planner, every: float, pauses: RestartPauses | None = None) -> None:
        super().__init__(planner, pauses)
        self._every = every
        self._next: dict[PartitionRef, float] = {}
        #: Missing upstream, as text.
        self._lacking: dict[PartitionRef, str] = {}
        self._told: dict[PartitionRef, str] = {}
        self._unread: dict[PartitionRef, tuple[int, float]] = {}

    def _due(self) -> list[tuple[PartitionRef, str]]:
        ledger, time = self._context.ledger, self._context.clock.monotonic()
        refs = [ref for ref in self._planner.setups if self._next.get(ref, 0.0) <= time]
        busy = in_hand(ledger.open_parts.on(refs), self._planner.setups) if refs else set()
        ordered = upstream_first(self._planner.setups, [ref for ref in refs if ref not in busy])
        return self._rested([(ref, generation_of(ledger, ref, None)) for ref in ordered])

    def _rested(self, keys: Collection[tuple[PartitionRef, str]]) -> list[tuple[PartitionRef, str]]:
        found = []
        for ref, generation in keys:
            why = self._pauses.why(self._planner.setups[ref], generation)
            if why:
                self._lacking[ref] = why
                self._looked(ref, self._context.clock.monotonic())
            elif not self._refusals.rests(ref, generation):
                found.append((ref, generation))
        return found

    def _waits(self, ref: PartitionRef, generation: str) -> bool:
        """Whether the upstream is missing, which is reported once; nothing is planned until it exists."""
        missing = missing_upstream(self._planner.setups[ref], self._context.ledger)
        why = next((f"waits for {each}: {self._lacking[each]}" for each in missing if each in self._lacking), None)
        if why is None:
            self._told.pop(ref, None)
            return False
        if self._told.get(ref) != why:
            self._context.progress.say(ref.label, why)
            self._told[ref] = why
        self._lacking[ref] = why
        self._looked(ref, self._context.clock.monotonic())
        return True

    def _plan(self, ref: PartitionRef, generation: str) -> EntityPlan | None:
        clock = self._context.clock
        began = clock.monotonic()
        try:
            plan = super()._plan(ref, generation)
        finally:
            self._looked(ref, began)
        if plan is not None and self._left_unread(plan):
            return None
        if plan is None:
            self._lacking[ref] = "it could not be planned"
        elif plan.pending:
            self._lacking.pop(ref, None)
        else:
            self._lacking[ref] = "; ".join(plan.found.why) or "there is nothing to do"
        return plan

    def _left_unread(self, plan: EntityPlan) -> bool:
        """Whether the only work is to retry unreadable documents, and that is not due yet."""
        ref, now = plan.ref, self._context.clock.monotonic()
        only = all(each.why == LEFT_UNREAD for each in plan.found.changes)
        if plan.kind is not Kind.REFRESH or not plan.found.changes or not only:
            self._unread.pop(ref, None)
            return False
        times, until = self._unread.get(ref, (0, 0.0))
        if until > now:
            return True
        self._unread[ref] = times + 1, now + min(_UNREAD_FIRST * 2**times, _UNREAD_MOST)
        return False

    def _looked(self, ref: PartitionRef, began: float) -> None:
        ended = self._context.clock.monotonic()
        self._next[ref] = ended + max(self._every, REST * (ended - began))

    def _demand(self, keys: Iterable[tuple[PartitionRef, str]]) -> None:
        """Accept always: a change of a source is never withdrawn."""

    def _idle(self, plan: EntityPlan) -> bool:
        """The index is up to date: forget the retries."""
        self._refusals.forget(plan.ref, plan.generation)
        return False
