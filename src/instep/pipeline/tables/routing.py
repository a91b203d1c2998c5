"""Assign each row to a slice of the wave, by the bounds stored at planning, and count for each slice.

Rows are compared with the bounds as Arrow columns, a batch at a time. The order is that of `domain.keys`: column by
column, text by code point, bytes unsigned; a null is less than any value. A bound of fewer columns stands before all
rows that begin like it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.types import arrow_type
from instep.domain.columns import ColumnType
from instep.domain.counts import Counts
from instep.domain.cuts import KeyRange
from instep.domain.keys import Key
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import UserError
from instep.pipeline.outcomes import encode_outcome

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: The place of rows that are in no slice of the wave.
NOWHERE = -1


class WaveRows(NamedTuple):
    """A slice of a wave, and its rows."""

    slice_id: str
    range: KeyRange


@dataclass(frozen=True, slots=True)
class Router:
    """Numbers rows by slices. Make it with `router`.

    For each column of the cut: the values that bounds have in it, in order. And for each after the first: the bounds'
    columns up to it, as numbers that compare with the rows'. Between two neighbouring bounds all rows belong to one
    slice: `slices` says to which.
    """

    columns: tuple[pa.Array[Any], ...]
    prefixes: tuple[Numbers, ...]
    slices: Numbers

    def places(self, columns: Sequence[pa.Array[Any]], rows: int) -> Numbers:
        """Find the slice of each row, or `NOWHERE`. `columns` are those of the cut, of their declared types."""
        if not columns:
            return np.zeros(rows, np.int64)
        found = _compared(columns[0], self.columns[0])
        for values, bounds, prefixes in zip(columns[1:], self.columns[1:], self.prefixes, strict=True):
            found = _ranks(_extended(found, _compared(values, bounds), len(bounds)), prefixes)
        # What equals a bound, or is after it, is behind it.
        places: Numbers = self.slices[(found + 1) // 2]
        return places


def router(slices: Sequence[KeyRange], types: Sequence[ColumnType]) -> Router:
    """A router for slices whose ranges do not overlap. Raises `UserError` for bounds of other types than the
    columns.
    """
    bounds = [bound for each in slices for bound in (each.lower, each.upper) if bound is not None]
    columns = tuple(_distinct(bounds, at, kind) for at, kind in enumerate(types))
    numbers = _own_places(bounds, 0, columns[0]) if columns else np.zeros(0, np.int64)
    prefixes: list[Numbers] = []
    for at, values in enumerate(columns[1:], 1):
        numbers = _extended(numbers, _own_places(bounds, at, values), len(values))
        prefixes.append(np.unique(numbers))
        numbers = _ranks(numbers, prefixes[-1])
    between = np.full(len(np.unique(numbers)) + 1, NOWHERE, np.int64)
    behind = iter(((numbers + 1) // 2).tolist())
    for number, each in enumerate(slices):
        first = next(behind) if each.lower else 0
        last = next(behind) if each.upper else len(between)
        between[first:last] = number
    return Router(columns, tuple(prefixes), between)


def _distinct(bounds: Sequence[Key], at: int, kind: ColumnType) -> pa.Array[Any]:
    values = {bound.values[at] for bound in bounds if at < len(bound)}
    try:
        ordered = sorted(values)
        found: Any = pa.array(ordered, arrow_type(kind))
        fits = found.to_pylist() == ordered  # Arrow makes whole numbers of others.
    except (pa.ArrowException, TypeError):
        fits = False
    if not fits:
        raise UserError(
            f"the slices of this run were cut by a column that is {kind} now, and was not then",
            hint="Rebuild it: instep run --full-refresh",
        )
    values_in_order: pa.Array[Any] = found
    return values_in_order


def _own_places(bounds: Sequence[Key], at: int, values: pa.Array[Any]) -> Numbers:
    named = np.array([at < len(bound) for bound in bounds], bool)
    own = pa.array([bound.values[at] for bound in bounds if at < len(bound)], values.type)
    # In a column that it does not name, a bound stands with nulls: no row is before that.
    places = np.zeros(len(bounds), np.int64)
    places[named] = _compared(own, values)
    return places


def _extended(prefixes: Numbers, places: Numbers, bounds: int) -> Numbers:
    """One number for the columns so far, with the same order."""
    return prefixes * (2 * bounds + 1) + places


def _ranks(values: Numbers, among: Numbers) -> Numbers:
    """The rank of each value: 2k + 1 for the k-th of these, an even number between them. So numbers stay small."""
    after = np.searchsorted(among, values, "right")
    equal = (after > 0) & (among[np.maximum(after - 1, 0)] == values) if len(among) else np.zeros(len(values), bool)
    ranks: Numbers = 2 * after - equal
    return ranks


def _compared(values: pa.Array[Any], bounds: pa.Array[Any]) -> Numbers:
    """Compare values of any type with bounds, by bisection: all rows of a batch in one step."""
    # Rows often come in the order of the source: then a batch lies between two bounds, or near one.
    extremes = pc.min_max(values)
    skipped = int(_true(pc.less(bounds, extremes["min"])).sum())
    within = bounds.slice(skipped, int(_true(pc.less_equal(bounds, extremes["max"])).sum()) - skipped)
    after = np.zeros(len(values), np.int64)
    if not len(within):
        return _nulls_first(after + 2 * skipped, values)
    step = 1 << (len(within).bit_length() - 1)
    while step:
        tried = np.minimum(after + step, len(within))
        passed = _true(pc.less_equal(within.take(tried - 1), values))
        after = np.where(passed, tried, after)
        step >>= 1
    equal = _true(pc.equal(within.take(np.maximum(after - 1, 0)), values)) & (after > 0)
    return _nulls_first(2 * (after + skipped) - equal, values)


def _true(found: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False))


def _nulls_first(ranks: Numbers, values: pa.Array[Any]) -> Numbers:
    if values.null_count:
        ranks[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks


#: With more rows than this that fail in one task, what is declared must be wrong.
MAX_FAILURES = 10_000


@dataclass
class _Slice:
    counts: Counter[str] = field(default_factory=Counter)
    removed: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def outcome_counts(self) -> Counts:
        written = self.counts["read"] - self.counts["deleted"] - self.counts["failed"]
        return Counts.from_dict({**self.counts, "written": written})


class Tally:
    """Counts of rows by the place of their slice in the wave, the failures, and what failed before and did not now."""

    def __init__(self, slice_ids: Sequence[str]) -> None:
        self._ids = slice_ids
        self._slices: dict[int, _Slice] = {}
        self._failed = 0

    def read(self, places: Numbers, size: int) -> None:
        """A batch: the place of each row's slice, and its bytes, which are shared out among the rows."""
        for place, rows in _counted(places):
            counts = self._at(place).counts
            counts["read"] += rows
            counts["bytes_read"] += size * rows // len(places)

    def count(self, name: str, places: Numbers, weights: Numbers | None = None) -> None:
        """Count each row under `name`, once or by its weight."""
        for place, number in _counted(places, weights):
            self._at(place).counts[name] += number

    def fail(self, failures: Iterable[tuple[int, Failure]]) -> None:
        """Failures by the place of their slice. Raises `UserError` when there are too many."""
        for place, failure in failures:
            self._failed += 1
            if self._failed > MAX_FAILURES:
                first = next(each for part in self._slices.values() for each in part.failures)
                raise UserError(
                    f"more than {MAX_FAILURES:,} rows cannot be written; {first.uri}: {first.reason}",
                    hint="Check key and columns of the entity: instep check",
                )
            part = self._at(place)
            part.counts["failed"] += 1
            part.failures.append(failure)

    def remove(self, place: int, row_id: str) -> None:
        """Take a row off the list of failures: it had failed before, and can be written now."""
        self._at(place).removed.append(row_id)

    def outcomes(self) -> list[bytes]:
        """The outcomes of the slices that the task met. Rows read, not deleted and not failed are written."""
        return [
            encode_outcome(SliceOutcome(self._ids[place], 0, each.outcome_counts(), (), each.removed, each.failures))
            for place, each in sorted(self._slices.items())
        ]

    def _at(self, place: int) -> _Slice:
        return self._slices.setdefault(place, _Slice())


def _counted(places: Numbers, weights: Numbers | None = None) -> list[tuple[int, int]]:
    """The number of rows at each place."""
    found = np.bincount(places, weights)
    at = np.flatnonzero(found)
    return list(zip(at.tolist(), found[at].astype(np.int64).tolist(), strict=True))
