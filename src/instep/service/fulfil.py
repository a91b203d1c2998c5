"""A worker makes jobs of wants that nobody works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.service.plan import EntityPlan
from instep.service.planner import Planner
from instep.service.start import Busy, Start
from instep.service.wants import can_begin

if TYPE_CHECKING:
    from instep.service.worker import Worker


class Fulfiller:
    """Starts what open wants wait for. What could not be started is left alone for a while (a sweep's time)."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._context = planner.context
        self._later: dict[PartitionRef, float] = {}

    def begin(self, worker: Worker) -> bool:
        """Make a job of what is wanted, not begun by anybody, and ours to build. False if there is nothing."""
        refs = self._wanted()
        plans = [plan for ref in refs if (plan := self._plan(ref))]
        if not plans:
            return False
        start = Start(
            {plan.ref: plan for plan in plans}, self._planner, worker, deadline=self._context.clock.monotonic()
        )
        try:
            start.get()
        except Busy:
            return False  # Others were quicker.
        except UserError as error:
            for plan in plans:
                self._leave_alone(plan.ref, str(error))
            return False
        return bool(start.taken)

    def _wanted(self) -> list[PartitionRef]:
        now, ledger, clock = self._context.ledger.now(), self._context.ledger, self._context.clock
        found: dict[PartitionRef, None] = {}
        for want in ledger.wants(open_only=True):
            if can_begin(want, now):
                found |= dict.fromkeys(PartitionRef.parse(ref) for ref in want.refs)
        return [ref for ref in found if ref in self._planner.setups and self._later.get(ref, 0.0) <= clock.monotonic()]

    def _plan(self, ref: PartitionRef) -> EntityPlan | None:
        try:
            plan = self._planner.plan(ref)
        except UserError as error:
            self._leave_alone(ref, str(error))
            return None
        if plan.pending:
            return plan
        self._leave_alone(ref, "; ".join(plan.why) or "it is wanted, and there is nothing to do")
        return None

    def _leave_alone(self, ref: PartitionRef, why: str) -> None:
        self._context.progress.say(ref.entity, why)
        self._later[ref] = self._context.clock.monotonic() + self._context.timing.sweep / 1000
