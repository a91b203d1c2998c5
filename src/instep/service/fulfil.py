"""A worker makes jobs of wants that nobody works on."""

from __future__ import annotations

from instep.domain.refs import PartitionRef
from instep.service.begin import Beginner
from instep.service.plan import EntityPlan
from instep.service.upstream import cancel_waits, in_hand
from instep.service.wants import can_begin


class Fulfiller(Beginner):
    """Starts what open wants wait for."""

    def _due(self) -> list[tuple[PartitionRef, str]]:
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

    def _idle(self, plan: EntityPlan) -> bool:
        """There is nothing to do. Whether a job waited for it, which has failed now."""
        why = "; ".join(plan.found.why) or "it is wanted, and there is nothing to do"
        self._leave_alone(plan.ref, plan.generation, why)
        return cancel_waits(self._context.ledger, plan.ref, plan.generation, why)
