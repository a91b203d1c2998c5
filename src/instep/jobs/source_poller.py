"""Poll sources for changes, and start jobs for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from instep.domain.jobs import Job, JobState
from instep.domain.manifest import LEFT_UNREAD
from instep.domain.refs import PartitionRef
from instep.entities.generations import generation_of
from instep.entities.plan_request import Kind
from instep.jobs.job_starter import JobStarter
from instep.jobs.restart_pauses import RestartPauses
from instep.planning.plan import EntityPlan
from instep.planning.planner import Planner
from instep.planning.upstream import in_hand, missing_upstream, upstream_first
from instep.sources.document_source import SourceEvents

#: The pause after a slow poll, as a multiple of its duration; and where the system tells what changes meanwhile.
REST, REST_WITH_EVENTS = 4, 100
#: First and longest pause, in seconds, between two tries of documents that could not be read.
_UNREAD_FIRST, _UNREAD_MOST = 10.0, 3_600.0


class SourcePoller(JobStarter):
    """Starts jobs for sources that differ from their index, in the promoted generation. Not for jobs that a user has
    stopped; after a pause for failed ones; and only when the upstream exists. `every`: seconds between two polls of a
    source, or more if a poll takes long; less of one that is looked at often. Local files are looked at one by one as
    they change, between two polls.
    """

    def __init__(self, planner: Planner, every: float, pauses: RestartPauses | None = None) -> None:
        super().__init__(planner, pauses)
        self._every = every
        self._next: dict[PartitionRef, float] = {}
        self._events: dict[PartitionRef, SourceEvents | None] = {}
        self._failures: dict[PartitionRef, str] = {}
        #: Paths that have changed, until a plan says that nothing is to be done about them.
        self._changed: dict[PartitionRef, set[str]] = {}
        #: No look at single paths before then: only a long listing would have told what has changed.
        self._rest: dict[PartitionRef, float] = {}
        #: Missing upstream, as text.
        self._lacking: dict[PartitionRef, str] = {}
        self._told: dict[PartitionRef, str] = {}
        self._unread: dict[PartitionRef, tuple[int, float]] = {}
        #: The changes of the last plan that was begun, and the job before it.
        self._begun: dict[PartitionRef, tuple[str | None, tuple[str, ...]]] = {}

    def close(self) -> None:
        """Stop watching files."""
        for each in filter(None, self._events.values()):
            each.close()

    def _due(self) -> list[tuple[PartitionRef, str]]:
        ledger = self._context.ledger
        for ref in self._planner.setups:
            self._take_events(ref)
        refs = [ref for ref in self._planner.setups if self._paths(ref) != frozenset()]
        busy = in_hand(ledger.open_parts.on(refs), self._planner.setups) if refs else set()
        ordered = upstream_first(self._planner.setups, [ref for ref in refs if ref not in busy])
        return self._rested([(ref, generation_of(ledger, ref, None)) for ref in ordered])

    def _take_events(self, ref: PartitionRef) -> None:
        if ref not in self._events:
            self._events[ref] = self._planner.setups[ref].events()
        events = self._events[ref]
        if events is None:
            return
        if events.failure and events.failure != self._failures.get(ref):
            self._context.progress.say(ref.label, f"changes are found by listing: {events.failure}")
        self._failures[ref] = events.failure
        paths = events.take()
        if paths is None:
            self._next.pop(ref, None)
        else:
            self._changed.setdefault(ref, set()).update(paths)

    def _paths(self, ref: PartitionRef) -> frozenset[str] | None:
        """The changed paths to look at; None when it is time to look at all of the source."""
        now = self._context.clock.monotonic()
        if self._next.get(ref, 0.0) <= now:
            return None
        return frozenset() if self._rest.get(ref, 0.0) > now else frozenset(self._changed.get(ref, ()))

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
        plan, seen = None, frozenset(self._changed.get(ref, ()))
        try:
            plan = super()._plan(ref, generation)
        finally:
            if plan is None or not plan.found.partial:
                self._looked(ref, began)
        # A listing of the past has not seen what these paths tell: they are looked at next.
        if plan is not None and not plan.pending and seen and not plan.found.of_past:
            self._changed[ref] -= seen
            if events := self._events.get(ref):
                events.done(seen)
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
        """Whether the only work is to retry documents that could not be read, and that is not due yet."""
        ref, now = plan.ref, self._context.clock.monotonic()
        changes = plan.found.changes
        # Of many in columns one is asked for first: as a rule that is another.
        only = changes and changes[0].why == LEFT_UNREAD and all(each.why == LEFT_UNREAD for each in changes)
        job = self._context.ledger.jobs.latest(ref, plan.generation) if changes else None
        state = tuple(plan.found.state)
        if plan.kind is not Kind.REFRESH or not (only or self._left_as_it_was(ref, job, state)):
            self._unread.pop(ref, None)
        else:
            times, until = self._unread.get(ref, (0, 0.0))
            if until > now:
                return True
            self._unread[ref] = times + 1, now + min(_UNREAD_FIRST * 2**times, _UNREAD_MOST)
        self._begun[ref] = job.id if job else None, state
        return False

    def _left_as_it_was(self, ref: PartitionRef, job: Job | None, state: tuple[str, ...]) -> bool:
        """Whether a job has had these very changes since, and ended well: documents are listed that were gone when they
        were to be read.
        """
        before = self._begun.get(ref)
        if before is None or job is None or self._planner.setups[ref].unit != "document":
            return False
        return before[1] == state and before[0] != job.id and job.part(ref).state is JobState.COMPLETED

    def _looked(self, ref: PartitionRef, began: float) -> None:
        ended = self._context.clock.monotonic()
        events, often = self._events.get(ref), self._planner.setups[ref].look_every
        every = self._every if often is None else min(self._every, often)
        rest = REST if events is None or events.failure else REST_WITH_EVENTS
        # What may be looked at often tells what came since: a look takes long only if much did.
        self._next[ref] = ended + (max(every, rest * (ended - began)) if often is None else every)
        self._rest[ref] = ended + REST * (ended - began)

    def _demand(self, keys: Iterable[tuple[PartitionRef, str]]) -> None:
        """Accept always: a change of a source is never withdrawn."""

    def _idle(self, plan: EntityPlan) -> bool:
        """Forget the retries, since the index is up to date."""
        self._refusals.forget(plan.ref, plan.generation)
        return False
