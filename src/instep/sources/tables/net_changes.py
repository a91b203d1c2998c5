"""The changes of rows between two versions of a table, in the end: what came and went again is none.

Each row has two numbers of 64 bits, made of its key and of all that is read of it. What is the same in both versions
came as often as it went, in whatever order and however often the table was written anew: so only the sums of signs
are needed, and no order of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.arrow.keys import row_numbers
from instep.sources.tables.lakes import SignedRows

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
#: Numbers of portions, from 0 on.
Portions: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
#: A way to read the same changes once more.
Changes: TypeAlias = "Callable[[], Iterable[SignedRows]]"


@dataclass(frozen=True)
class NetChanges:
    """The rows, by their numbers in order, that are there in the end and were not (`come`); and those that were, and
    whose key is gone (`gone`), with the numbers of these keys. `come_in` and `gone_in`: the portion of the changes in
    which each is met first. `read`: rows that were read to know it. `keyless_gone`: rows without a key are gone.

    `left_keys` are numbers of the keys of `gone`, and of rows that were marked as deleted before they went. So many of
    `come` as `elsewhere` says have these keys, and are in another namespace.
    """

    come: Numbers
    come_in: Portions
    gone: Numbers
    gone_in: Portions
    gone_keys: Numbers
    left_keys: Numbers
    read: int
    keyless_gone: bool
    elsewhere: int = 0

    @property
    def rows(self) -> int:
        return len(self.come) + len(self.gone)

    def with_elsewhere(self, other: NetChanges, but: Numbers) -> NetChanges:
        """With the rows that have come according to the other, which is of another namespace, but for those."""
        kept = ~np.isin(other.come, but)
        come = np.concatenate([self.come, other.come[kept]])
        order, portions = np.argsort(come), np.concatenate([self.come_in, other.come_in[kept]])
        elsewhere = self.elsewhere + int(np.count_nonzero(kept))
        return replace(self, come=come[order], come_in=portions[order], elsewhere=elsewhere)

    @classmethod
    def of(cls, portions: Iterable[Iterable[SignedRows]], key: Sequence[str], deleted: str | None = None) -> NetChanges:
        """`deleted`: the column that marks rows as deleted. They are in no index, as rows without a key are."""
        sizes = [0]
        keys, rows, signs = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)], [np.zeros(0, np.int8)]
        keyless, marked = [np.zeros(0, np.uint64)], [np.zeros(0, bool)]
        for changes in portions:
            for batch, each in changes:
                keys.append(key_numbers(batch, key))
                keyless.append(keys[-1][_without_key(batch, key)])
                marked.append(marks(batch, deleted))
                rows.append(_row_numbers(batch, keys[-1]))
                signs.append(each.astype(np.int8))
            sizes.append(sum(map(len, signs)) - sum(sizes))
        named, sums = np.concatenate(rows), np.concatenate(signs).astype(np.int64)
        found, first, places = np.unique(named, return_index=True, return_inverse=True)
        total = np.zeros(len(found), np.int64)
        np.add.at(total, places, sums)
        of_key = np.concatenate(keys)[first]
        without = np.isin(of_key, np.concatenate(keyless))
        keyless_gone = bool(np.any((total < 0) & without))
        left = (total < 0) & ~np.isin(of_key, of_key[total > 0]) & ~without
        went = left & ~np.concatenate(marked)[first]
        # Of rows that shared their key one is enough to delete it.
        gone_keys, once = np.unique(of_key[went], return_index=True)
        come, gone = np.flatnonzero(total > 0), np.sort(np.flatnonzero(went)[once])
        of_row = np.repeat(np.arange(-1, len(sizes) - 1, dtype=np.int32), sizes)
        return cls(
            found[come],
            _first(of_row, places, sums > 0, len(found))[come],
            found[gone],
            _first(of_row, places, sums < 0, len(found))[gone],
            gone_keys,
            np.unique(of_key[left]),
            len(named),
            keyless_gone,
        )

    def select(
        self, changes: Iterable[SignedRows], key: Sequence[str], portion: int
    ) -> Iterator[tuple[pa.RecordBatch, Flags]]:
        """Rows of a portion of the same changes, read once more: of all portions together each of `come` and `gone`
        once, with a flag for those gone.
        """
        come, gone = _Once(self.come[self.come_in == portion]), _Once(self.gone[self.gone_in == portion])
        for batch, signs in changes:
            numbers = _row_numbers(batch, key_numbers(batch, key))
            went = gone.first(numbers, signs < 0)
            chosen = come.first(numbers, signs > 0) | went
            if chosen.any():
                yield batch.filter(pa.array(chosen)), went[chosen]


def changed_rows(changes: Iterable[SignedRows], key: Sequence[str]) -> Numbers:
    """The numbers of the rows that did not come as often as they went."""
    named, signs = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for batch, each in changes:
        named.append(_row_numbers(batch, key_numbers(batch, key)))
        signs.append(each)
    found, places = np.unique(np.concatenate(named), return_inverse=True)
    changed: Numbers = found[np.bincount(places, np.concatenate(signs), len(found)) != 0]
    return changed


def _first(portions: Portions, places: npt.NDArray[np.intp], among: Flags, count: int) -> Portions:
    """The portion in which each of so many numbers is met first, by the portions and the numbers of these rows."""
    found = np.zeros(count, np.int32)
    # Of several the one that is written last is the first.
    found[places[among][::-1]] = portions[among][::-1]
    return found


class _Once:
    """Numbers of which each is taken where it is met first."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._open = np.ones(len(numbers), bool)

    def first(self, numbers: Numbers, among: Flags) -> Flags:
        found = np.zeros(len(numbers), bool)
        if not len(self._numbers):
            return found
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        at = np.flatnonzero(among & (self._numbers[places] == numbers) & self._open[places])
        _, first = np.unique(places[at], return_index=True)
        found[at[first]] = True
        self._open[places[at]] = False
        return found


def key_numbers(batch: pa.RecordBatch, key: Sequence[str]) -> Numbers:
    """A number of 64 bits for the key of each row."""
    return row_numbers([batch.column(name) for name in key])


def marks(batch: pa.RecordBatch, deleted: str | None) -> Flags:
    """Flags of the rows that this column marks as deleted."""
    if deleted is None:
        return np.zeros(batch.num_rows, bool)
    found: Flags = batch.column(deleted).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _without_key(batch: pa.RecordBatch, key: Sequence[str]) -> Flags:
    found = np.zeros(batch.num_rows, bool)
    for name in key:
        found |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
    return found


def _row_numbers(batch: pa.RecordBatch, keys: Numbers) -> Numbers:
    """By the key, and all else: two rows of different keys have different numbers, or one chance in 2^64."""
    rest = row_numbers(batch.columns)
    with np.errstate(over="ignore"):
        mixed: Numbers = keys * np.uint64(0x9E3779B97F4A7C15) + rest
    return mixed
