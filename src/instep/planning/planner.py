"""Make plans with one set of options, and check them against a saved plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from instep.domain.fingerprint import TARGET
from instep.domain.refs import PartitionRef
from instep.domain.texts import cleaned
from instep.domain.topic_offsets import Offsets
from instep.entities.generations import generation_of
from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.errors import UserError
from instep.planning.context import Context
from instep.planning.plan import EntityPlan, plan_entity, unplanned
from instep.telemetry import traces
from instep.telemetry.context import current_context


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes plans. `expected` maps references to digests of a saved plan, which is refused when anything has changed
    since.
    """

    setups: Mapping[PartitionRef, EntitySetup]
    context: Context
    options: PlanOptions
    expected: Mapping[str, str]

    def unplanned(self, ref: PartitionRef) -> EntityPlan:
        return unplanned(self.setups[ref], self.options.generation or "", self.context.choose)

    def plan(
        self,
        ref: PartitionRef,
        generation: str | None = None,
        *,
        again: bool = False,
        indexes: Callable[[str], set[str]] | None = None,
        paths: frozenset[str] | None = None,
        until: Offsets | None = None,
    ) -> EntityPlan:
        """Plan a generation, by default that of the options. Raises `UserError` when the plan may not be run. `again`:
        after a job of this run, so a saved plan no longer applies. `paths`, `until`: see `PlanOptions`.
        """
        if generation is None:
            generation = generation_of(self.context.ledger, ref, self.options.generation)
        asked_in = current_context().traceparent
        with traces.span("plan", ref=str(ref), generation=generation) as span:
            plan = self._plan(
                ref, generation, again=again, indexes=indexes, options=replace(self.options, paths=paths, until=until)
            )
            if not plan.pending and not asked_in:
                span.drop()  # No request and no change: a worker that polls does this every few seconds.
            span.set(kind=str(plan.kind), slices=len(plan.slices), units=plan.units)
            return replace(plan, traceparent=asked_in or current_context().traceparent)

    def _plan(
        self,
        ref: PartitionRef,
        generation: str,
        *,
        again: bool,
        indexes: Callable[[str], set[str]] | None,
        options: PlanOptions,
    ) -> EntityPlan:
        setup, context = self.setups[ref], self.context
        # A first build has work: Spark may start during listing and planning. Not for what cannot be built.
        if context.ledger.checkpoints.get(ref, generation) is None and setup.fingerprint:
            context.prepare(setup)
        plan = plan_entity(
            setup,
            context.ledger,
            options,
            generation,
            choose=context.choose,
            listing=lambda found: context.progress.listing(ref.label, found),
            indexes=indexes,
            contacts=context.contacts,
            loaded=context.loaded,
        )
        self._tell_listing(plan)
        known = plan.checkpoint
        if not plan.pending and known and TARGET in setup.fingerprint and TARGET not in known.fingerprint:
            context.ledger.checkpoints.describe(known, setup.fingerprint)  # Of a version that knew no place.
        if known and plan.found.confirmed:
            context.ledger.seen.confirm(known, plan.found.confirmed)
        digest = self.expected.get(str(ref))
        if digest is not None and not again and plan.digest != digest:
            raise UserError(
                f"the saved plan for {ref} is out of date: source, index or project have changed since",
                hint="Plan again: instep plan -o plan.json",
            )
        if plan.found.blocked:
            raise UserError(plan.found.blocked.why, where=str(ref), hint=plan.found.blocked.hint)
        return plan

    def _tell_listing(self, plan: EntityPlan) -> None:
        """Record for `instep status` whether the source could be read completely."""
        if self.options.repair or plan.found.partial:
            return
        problem = cleaned(plan.found.problems[0]) if plan.found.problems else None
        if self.context.ledger.losses.listing_problem(plan.ref) != problem:
            self.context.ledger.losses.tell_listing(plan.ref, problem)
