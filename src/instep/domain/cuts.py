"""Cut the rows of a table into slices: half-open ranges of its key, the first and the last open-ended.

The input is a histogram: keys in order, and the number of rows from each key to the next. It may be exact (one bin for
each key) or a sample. `balanced_cuts` makes the largest slice as small as possible, with as many slices as are wanted,
or one for each bin when there are fewer bins. The largest has fewer rows than an even share and the largest bin
together. No slice is empty by the histogram.

The bounds are stored when they are planned, and a retry uses them: other bounds beside finished slices would leave the
rows between the old and the new bounds in no slice.

Keys of cuts are the first columns of a row's key, in the source's order, after the scope columns: these are the same in
all rows of a scope. When one tenant holds more rows than a slice should, the scope columns come first (`cut_columns`):
then the tenant is cut by the columns after them, and a slice reads one contiguous range of the source's order.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from instep.domain.keys import Key, KeyKind, KeyValue, key_of
from instep.domain.planning import MAX_SLICES_PER_ENTITY, SLICE_ROWS_DEFAULT, rows_per_slice

#: A column is poor to cut by when a slice gets fewer values of it than this, while each value has many rows.
_VALUES_PER_SLICE = 10
_ROWS_PER_VALUE = 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class CutError(ValueError):
    """A histogram or a request that allows no cuts."""


class Bin(NamedTuple):
    """`rows` at this key, and after it before the key of the next bin."""

    key: Key
    rows: int


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `lower` on and below `upper`; None is an open end."""

    lower: Key | None = None
    upper: Key | None = None

    def __post_init__(self) -> None:
        if self.lower and self.upper and not self.lower < self.upper:
            raise CutError(f"the range from {self.lower} to {self.upper} is empty")

    def holds(self, key: Key) -> bool:
        """The bounds may be of the first columns of the key only."""
        return not (
            (self.lower and key.prefix(len(self.lower)) < self.lower)
            or (self.upper and key.prefix(len(self.upper)) >= self.upper)
        )


class KeySlice(NamedTuple):
    """A range and the rows that it is estimated to hold."""

    range: KeyRange
    rows: int

    def work(self, factor: float) -> int:
        """The slice's weight in the order of claims; at least 1, since even an empty slice has to be run."""
        return max(1, round(self.rows * factor))


def slice_count(
    rows: int, *, slice_rows: int = SLICE_ROWS_DEFAULT, work_factor: float = 1.0, asked: int | None = None
) -> int:
    """`slices: auto`: as many as the rows need, 1 to 10,000. Above, slices get larger than asked for. `asked`: rows of
    a slice, whatever the rest says.
    """
    if rows < 0:
        raise CutError(f"{rows:,} rows: a count is not negative")
    each = asked or rows_per_slice(slice_rows, work_factor)
    return min(MAX_SLICES_PER_ENTITY, max(1, -(-rows // each)))


def balanced_cuts(bins: Iterable[Bin], slices: int) -> list[KeySlice]:
    """At most `slices` slices of about the same number of rows; no other cutting has a smaller largest one.

    Bins come in the order of their keys. Nothing known gives one slice of everything: an empty histogram is no
    proof of an empty source.
    """
    _check_wanted(slices)
    known = _checked(bins)
    if not known:
        return [KeySlice(KeyRange(), 0)]
    ends = [0, *accumulate(each.rows for each in known)]
    starts = _evened(_starts(ends, _smallest_cap(ends, slices)), ends, slices)
    rows = [ends[after] - ends[before] for before, after in pairwise([*starts, len(known)])]
    return _between([known[start].key for start in starts[1:]], rows)


def even_cuts(low: Key, high: Key, slices: int, *, rows: int = 0) -> list[KeySlice]:
    """`cuts: even`: stretches of equal length from the least to the greatest key, whatever lies in them.

    For keys of one whole number, date or timestamp. `rows` are taken to lie evenly.
    """
    _check_wanted(slices)
    if low > high:
        raise CutError(f"the least key {low} is greater than the greatest {high}")
    first, last = _number(low), _number(high)
    span = last - first + 1
    count = min(slices, span)
    bounds = [_like(low, first + span * at // count) for at in range(1, count)]
    return _between(bounds, [rows * (at + 1) // count - rows * at // count for at in range(count)])


def cut_columns(key: Sequence[str], scope: Sequence[str], *, dominated: bool) -> tuple[str, ...]:
    """The columns that cuts are made by: the first of the key after those of the scope, and when one tenant
    dominates (see `dominant_tenant`), those of the scope before it.

    Without a column after the scope, the scope itself is cut.
    """
    after = next((column for column in key if column not in scope), None)
    first = tuple(column for column in key if column in scope)
    if after is None:
        return first
    return (*first, after) if dominated else (after,)


def dominant_tenant(bins: Iterable[Bin], scope_columns: int, slices: int) -> Key | None:
    """The tenant with the most rows, if these are more than an even slice and there is another tenant.

    The first `scope_columns` of the bins' keys are the tenant. A tenant that is alone has no need of it: all rows have
    the same scope.
    """
    _check_wanted(slices)
    known = _checked(bins)
    tenants = [
        (tenant, sum(each.rows for each in group))
        for tenant, group in groupby(known, key=lambda each: each.key.prefix(scope_columns))
    ]
    if len(tenants) < 2:
        return None
    tenant, rows = max(tenants, key=lambda each: each[1])
    return tenant if rows * slices > sum(each.rows for each in known) else None


@dataclass(frozen=True, slots=True)
class FewValues:
    """A warning: what the cuts are made by has few values for many rows, and a value is never cut."""

    columns: tuple[str, ...]
    values: int
    rows: int
    slices: int

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.columns))
        largest = -(-self.rows // self.values)
        return (
            f"{names}: {self.values:,} different {'value' if self.values == 1 else 'values'} in {self.rows:,} rows, "
            f"so {self.slices:,} slices cannot be even: the largest has at least {largest:,} rows. "
            "Put a key column with more values first in `order`, or ask for fewer slices"
        )


def few_values(columns: Sequence[str], *, values: int, rows: int, slices: int) -> FewValues | None:
    """Whether cuts by these columns can be but poor: there are fewer than ten values for a slice, and a hundred rows
    or more for a value. `values` are the different ones in `rows`, counted or estimated.
    """
    _check_wanted(slices)
    if slices == 1 or not values or values >= _VALUES_PER_SLICE * slices or rows < _ROWS_PER_VALUE * values:
        return None
    return FewValues(tuple(columns), values, rows, slices)


def _check_wanted(slices: int) -> None:
    if not 1 <= slices <= MAX_SLICES_PER_ENTITY:
        raise CutError(f"{slices:,} slices: ask for 1 to {MAX_SLICES_PER_ENTITY:,}")


def _checked(bins: Iterable[Bin]) -> list[Bin]:
    """The bins in order, one for each key, without empty ones."""
    known: list[Bin] = []
    for each in bins:
        if each.rows < 0:
            raise CutError(f"{each.rows:,} rows at {each.key}: a count is not negative")
        if not each.rows:
            continue
        if known and each.key < known[-1].key:
            raise CutError(f"{each.key} comes after {known[-1].key}: the source orders its keys in another way")
        if known and each.key == known[-1].key:
            known[-1] = Bin(each.key, known[-1].rows + each.rows)
        else:
            known.append(each)
    return known


def _starts(ends: Sequence[int], cap: int) -> list[int]:
    """The bins that slices begin with, when each takes as many bins as fit under the cap."""
    bins = len(ends) - 1
    starts, at = [0], bisect_right(ends, cap) - 1
    while at < bins:
        starts.append(at)
        at = bisect_right(ends, ends[at] + cap) - 1
    return starts


def _smallest_cap(ends: Sequence[int], slices: int) -> int:
    """The fewest rows that the largest of so many slices can have, found by halving."""
    largest = max(after - before for before, after in pairwise(ends))
    low, high = max(largest, -(-ends[-1] // slices)), ends[-1]
    while low < high:
        middle = (low + high) // 2
        if len(_starts(ends, middle)) <= slices:
            high = middle
        else:
            low = middle + 1
    return low


def _evened(starts: Sequence[int], ends: Sequence[int], slices: int) -> list[int]:
    """More slices, until there are enough or each has one bin: the largest that can be is halved, again and again."""
    # The heap gives the least first, so rows are negative in it. Of single bins there is nothing to halve.
    ranges = pairwise([*starts, len(ends) - 1])
    heap = [(ends[before] - ends[after], before, after) for before, after in ranges if after - before > 1]
    heapq.heapify(heap)
    found = list(starts)
    while heap and len(found) < slices:
        _, before, after = heapq.heappop(heap)
        middle = _middle(ends, before, after)
        found.append(middle)
        for first, last in ((before, middle), (middle, after)):
            if last - first > 1:
                heapq.heappush(heap, (ends[first] - ends[last], first, last))
    return sorted(found)


def _middle(ends: Sequence[int], before: int, after: int) -> int:
    """The bin between these two where the rows before it and those from it on differ least."""
    twice = ends[before] + ends[after]
    at = bisect_left(ends, twice // 2, before + 1, after - 1)
    return min((each for each in (at - 1, at) if each > before), key=lambda each: abs(2 * ends[each] - twice))


def _between(bounds: Sequence[Key], rows: Sequence[int]) -> list[KeySlice]:
    edges = [None, *bounds, None]
    return [
        KeySlice(KeyRange(lower, upper), number) for (lower, upper), number in zip(pairwise(edges), rows, strict=True)
    ]


def _number(key: Key) -> int:
    """The place of a value among all of its kind."""
    value = key.values[0]
    if len(key) == 1:
        if isinstance(value, datetime):
            return (value - _EPOCH) // _MICROSECOND
        if isinstance(value, date):
            return value.toordinal()
        if isinstance(value, int) and key.kinds[0] is KeyKind.INT64:
            return value
    raise CutError(f"even cuts need a key of one whole number, date or timestamp, not ({', '.join(key.kinds)})")


def _like(key: Key, number: int) -> Key:
    """The key of this kind at that place."""
    value: KeyValue = number
    if key.kinds[0] is KeyKind.TIMESTAMP:
        value = _EPOCH + number * _MICROSECOND
    elif key.kinds[0] is KeyKind.DATE:
        value = date.fromordinal(number)
    return key_of(value)
