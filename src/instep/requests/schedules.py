"""Make a want for each tick of the entities' schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import NAMESPACE_URL, uuid5

from instep.domain.refs import PartitionRef
from instep.domain.schedules import Schedule
from instep.domain.wants import SCHEDULE, Retries
from instep.errors import Conflict, Transient, Unknown
from instep.ledger.ledger import Ledger
from instep.requests.wants import want_of_program
from instep.telemetry import traces


class Schedules:
    """Wants the partitions of `scheduled` as of their last ticks, for all workers together once.

    Ticks that nobody was there for count as one, the last of them; so do those that come while a want of an earlier
    one is open. `retries` says how often a partition is tried.
    """

    def __init__(
        self,
        scheduled: Mapping[PartitionRef, Schedule],
        ledger: Ledger,
        retries: Callable[[PartitionRef], Retries] = lambda _: Retries(),
    ) -> None:
        self._scheduled = scheduled
        self._ledger = ledger
        self._retries = retries
        self._answered: dict[PartitionRef, int] = {}

    def take(self) -> bool:
        """Make the wants that are due. An outage of the ledger passes. False when nothing has a schedule."""
        try:
            for ref, schedule in self._scheduled.items():
                tick = schedule.latest(self._ledger.now())
                if self._answered.get(ref) != tick and self._want(ref, tick):
                    self._answered[ref] = tick
        except (Transient, Unknown):
            pass  # The worker itself says that the ledger is away.
        return bool(self._scheduled)

    def _want(self, ref: PartitionRef, tick: int) -> bool:
        """Whether the tick needs no further look. A want's id follows from its tick: workers make it once."""
        id = str(uuid5(NAMESPACE_URL, f"instep:{SCHEDULE} {ref} {tick}"))
        if self._ledger.wants.get(id) is not None:
            return True
        if any(each.by == SCHEDULE for each in self._ledger.wants.newest(ref=ref, open_only=True)):
            return False
        with traces.span("request", want=id, refs=str(ref), by=SCHEDULE):
            made = want_of_program(self._ledger, id, ref, as_of=tick, by=SCHEDULE, retries=self._retries(ref))
        try:
            self._ledger.events.append([made])
        except Conflict:
            return self._ledger.wants.get(id) is not None  # Another worker was faster.
        return True
