"""`domain.planning.cut_documents` over columns: slices know the rows of their changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns
from instep.domain.jobs import SlicePlan
from instep.domain.planning import SliceSizing, grown, slices_allowed

Numbers: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[np.uint32]

#: Rows that are taken at once.
_AT_ONCE: Final = 100_000


def cut_columns(changes: ChangeColumns, sizing: SliceSizing, *, priority: int = 40) -> list[SlicePlan]:
    """See `domain.planning.cut_documents`; the two give the same slices."""
    table = changes.table
    order = _order(changes)
    # Rows up to each change, so that a run ends where a search says.
    sizes, deletes = _numbers(table["size"]), changes.deletes().to_numpy()
    ends = _ends(len(order), (_rows(sizes[order[at]], deletes[order[at]], sizing) for at in _portions(order)))
    buckets, counts = np.unique(table["bucket"].to_numpy(), return_counts=True)
    edges = [0, *np.cumsum(counts).tolist()]
    groups = list(pairwise(edges))
    in_order = _InOrder(table, order)

    def identity(at: int) -> str:
        return changes[int(order[at])].document_id

    slices: list[SlicePlan] = []
    for bucket, start, runs in zip(buckets.tolist(), edges, _cut(groups, ends, sizing), strict=False):
        first = start
        for position, stop in enumerate(runs):
            slices.append(
                SlicePlan(
                    index=len(slices),
                    bucket=bucket,
                    lower="" if position == 0 else identity(first),
                    upper="" if position == len(runs) - 1 else identity(stop),
                    units=stop - first,
                    work=max(1, round(int(ends[stop] - ends[first]) * sizing.work_factor)),
                    priority=priority,
                    columns=partial(in_order.between, first, stop),
                )
            )
            first = stop
    return slices


def runs(portions: Iterable[pa.Table], sizing: SliceSizing, most: int) -> Iterator[tuple[ChangeColumns, int]]:
    """The slices of one bucket, whose changes come in the order of their ids, with the work of each; `most` rows in
    each, about. As `cut_columns` cuts them.
    """
    left: pa.Table | None = None
    for portion in portions:
        left = portion if left is None else pa.concat_tables([left, portion])
        start, ends = 0, _ends_of(left, sizing)
        *whole, _ = _runs(0, left.num_rows, ends, most) if left.num_rows else [0]
        for stop in whole:
            yield _run(left, start, stop, ends, sizing)
            start = stop
        left = left.slice(start)
    if left is not None and left.num_rows:
        yield _run(left, 0, left.num_rows, _ends_of(left, sizing), sizing)


def _ends_of(table: pa.Table, sizing: SliceSizing) -> Numbers:
    deletes = ChangeColumns(table).deletes().to_numpy()
    return _ends(table.num_rows, [_rows(_numbers(table["size"]), deletes, sizing)])


def _run(table: pa.Table, start: int, stop: int, ends: Numbers, sizing: SliceSizing) -> tuple[ChangeColumns, int]:
    work = max(1, round(int(ends[stop] - ends[start]) * sizing.work_factor))
    return ChangeColumns(table.slice(start, stop - start)), work


def _order(changes: ChangeColumns) -> Places:
    """By bucket and id."""
    if changes.order is not None:
        return changes.order
    keys: Any = changes.with_ids().select(["bucket", "document_id"]).combine_chunks()
    order: Any = pc.sort_indices(keys, sort_keys=[("bucket", "ascending"), ("document_id", "ascending")])
    return np.asarray(order.to_numpy(), np.uint32)


def _portions(rows: Places) -> Iterator[slice]:
    """Some rows at a time: a column of numbers is made of them in place of all."""
    return (slice(start, start + _AT_ONCE) for start in range(0, len(rows), _AT_ONCE))


def _ends(count: int, portions: Iterable[Numbers]) -> Numbers:
    """The running total of the sizes, from 0 on: the place where each of the things of these sizes ends."""
    ends, start = np.zeros(count + 1, np.int64), 1
    for some in portions:
        ends[start : start + len(some)] = some
        start += len(some)
    return np.cumsum(ends, out=ends)


def _rows(sizes: Numbers, deletes: npt.NDArray[np.bool_], sizing: SliceSizing) -> Numbers:
    """As `SliceSizing.rows` has them."""
    return np.where(deletes, 1, np.maximum(1, -(-sizes // sizing.row_bytes)))


def _cut(groups: Sequence[tuple[int, int]], ends: Numbers, sizing: SliceSizing) -> list[list[int]]:
    """The ends of the runs of each bucket. They grow until there are few enough, or one for each bucket."""
    most = sizing.rows_per_slice
    while True:
        cut = [list(_runs(start, stop, ends, most)) for start, stop in groups]
        count = sum(map(len, cut))
        if count <= slices_allowed(len(groups)):
            return cut
        most = grown(most, count)


def _runs(start: int, stop: int, ends: Numbers, most: int) -> Iterator[int]:
    while start < stop:
        fits = int(np.searchsorted(ends, ends[start] + most, "right")) - 1
        start = min(stop, max(fits, start + 1))
        yield start


class _InOrder:
    """Rows of a table in another order. Many are taken at once, and those that follow them found there. Of a column
    that has several chunks Arrow copies all of it each time, however few rows are taken: so it is made one first.
    """

    def __init__(self, table: pa.Table, order: Places) -> None:
        self._table = table
        self._order = order
        self._held = 0, 0, table.slice(0, 0)

    def between(self, first: int, stop: int) -> ChangeColumns:
        start, end, held = self._held
        if first < start or stop > end:
            start, end = first, max(stop, first + _AT_ONCE)
            self._table = self._table.combine_chunks()
            places: Any = pa.array(self._order[start:end])
            held = ChangeColumns(self._table.take(places)).with_ids()
            self._held = start, end, held
        return ChangeColumns(held.slice(first - start, stop - first))


def _numbers(column: Any) -> Numbers:
    return np.asarray(column.to_numpy(), np.int64)
