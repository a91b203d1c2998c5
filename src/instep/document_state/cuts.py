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
from instep.document_state.identities import BEGINNING, beginnings_of
from instep.domain.jobs import SlicePlan
from instep.domain.manifest import Action
from instep.domain.planning import SliceSizing, grown, slices_allowed

Numbers: TypeAlias = npt.NDArray[np.int64]

#: Rows that are taken at once.
_AT_ONCE: Final = 100_000


def cut_columns(changes: ChangeColumns, sizing: SliceSizing, *, priority: int = 40) -> list[SlicePlan]:
    """See `domain.planning.cut_documents`; the two give the same slices."""
    table = changes.table
    order = _order(table)
    buckets = _numbers(table["bucket"])[order]
    # Rows up to each change, so that a run ends where a search says.
    ends = np.concatenate([[0], np.cumsum(_rows(table, sizing)[order])])
    edges = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1, [len(order)]]).tolist() if len(order) else [0]
    groups = list(pairwise(edges))
    ids: Any = table["document_id"]
    in_order = _InOrder(table, order)
    slices: list[SlicePlan] = []
    for start, runs in zip(edges, _cut(groups, ends, sizing), strict=False):
        first = start
        for position, stop in enumerate(runs):
            slices.append(
                SlicePlan(
                    index=len(slices),
                    bucket=int(buckets[first]),
                    lower="" if position == 0 else ids[int(order[first])].as_py(),
                    upper="" if position == len(runs) - 1 else ids[int(order[stop])].as_py(),
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
        start, rows = 0, _rows(left, sizing)
        ends = np.concatenate([[0], np.cumsum(rows)])
        *whole, _ = _runs(0, left.num_rows, ends, most) if left.num_rows else [0]
        for stop in whole:
            yield _run(left, start, stop, ends, sizing)
            start = stop
        left = left.slice(start)
    if left is not None and left.num_rows:
        ends = np.concatenate([[0], np.cumsum(_rows(left, sizing))])
        yield _run(left, 0, left.num_rows, ends, sizing)


def _run(table: pa.Table, start: int, stop: int, ends: Numbers, sizing: SliceSizing) -> tuple[ChangeColumns, int]:
    work = max(1, round(int(ends[stop] - ends[start]) * sizing.work_factor))
    return ChangeColumns(table.slice(start, stop - start)), work


def _order(table: pa.Table) -> Numbers:
    """By bucket and id. Ids are hashes: as a rule their beginnings tell them apart, and numbers are sorted sooner."""
    ids: Any = table["document_id"]
    numbers = _numbered(ids, _numbers(table["bucket"]))
    if numbers is not None:
        order = np.argsort(numbers)
        if np.all(numbers[order[1:]] != numbers[order[:-1]]):
            return order
    keys: Any = table.select(["bucket", "document_id"]).combine_chunks()
    return _numbers(pc.sort_indices(keys, sort_keys=[("bucket", "ascending"), ("document_id", "ascending")]))


def _numbered(ids: Any, buckets: Numbers) -> npt.NDArray[np.uint64] | None:
    """A number for each id, in its order: the bucket, and the first bits of the hash. None if one is no hash."""
    heads = beginnings_of(ids)
    if heads is None or not len(heads) or buckets.max() >= 1 << 16:
        return None
    return buckets.astype(np.uint64) << np.uint64(BEGINNING) | heads


def _rows(table: pa.Table, sizing: SliceSizing) -> Numbers:
    """As `SliceSizing.rows` has them."""
    sizes = _numbers(table["size"])
    deletes = pc.equal(table["action"].cast(pa.string()), pa.scalar(str(Action.DELETE))).to_numpy()
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

    def __init__(self, table: pa.Table, order: Numbers) -> None:
        self._table = table
        self._order = order
        self._held = 0, 0, table.slice(0, 0)

    def between(self, first: int, stop: int) -> ChangeColumns:
        start, end, held = self._held
        if first < start or stop > end:
            start, end = first, max(stop, first + _AT_ONCE)
            self._table = self._table.combine_chunks()
            places: Any = pa.array(self._order[start:end])
            held = self._table.take(places)
            self._held = start, end, held
        return ChangeColumns(held.slice(first - start, stop - first))


def _numbers(column: Any) -> Numbers:
    return np.asarray(column.to_numpy(), np.int64)
