"""Reading the next keys: a page of offers by their order, then which keys of the page any cover ever touched; the truth
is asked of these alone. Both are the plainest of queries, and merged here: planning one costs more than its rows.

Cache of keys that no cover touched lately: a reader that polls sees mostly the same keys, and saves a query.

What the truth said at one moment holds but for later events, and those are among the offers, which every read looks
through: a row is kept there for three minutes from its event. So an entry may be a minute old, while an insert takes up
to two more. If another process cleans the offers in that minute, a covered key may be offered once more when the source
writes it again: leasing it asks the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from instep.clickhouse.session import Session, quoted, records
from instep.domain.pending_queue import QueueKey
from instep.queues.engines.clickhouse.tables import (
    NO_EVENT,
    NULL_EVENT,
    UNKNOWN_EVENT,
    Tables,
    conditions,
    covered_sql,
    offered,
    spent,
)
from instep.queues.engines.queue_engine import Ask, Offer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


_SECONDS = 60.0
#: So many keys are remembered; beyond that, all are forgotten.
_MOST = 100_000


class Untouched:
    """Keys of one queue without any cover, remembered in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[QueueKey, float] = {}

    def among(self, keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """The keys among these that need no query again."""
        import numpy as np

        asked, since = self._asked, self._clock() - _SECONDS
        return np.fromiter((asked.get(key, since) > since for key in keys.tolist()), np.bool_, len(keys))

    def now(self) -> float:
        """The time before a query, for `remember`."""
        return self._clock()

    def remember(self, keys: Iterable[QueueKey], asked: float) -> None:
        if len(self._asked) > _MOST:
            self.forget()
        self._asked |= dict.fromkeys(keys, asked)

    def forget(self) -> None:
        self._asked = {}


#: So many rows of offers at first: an answer behind as many keys as are passed over before it pays to clean them away,
#: each offered by one row and covered by another. And so many times more each time that they were not enough, up to
#: the most.
FIRST_ROWS, _MORE, _MOST_ROWS = 2_560, 8, 2**18
#: So many keys are looked up at once.
LOOKED_UP = 10_000
#: Blocks are close together if at most one of so many is asked for.
_CLOSE = 64

#: One thread reads a hundred rows sooner than several; a read of the page cache needs no thread of its own; and a
#: condition with other numbers in it each time is not worth the 20 ms that making machine code of it takes.
SETTINGS: dict[str, str | int] = {
    "max_threads": 1,
    "compile_expressions": 0,
    "local_filesystem_read_method": "pread",
    "output_format_arrow_compression_method": "none",
}
#: Steps of planning that find nothing to do in a query of one table and one condition, and take a tenth of its time.
_WITHOUT: dict[str, str | int] = dict.fromkeys(
    (
        "optimize_move_to_prewhere",
        "query_plan_optimize_prewhere",
        "query_plan_merge_expressions",
        "query_plan_split_filter",
        "query_plan_merge_filters",
    ),
    0,
)
#: Of ClickHouse in this process, whose version we know. A look-up of other keys each time gains nothing from what
#: ClickHouse remembers of conditions, and a hundred short rows need no second step to get their other columns.
IN_PROCESS: dict[str, str | int] = {
    "use_query_condition_cache": 0,
    "query_plan_optimize_lazy_materialization": 0,
    **_WITHOUT,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batches(session: Session, keys: Iterable[QueueKey]) -> Iterator[list[QueueKey]]:
    """As many keys as one parameter has room for."""
    some, room = list[QueueKey](), session.room
    for key in keys:
        taken = 2 * len(key.encode()) + 10 if isinstance(key, str) else len(str(key)) + 3
        if some and (len(some) == LOOKED_UP or taken > room):
            yield some
            some, room = [], session.room
        some.append(key)
        room -= taken
    if some:
        yield some


def micros(moment: datetime) -> int:
    """A moment in microseconds. Without a zone it is UTC, as everywhere with ClickHouse."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class _Candidates:
    """Offers as they are, merged, in the order of reading."""

    keys: npt.NDArray[Any]
    versions: npt.NDArray[np.uint64]
    events: npt.NDArray[np.int64]
    spent: int
    """So many keys were passed over that could be dropped."""

    def part(self, start: int, stop: int) -> _Candidates:
        some = slice(start, stop)
        return _Candidates(self.keys[some], self.versions[some], self.events[some], 0)


def page_sql(tables: Tables, ask: Ask, rows: int) -> str:
    """Rows of offers beyond `after`, not merged. Numbers are written out, and columns are not: so ClickHouse is quicker
    to plan it.
    """
    where = tables.beyond("key", ask.after)
    if ask.participants:
        concerned = f"SELECT key FROM {quoted(tables.participants)} WHERE participant IN {{participants:Array(Int64)}}"
        where.append(f"key IN ({concerned})")
    which = f" WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT * FROM {quoted(tables.offers)}{which} ORDER BY key {tables.order} LIMIT {rows:d}"


def touched_sql(tables: Tables, where: str | None = None) -> str:
    """Bitmaps of touched keys, sixty-four integers each: hundreds are in a few granules, wherever they lie."""
    return f"SELECT * FROM {quoted(tables.touched)} WHERE {where or f'block IN {tables.named}'}"


def _among(blocks: Sequence[int]) -> str:
    """The blocks, in ascending order; and where they lie close together, those between them: a range is planned sooner
    than many values, and the rows are in a few granules either way.
    """
    lowest, highest = blocks[0], blocks[-1]
    if highest - lowest < _CLOSE * len(blocks):
        return f"block BETWEEN {lowest:d} AND {highest:d}"
    return f"block IN ({', '.join(map(str, blocks))})"


def read(session: Session, tables: Tables, ask: Ask, untouched: Untouched) -> tuple[list[Offer], int]:
    """And how many keys it passed over that could be cleaned away."""
    found: list[Offer] = []
    passed = 0
    for candidates in _pages(session, tables, ask):
        start, passed = 0, passed + candidates.spent
        while start < len(candidates.keys) and len(found) < ask.limit:
            stop = min(start + min(ask.limit - len(found), LOOKED_UP), len(candidates.keys))
            found += _confirmed(session, tables, candidates.part(start, stop), ask.settled, untouched)
            start = stop
        if len(found) == ask.limit:
            break
    return found, passed


def _pages(session: Session, tables: Tables, ask: Ask) -> Iterator[_Candidates]:
    rows = max(FIRST_ROWS, 2 * ask.limit)
    settled = None if ask.settled is None else micros(ask.settled)
    while True:
        concerned = {"participants": list(ask.participants)} if ask.participants else {}
        page = session.arrow(page_sql(tables, ask, rows), **concerned)
        full = page.num_rows == rows
        if full:
            # Rows of its last key may be beyond it.
            keys = _keys(page["key"])
            page = page.slice(0, int((keys != keys[-1]).sum()))
        if page.num_rows:
            yield _offered(tables, page, settled)
        if not full:
            return
        if page.num_rows:
            ask = replace(ask, after=_keys(page["key"][-1:]).tolist()[0])
        rows = min(_MORE * rows, _MOST_ROWS)


def _offered(tables: Tables, page: pa.Table, settled: int | None) -> _Candidates:
    import numpy as np

    keys, offers, events = _keys(page["key"]), page["offer"].to_numpy(), page["event"].to_numpy()
    registers = [page[name].to_numpy() for name in tables.registers]
    again = keys[1:] == keys[:-1]
    if again.any():
        first = np.flatnonzero(np.concatenate(([True], ~again)))
        keys, offers = keys[first], np.maximum.reduceat(offers, first)
        events = np.minimum.reduceat(events, first)
        registers = [np.maximum.reduceat(each, first) for each in registers]
    taken = offered(offers, registers)
    dropped = 0 if taken.all() else int(spent(offers, registers).sum())
    if settled is not None:
        taken &= (events <= settled) | (events == NULL_EVENT)
    return _Candidates(keys[taken], offers[taken] >> np.uint64(1), events[taken], dropped)


def _confirmed(
    session: Session, tables: Tables, candidates: _Candidates, settled: datetime | None, untouched: Untouched
) -> list[Offer]:
    """Most keys never had an event of a cover, and what the source said of them is in the offer."""
    import numpy as np

    keys, events = candidates.keys, candidates.events.copy()
    doubtful = events == UNKNOWN_EVENT
    unsure = ~doubtful & ~untouched.among(keys)
    if unsure.any():
        asked = untouched.now()
        doubtful[unsure] = touched = _touched(session, tables, keys[unsure])
        if not tables.versioned:  # A cover with versions of its own is not among the offers.
            untouched.remember(keys[unsure][~touched].tolist(), asked)
    taken = ~doubtful
    truth = looked_up(session, tables, keys[doubtful].tolist()) if doubtful.any() else {}
    versions = dict(zip(keys.tolist(), candidates.versions.tolist(), strict=True))
    _withdraw(session, tables, [(each, versions[each.key]) for each in truth.values() if each.covered])
    for at, key in zip(np.flatnonzero(doubtful), keys[doubtful].tolist(), strict=True):
        merged = truth.get(key)
        if merged is not None and merged.pending and (settled is None or merged.settled(micros(settled))):
            taken[at], events[at] = True, merged.event
    times = _moments(tables, events[taken])
    return list(map(Offer, keys[taken].tolist(), candidates.versions[taken].tolist(), times))


def _touched(session: Session, tables: Tables, keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """The keys among these that ever had an event of a cover."""
    import numpy as np

    if not tables.whole:
        sql = touched_sql(tables)
        there = {
            row["block"] for some in batches(session, keys) for row in records(session, sql, keys=tables.bound(some))
        }
        return np.fromiter((key in there for key in keys), np.bool_, len(keys))
    blocks, places = np.unique(keys >> 6, return_inverse=True)
    known = session.arrow(touched_sql(tables, _among(blocks.tolist())))
    at = np.searchsorted(blocks, known["block"].to_numpy())
    asked = blocks[at] == known["block"].to_numpy()
    bits = np.zeros(len(blocks), np.uint64)
    np.bitwise_or.at(bits, at[asked], known["bits"].to_numpy()[asked])
    found: npt.NDArray[np.bool_] = (bits[places] >> (keys & 63).astype(np.uint64)) & np.uint64(1) == 1
    return found


def _keys(column: pa.ChunkedArray[Any]) -> npt.NDArray[Any]:
    """Text comes as bytes."""
    import pyarrow as pa

    return column.to_numpy() if pa.types.is_integer(column.type) else column.cast(pa.string()).to_numpy()


def _moments(tables: Tables, events: npt.NDArray[np.int64]) -> list[datetime | None]:
    import numpy as np

    if tables.spec.source.event_time is None:
        return [None] * len(events)
    known = (events != NULL_EVENT) & (events != UNKNOWN_EVENT)
    since: list[timedelta] = np.where(known, events, 0).astype("timedelta64[us]").tolist()
    return [_EPOCH + each if is_known else None for each, is_known in zip(since, known.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Truth:
    """The merged truth of one key."""

    key: QueueKey
    event: int
    registers: tuple[int, ...]

    @property
    def seen(self) -> bool:
        return self.event < NO_EVENT

    @property
    def covered(self) -> bool:
        return any(each & 1 for each in self.registers)

    @property
    def pending(self) -> bool:
        return self.seen and not self.covered

    def settled(self, until: int) -> bool:
        """A key without an event time has nothing to wait for."""
        return self.event <= until or self.event == NULL_EVENT


def looked_up(session: Session, tables: Tables, keys: Collection[QueueKey]) -> dict[QueueKey, Truth]:
    found: dict[QueueKey, Truth] = {}
    sql = f"SELECT key, event, {', '.join(tables.registers)} FROM {quoted(tables.truth)} WHERE key IN {tables.named}"
    for some in batches(session, keys):
        for row in records(session, sql, keys=tables.bound(some)):
            one = Truth(row["key"], row["event"], tuple(row[name] for name in tables.registers))
            found[one.key] = _merged(found[one.key], one) if one.key in found else one
    return _by_the_tables(session, tables, found) if tables.versioned else found


def _by_the_tables(session: Session, tables: Tables, found: dict[QueueKey, Truth]) -> dict[QueueKey, Truth]:
    """Two rows of one version look as if the cover was taken back: the table knows which of them it keeps."""
    for at, cover in enumerate(tables.covers):
        doubtful = [key for key, one in found.items() if cover.version and one.pending and one.registers[at]]
        for some in batches(session, doubtful):
            within = conditions(tables.within(), f"{tables.compared} IN {tables.named}")
            rows = records(session, covered_sql(tables, cover, within), keys=tables.bound(some))
            for key in (each["instep_key"] for each in rows):
                registers = found[key].registers
                found[key] = replace(found[key], registers=(*registers[:at], registers[at] | 1, *registers[at + 1 :]))
    return found


def _merged(one: Truth, other: Truth) -> Truth:
    registers = tuple(map(max, one.registers, other.registers))
    return Truth(one.key, min(one.event, other.event), registers)


def _withdraw(session: Session, tables: Tables, covered: Sequence[tuple[Truth, int]]) -> None:
    """Withdraw the offers of covered keys: they get the covering registers, which hold whatever else arrives. Where a
    table has versions of its own, just these offers are withdrawn.
    """
    if not covered:
        return
    values: dict[str, Any] = {"key": [each.key for each, _ in covered], "event": [NO_EVENT] * len(covered)}
    for number, name in enumerate(tables.registers):
        if name in tables.dated:
            values[name] = [each.registers[number] * (each.registers[number] & 1) for each, _ in covered]
    if tables.versioned:
        values["offer"] = [version * 2 + 1 for _, version in covered]
    insert_offers(session, tables, values)


def insert_offers(session: Session, tables: Tables, values: dict[str, Any]) -> None:
    """Registers that are not given are 0."""
    import pyarrow as pa

    rows = len(values["key"])
    types = {"key": pa.int64() if tables.whole else pa.string(), "event": pa.int64()}
    names = ["key", "offer", "event", *tables.registers]
    columns = [pa.array(values.get(name, [0] * rows), types.get(name, pa.uint64())) for name in names]
    session.insert(quoted(tables.offers), pa.table(columns, names=names))
