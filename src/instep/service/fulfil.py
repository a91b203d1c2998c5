"""A worker makes jobs of wants that nobody works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instep.domain.refs import PartitionRef
from instep.errors import Transient, Unknown, UserError
from instep.service.plan import EntityPlan
from instep.service.planner import Planner
from instep.service.start import Busy, Start
from instep.service.turns import turns
from instep.service.upstream import cancel_waits, in_hand
from instep.service.wants import can_begin

if TYPE_CHECKING:
    from instep.service.worker import Worker


class Fulfiller:
    """Starts what open wants wait for. What could not be started is left alone for a while (a sweep's time)."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._context = planner.context
        self._later: dict[tuple[PartitionRef, str], float] = {}

    def begin(self, worker: Worker) -> bool:
        """Make a job of what is wanted, not begun by anybody, and ours to build. False if there is nothing."""
        plans: dict[PartitionRef, EntityPlan] = {}
        canceled = False
        for ref, generation in self._wanted():
            # One generation of each partition: the next one when that is built.
            plan = None if ref in plans else self._plan(ref, generation)
            if plan is not None and plan.pending:
                plans[ref] = plan
            elif plan is not None:
                canceled |= self._cancel(plan)
        if not plans:
            return canceled
        found = turns(self._planner.setups[ref] for ref in plans)
        alone = len(found) == 1
        begun = [self._start({setup.ref: plans[setup.ref] for setup in turn}, worker, alone=alone) for turn in found]
        return any(begun)

    def _start(self, plans: Mapping[PartitionRef, EntityPlan], worker: Worker, *, alone: bool) -> bool:
        start = Start(plans, self._planner, worker, deadline=self._context.clock.monotonic())
        try:
            start.get()
        except Busy:
            return False  # Others were quicker.
        except (UserError, Transient, Unknown) as error:
            if alone and not isinstance(error, UserError):
                raise
            for plan in plans.values():
                self._leave_alone(plan.ref, plan.generation, str(error))
            return False
        return start.progressed

    def _wanted(self) -> list[tuple[PartitionRef, str]]:
        """Of our partitions those that somebody waits for, and in which generation: whoever waits longest first."""
        setups, ledger, time = self._planner.setups, self._context.ledger, self._context.clock.monotonic()
        wants, now = ledger.startable_wants(setups), ledger.now()
        named = [
            (PartitionRef.parse(ref), each.generation) for each in wants if can_begin(each, now) for ref in each.refs
        ]
        found = [key for key in dict.fromkeys(named) if key[0] in setups and self._later.get(key, 0.0) <= time]
        # A part whose instance has failed with its upstream may still be open while its partition is wanted anew.
        busy = in_hand(ledger.open_parts({ref for ref, _ in found}), setups) if found else set()
        return [key for key in found if key[0] not in busy]

    def _plan(self, ref: PartitionRef, generation: str) -> EntityPlan | None:
        try:
            return self._planner.plan(ref, generation)
        except UserError as error:
            self._leave_alone(ref, generation, str(error))
            return None

    def _cancel(self, plan: EntityPlan) -> bool:
        """There is nothing to do. Whether a job waited for it, which has failed now."""
        why = "; ".join(plan.found.why) or "it is wanted, and there is nothing to do"
        self._leave_alone(plan.ref, plan.generation, why)
        return cancel_waits(self._context.ledger, plan.ref, plan.generation, why)

    def _leave_alone(self, ref: PartitionRef, generation: str, why: str) -> None:
        self._context.progress.say(ref.label, why)
        self._later[ref, generation] = self._context.clock.monotonic() + self._context.timing.sweep / 1000
