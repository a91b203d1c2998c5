"""Events: the log of all that happened, the state that it leads to, and whether what is stored follows from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from instep.domain.events import Collected, Event, Recorded
from instep.domain.state import State
from instep.ledger import event_log, log_start, snapshots, verification
from instep.ledger.event_log import LogRow
from instep.ledger.transaction import Store, Transaction, reads, writes
from instep.ledger.verification import Verified


class Events(Store):
    """The event log. Sequences begin with 1, have no gaps, and become visible in their order, so that a reader of the
    events after n never misses one; `at` never goes back. The projections (instances, wants, what is promoted) change
    in the transaction that appends. References in text are normal forms.
    """

    @writes
    def append(self, tx: Transaction, events: Sequence[Event]) -> list[Recorded]:
        """Append events, all or none. They are applied as they will be read from the log again. Raises `Conflict`,
        with the fold's reason, when one is rejected by what came before it.
        """
        return event_log.demand(tx, events)

    def collect(self, instances: Collection[str], wants: Collection[str]) -> None:
        """Forget instances that were left and wants that have ended, by one `Collected` (none if there is nothing
        to forget). Raises `Conflict` when one of them is in use (see `domain.lineage.collectable`) or unknown.
        """
        if instances or wants:
            self.append([Collected(instances=tuple(instances), wants=tuple(wants))])

    @reads
    def last(self, tx: Transaction) -> int:
        """The sequence of the last event; 0 if there is none."""
        return event_log.head(tx.connection).last

    @reads
    def rows(self, tx: Transaction, after: int = 0, limit: int = 1_000) -> list[LogRow]:
        """Read rows of the log after a sequence, in order."""
        return event_log.rows(tx.connection, after, limit)

    def state(self, *, at: int | None = None, sequence: int | None = None) -> State:
        """Fold the log into a state, starting from the newest readable snapshot; as of a time (events of that very
        millisecond have happened) or after an event. Every call gives a State of its own. Raises `UserError` for a time
        of which events were forgotten.
        """
        return self._database.read_steadily(lambda tx: snapshots.state(tx.connection, at=at, sequence=sequence))

    @reads
    def forgettable(self, tx: Transaction, before: int) -> int:
        """Count the events older than this time that may be forgotten. Few of them are not worth it."""
        return log_start.forgettable(tx, before)

    def forget(self, before: int, limit: int = log_start.LIMIT) -> int:
        """Forget some events that are older than this time, the oldest first; returns their number, 0 if none is left
        that is worth it. The state that they led to is kept, and the log goes on from it.
        """
        return log_start.forget(self._database, before, limit)

    def verify(self) -> Verified:
        """Replay the whole log, without snapshots, and compare with the projections. Changes nothing."""
        return self._database.read_steadily(lambda tx: verification.verify(tx.connection))

    @writes
    def rebuild_projections(self, tx: Transaction) -> Verified:
        """Replay the whole log, and make the projections what it leads to, in one transaction. The differences are
        those that there were. Snapshots are forgotten.
        """
        return verification.rebuild(tx.connection)
