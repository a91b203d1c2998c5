"""The event log, as it would be stored, and the state of instances and wants that it leads to."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain.events import Event, Recorded, decode, encode, read
from instep.domain.fold import apply, replay
from instep.domain.state import Rejected, State
from instep.errors import Conflict
from instep.ledger.event_log import LogRow, unkept
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
    before = tables.log[-1][1] if tables.log else 0
    # What happens later is later, even if the clock was set back in between: it may be wanted as of then.
    at = tables.now() if tables.now() >= before else before + 1
    rows: list[LogRow] = []
    recorded: list[Recorded] = []
    for sequence, event in enumerate(events, state.sequence + 1):
        row = (sequence, at, event.KIND, event.VERSION, encode(event))
        each = Recorded(sequence, at, decode(event.KIND, event.VERSION, row[-1]))
        changes = unkept(each.event) or apply(state, each)
        if isinstance(changes, Rejected):
            return changes
        rows.append(row)
        recorded.append(each)
    tables.state = state
    tables.log += rows
    return recorded


def present(tables: Tables) -> int:
    """Now, but not before the last event."""
    return max(tables.now(), tables.log[-1][1] if tables.log else 0)


def rows(tables: Tables, after: int, limit: int) -> list[LogRow]:
    return [row for row in tables.log if row[0] > after][:limit]


def state(tables: Tables, *, at: int | None = None, sequence: int | None = None) -> State:
    """Replayed: what is stored beside the log may be wrong, and verifying it is to show that."""
    return replay(
        read(row for row in tables.log if (sequence is None or row[0] <= sequence) and (at is None or row[1] <= at)),
        State(naming=tables.state.naming),
    )
