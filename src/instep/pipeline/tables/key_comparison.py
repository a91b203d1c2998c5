"""Compare keys and versions of a table's two sides in little memory: first sums by ranges of hashes, then the rows of
those ranges that differ.

A row has a number of 64 bits, made of its key; a range has all rows whose number begins with the same 16 bits. Each
side is reduced to the number of its rows in each range and a sum of what mixes number and version. Where both are alike
the rows are; of the others the rows themselves are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from instep.arrow.keys import key_numbers, mixed

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Batches: TypeAlias = "Iterator[pa.RecordBatch]"

#: What is kept of the rows of a side. Picklable.
Keep: TypeAlias = "Callable[[Batches], Batches]"

RANGES = 1 << 16
_SHIFT = np.uint64(48)
_STEP = np.uint64(0x9E3779B97F4A7C15)
#: A repair writes rows so much later (in microseconds) than they are: what it deleted once is remembered with such a
#: version, and would keep a row away that is in the source again as it was.
LIFT: Final = 1
#: The last column of a side's rows: the version, in microseconds.
VERSION = "version"
#: What a task tells of its rows.
SUMS_SCHEMA = pa.schema([pa.field("rows", pa.binary()), pa.field("sums", pa.binary())])


def numbers_of(rows: pa.RecordBatch) -> Numbers:
    """The numbers of the keys: of all columns but the last."""
    return key_numbers(rows.columns[:-1])


@dataclass(slots=True)
class Sums:
    """One side, reduced."""

    rows: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(RANGES, np.int64))
    sums: Numbers = field(default_factory=lambda: np.zeros(RANGES, np.uint64))

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Sums:
        found = cls()
        for each in batches:
            found.add(each)
        return found

    def add(self, rows: pa.RecordBatch) -> None:
        numbers = numbers_of(rows)
        places = (numbers >> _SHIFT).astype(np.int64)
        versions = rows.column(rows.num_columns - 1).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(self.sums, places, mixed(numbers * _STEP + mixed(versions)))
        self.rows += np.bincount(places, minlength=RANGES)

    def join(self, other: Sums) -> None:
        self.rows += other.rows
        with np.errstate(over="ignore"):
            self.sums += other.sums

    def leave_out(self, rows: pa.Table) -> None:
        """Forget rows that were added."""
        found = Sums.of(rows.combine_chunks().to_batches())
        self.rows -= found.rows
        with np.errstate(over="ignore"):
            self.sums -= found.sums

    def in_portions(self, most: int) -> list[frozenset[int]]:
        """The ranges that have rows, in portions of about so many rows at most."""
        there = np.flatnonzero(self.rows)
        portions = (np.cumsum(self.rows[there]) - 1) // most
        return [frozenset(map(int, there[portions == each])) for each in np.unique(portions)]

    def differing(self, other: Sums) -> Sequence[int]:
        """The ranges that differ."""
        return [int(each) for each in np.flatnonzero((self.rows != other.rows) | (self.sums != other.sums))]

    def in_ranges(self, ranges: Sequence[int]) -> int:
        """The number of rows in these ranges."""
        return int(self.rows[list(ranges)].sum()) if ranges else 0

    def encode(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {"rows": [self.rows.tobytes()], "sums": [self.sums.tobytes()]}, schema=SUMS_SCHEMA
        )

    @classmethod
    def decode(cls, tasks: pa.Table) -> Sums:
        """The sum of what all tasks have told."""
        found = cls()
        for each in tasks.to_pylist():
            rows = np.frombuffer(each["rows"], np.int64)
            found.join(cls(rows.copy(), np.frombuffer(each["sums"], np.uint64).copy()))
        return found


def summed(batches: Batches) -> Batches:
    """A task's rows, reduced."""
    yield Sums.of(batches).encode()


def kept(batches: Batches, ranges: frozenset[int]) -> Batches:
    """The rows in these ranges."""
    wanted = np.zeros(RANGES, bool)
    wanted[sorted(ranges)] = True
    for each in batches:
        found = each.filter(pa.array(wanted[(numbers_of(each) >> _SHIFT).astype(np.int64)]))
        if found.num_rows:
            yield found


def in_ranges(ranges: Iterable[int]) -> Keep:
    """Keep the rows in these ranges."""
    return partial(kept, ranges=frozenset(ranges))


def with_keys_of(rows: pa.Table) -> Keep:
    """Keep the rows with keys of these."""
    return partial(_named, numbers=np.unique(_numbers(rows)))


def _named(batches: Batches, numbers: Numbers) -> Batches:
    for each in batches:
        _, there = _places(numbers_of(each), numbers)
        found = each.filter(pa.array(there))
        if found.num_rows:
            yield found


def _places(numbers: Numbers, ordered: Numbers) -> tuple[np.ndarray[Any, Any], Any]:
    """The places of numbers among others, and whether they are there."""
    if not len(ordered):
        return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
    at = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
    return at, ordered[at] == numbers


class Compared(NamedTuple):
    """Rows of the ranges that differ, by keys and version: those that are only in the source (`missing`) or only in the
    target (`gone`), and those of both whose version there is later (`behind`) or earlier (`ahead`), though not by the
    `LIFT` of a repair.
    """

    missing: pa.Table
    gone: pa.Table
    behind: pa.Table
    ahead: pa.Table


def compare_rows(source: pa.Table, target: pa.Table) -> Compared:
    """Compare all rows of some ranges; both tables have the same columns. Of a key that is there twice, the later
    version counts.
    """
    ours, numbers = _latest(source)
    theirs, others = _latest(target)
    there = np.isin(numbers, others)
    here = np.isin(others, numbers)
    both, counterparts = ours.filter(pa.array(there)), theirs.filter(pa.array(here))
    # Both are in the order of their numbers, each of which is there once.
    new, old = (np.asarray(each.column(VERSION).to_numpy()).astype(np.int64) for each in (both, counterparts))
    return Compared(
        ours.filter(pa.array(~there)),
        theirs.filter(pa.array(~here)),
        both.filter(pa.array(new > old)),
        counterparts.filter(pa.array(old - new > LIFT)),
    )


def overtaken(rows: pa.Table, outside: pa.Table) -> pa.Table:
    """The rows of which there is a later version among those `outside`."""
    return rows.filter(pa.array(_are_overtaken(rows, outside)))


def not_overtaken(rows: pa.Table, outside: pa.Table) -> pa.Table:
    """The rows of which there is no later version among those `outside`."""
    return rows.filter(pa.array(~_are_overtaken(rows, outside)))


def _are_overtaken(rows: pa.Table, outside: pa.Table) -> Any:
    latest, ordered = _latest(outside)
    at, there = _places(_numbers(rows), ordered)
    if not len(ordered):
        return there
    last, own = (np.asarray(each.column(VERSION).to_numpy()).astype(np.int64) for each in (latest, rows))
    return there & (own < last[at])


def _numbers(rows: pa.Table) -> Numbers:
    batches = rows.combine_chunks().to_batches()
    return numbers_of(batches[0]) if batches else np.zeros(0, np.uint64)


def _latest(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Sort rows by the numbers of their keys, and keep one of each key."""
    numbers = _numbers(rows)
    versions = np.asarray(rows.column(VERSION).to_numpy()).astype(np.int64)
    order = np.lexsort((versions, numbers))
    ordered = numbers[order]
    last = np.ones(len(order), bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    at = order[last]
    return rows.take(pa.array(at, pa.int64())), numbers[at]
