"""The event log of a ledger, and what follows from it: instances and wants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from instep.domain.events import Event, Recorded, Unreadable
from instep.domain.instances import Instance
from instep.domain.jobs import JobPart
from instep.domain.refs import PartitionRef
from instep.domain.state import Rejected, State
from instep.domain.storable import LONGEST_ID, is_storable, storable
from instep.domain.wants import Want
from instep.ledger.rejected_events import RejectedEvent

#: An event as it is stored: sequence, at, kind, version, JSON. `domain.events.read` makes events of them.
LogRow = tuple[int, int, str, int, str]


#: What is in an index, and of how many characters it can be.
_NAMES: Final = (("want", LONGEST_ID), ("ref", 255), ("refs", 255), ("missing", 255))


def unkept(event: Event | Unreadable) -> Rejected | None:
    """Why an event cannot be: it names what not every ledger could find again."""
    for field_name, longest in _NAMES:
        named = getattr(event, field_name, ())
        for each in (named,) if isinstance(named, str) else named:
            if len(each) > longest:
                return Rejected("malformed", f"{each[:40]}… is too long to be stored")
            if not is_storable(each):
                return Rejected("malformed", f"{storable(each)} cannot be stored: it is not text")
    return None


@dataclass(frozen=True, slots=True)
class Verified:
    """What replaying the whole log showed: events in it, those that have no effect counted by name (and the first few
    of each name), and in words where the stored projections are not what it leads to.
    """

    events: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    skips: tuple[RejectedEvent, ...] = ()


class EventLog(Protocol):
    """Part of `port.Ledger`.

    Sequences begin with 1, have no gaps, and become visible in their order, so that nobody who reads what comes
    after n ever misses one; `at` never goes back. The projections (canonical, instance, instances, wants, want)
    change in the transaction that appends. References in text are normal forms.
    """

    def append(self, events: Sequence[Event]) -> list[Recorded]:
        """Append events, all or none. They are applied as they will be read from the log again. Raises `Conflict`,
        with the fold's reason, when one is rejected by what came before it.
        """

    def events(self, after: int = 0, limit: int = 1_000) -> list[LogRow]:
        """Those of the log after a sequence, in order."""

    def canonical(self, ref: PartitionRef, generation: str = "") -> Instance | None: ...

    def instance(self, uuid: str) -> Instance | None: ...

    def instances(self, ref: PartitionRef, limit: int = 100) -> list[Instance]:
        """Of all generations, newest first."""

    def want(self, id: str) -> Want | None: ...

    def wants(
        self,
        *,
        ref: PartitionRef | None = None,
        open_only: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Want]:
        """Newest first; of one partition (in any generation), if one is given. `after`: those that are older than the
        want of this id; none if there is no such one.
        """

    def startable_wants(self, refs: Collection[PartitionRef]) -> list[Want]:
        """Of each generation of each of these partitions the oldest want that is Idle and not wanted as of later than
        now, the oldest first: what jobs are to be made for, however many wait.
        """

    def state(self, *, at: int | None = None, sequence: int | None = None) -> State:
        """What the log leads to, by way of the newest snapshot that can be read; as of a time (events of that very
        millisecond have happened) or after an event. Every call gives a State of its own.
        """

    def verify(self) -> Verified:
        """Replay the whole log, without snapshots, and compare with the projections. Changes nothing."""

    def rebuild_projections(self) -> Verified:
        """Replay the whole log, and make the projections what it leads to, in one transaction. The differences are
        those that there were. Snapshots are forgotten.
        """

    def part_of_epoch(self, ref: PartitionRef, epoch: int) -> tuple[str, JobPart] | None:
        """The job, and its part, that wrote rows of this `_version`: that which has the least epoch from `epoch` on,
        because a part's epoch grows while it is worked on.
        """

    def part_reaching(self, ref: PartitionRef, instance: str, watermark: int) -> tuple[str, JobPart] | None:
        """The job, and its part, that brought what has this watermark into an instance: the first whose target is not
        below it. One that failed counts only if there is no other: what it had to do was done by the next.
        """

    def collect(self, instances: Collection[str], wants: Collection[str]) -> None:
        """Forget instances that were left and wants that have ended, by one `Collected` (none if there is nothing
        to forget). Raises `Conflict` when one of them is in use (see `domain.lineage.collectable`) or unknown.
        """
