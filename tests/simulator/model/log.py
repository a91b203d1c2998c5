"""The event log, as it would be stored, and the state of instances and wants that it leads to."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain.events import Event, Recorded, decode, encode, read
from instep.domain.fold import apply, replay
from instep.domain.state import Rejected, State
from instep.errors import Conflict, UserError
from instep.ledger import log_start
from instep.ledger.event_log import LogRow, unstorable
from tests.simulator.model.tables import Tables


def append(tables: Tables, events: Sequence[Event]) -> list[Recorded]:
    recorded = attempt(tables, events)
    if isinstance(recorded, Rejected):
        raise Conflict(recorded.reason)
    return recorded


def attempt(tables: Tables, events: Sequence[Event]) -> list[Recorded] | Rejected:
    """Append all of them, or say why the first that is not possible is not; then nothing has changed."""
    # One event is all or nothing by itself; of several, those before the one that is rejected must not count.
    state = tables.state if len(events) == 1 else tables.state.copy()
    before = tables.log[-1][1] if tables.log else tables.start.at
    # What happens later is later, even if the clock was set back in between: it may be wanted as of then.
    at = tables.now() if tables.now() >= before else before + 1
    rows: list[LogRow] = []
    recorded: list[Recorded] = []
    for sequence, event in enumerate(events, state.sequence + 1):
        row = (sequence, at, event.KIND, event.VERSION, encode(event))
        each = Recorded(sequence, at, decode(event.KIND, event.VERSION, row[-1]))
        changes = unstorable(each.event) or apply(state, each)
        if isinstance(changes, Rejected):
            return changes
        rows.append(row)
        recorded.append(each)
    tables.state = state
    tables.log += rows
    return recorded


def present(tables: Tables) -> int:
    """Now, but not before the last event."""
    return max(tables.now(), tables.log[-1][1] if tables.log else tables.start.at)


def rows(tables: Tables, after: int, limit: int) -> list[LogRow]:
    return [row for row in tables.log if row[0] > after][:limit]


def state(tables: Tables, *, at: int | None = None, sequence: int | None = None) -> State:
    """Replayed: what is stored beside the log may be wrong, and verifying it is to show that."""
    if at is not None and at < tables.start.at:
        raise UserError("what the ledger knew at that time was forgotten")
    return replay(
        read(row for row in tables.log if (sequence is None or row[0] <= sequence) and (at is None or row[1] <= at)),
        beginning(tables),
    )


def beginning(tables: Tables) -> State:
    """The state that the forgotten events led to."""
    return State(naming=tables.state.naming) if tables.beginning is None else tables.beginning.copy()


def forgettable(tables: Tables, before: int) -> int:
    older = sum(row[1] < before for row in tables.log)
    rest = older % log_start.MOST
    return older - rest if rest < _worth(tables) else older


def forget(tables: Tables, before: int) -> int:
    """All at once: a real ledger does so in several transactions, and nobody can tell."""
    older = [row for row in tables.log if row[1] < before][: log_start.MOST]
    if len(older) < _worth(tables):
        return 0
    tables.beginning = replay(read(older), beginning(tables))
    tables.start = log_start.Start(older[-1][0], older[-1][1])
    del tables.log[: len(older)]
    return len(older)


def _worth(tables: Tables) -> int:
    return min(max(log_start.FEW, len(tables.state.instances) + len(tables.state.wants)), log_start.MOST)
