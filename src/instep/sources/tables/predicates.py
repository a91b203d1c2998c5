"""Conditions that select rows: in SQL, for Spark or for a database; and of namespaces, in Arrow.

Conditions compare plain columns with constants, so that an engine can skip parts without such a row: files, row
groups, pages of an index. In a range of several columns the first one is therefore compared once more by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.cuts import KeyRange
from instep.domain.keys import Key, KeyValue
from instep.domain.refs import Scope, outside
from instep.domain.rows import RowColumns, Selection

#: A condition has at most so many ranges; neighbours are joined, with the rows between them.
MAX_RANGES = 64

#: And so many namespaces whose rows are not wanted.
MAX_SCOPES = 500

#: And so many keys, with so many letters and bytes in them: some are sent in addresses.
MAX_KEYS, MAX_KEY_LETTERS = 1_000, 100_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Dialect(Protocol):
    """The SQL of a system: how columns and values are written. Both raise what the caller knows when a column cannot be
    compared there exactly.
    """

    def column(self, name: str) -> str:
        """The column, quoted; text so that it compares by its UTF-8 bytes."""

    def same(self, name: str) -> str:
        """The column, quoted, to be asked for equal values. It may equal more than it should, and no less."""

    def constant(self, name: str, value: KeyValue) -> str:
        """The value, to be compared with that column."""

    def flag_unset(self, name: str) -> str:
        """A condition: the flag is false, or null."""


def moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def conditions(dialect: Dialect, rows: RowColumns, selection: Selection) -> list[str]:
    """The conditions of a selection, without its ranges."""
    return [each for ask in (in_scope, in_window, undeleted, in_few_keys) for each in ask(dialect, rows, selection)]


def in_scope(dialect: Dialect, rows: RowColumns, selection: Selection) -> list[str]:
    """Paths that begin with `42/` are those from `42/` on and below `420`."""
    if selection.scope.is_global or not rows.scope:
        return []
    if selection.others is not None:
        return in_no_other(dialect, rows.scope, selection.others)
    column, scope = dialect.column(rows.scope), selection.scope
    return [
        f"{column} >= {dialect.constant(rows.scope, scope.path)}",
        f"{column} < {dialect.constant(rows.scope, scope.after)}",
    ]


def in_no_other(dialect: Dialect, name: str, others: Sequence[Scope]) -> list[str]:
    """The condition that a row is in none of these namespaces. Of more than `MAX_SCOPES` some are left out: their rows
    come as well.
    """
    if not others:
        return []
    column = dialect.column(name)
    found = [f"{column} IS NULL"]
    for start, end in outside(others[:: -(-len(others) // MAX_SCOPES)]):
        ends = [f"{column} >= {dialect.constant(name, start)}"] if start else []
        ends += [f"{column} < {dialect.constant(name, end)}"] if end is not None else []
        found.append(" AND ".join(ends))
    return ["(" + " OR ".join(f"({each})" for each in found) + ")"]


def above(dialect: Dialect, watermark: str, floor: int) -> str:
    return f"{dialect.column(watermark)} > {dialect.constant(watermark, moment(floor))}"


def in_window(dialect: Dialect, rows: RowColumns, selection: Selection) -> list[str]:
    window = selection.window
    if window is None or window.everything or not rows.watermark:
        return []
    column = dialect.column(rows.watermark)
    until = f"{column} <= {dialect.constant(rows.watermark, moment(window.target))}"
    if window.floor is None:
        return [f"({until} OR {column} IS NULL)"]
    later = above(dialect, rows.watermark, window.floor)
    return [f"(({later} AND {until}) OR {column} IS NULL)"] if window.unmarked else [later, until]


def undeleted(dialect: Dialect, rows: RowColumns, selection: Selection) -> list[str]:
    if selection.window is None or not selection.window.undeleted or not rows.deleted:
        return []
    return [dialect.flag_unset(rows.deleted)]


def in_few_keys(dialect: Dialect, rows: RowColumns, selection: Selection) -> list[str]:
    """The condition for as many keys as fit into one; empty for more."""
    groups = key_groups(selection.keys)
    return [in_keys(dialect, rows.key, groups[0])] if len(groups) == 1 else []


def in_keys(dialect: Dialect, columns: Sequence[str], keys: Sequence[Key]) -> str:
    """The condition that each column by itself has one of its values in the keys, for which an index or statistics are
    of use. Of keys of several columns others have that too.
    """
    found = []
    for at, name in enumerate(columns):
        values = [dialect.constant(name, each) for each in dict.fromkeys(key.values[at] for key in keys)]
        found.append(f"{dialect.same(name)} IN ({', '.join(values)})")
    return " AND ".join(found)


def key_groups(keys: Sequence[Key]) -> list[Sequence[Key]]:
    """Keys in portions that fit into one condition."""
    groups: list[list[Key]] = []
    room = 0
    for key in keys:
        taken = sum(len(each) if isinstance(each, str | bytes) else 0 for each in key.values)
        if not groups or len(groups[-1]) == MAX_KEYS or taken > room:
            groups.append([])
            room = MAX_KEY_LETTERS
        groups[-1].append(key)
        room -= taken
    return list(groups)


def in_ranges(dialect: Dialect, columns: Sequence[str], ranges: Sequence[KeyRange]) -> str | None:
    """A condition for all that lies in one of the ranges; None when that is everything."""
    each = [in_range(dialect, columns, one) for one in joined(ranges)]
    if not each or None in each:
        return None
    return "(" + " OR ".join(f"({one})" for one in each) + ")"


def in_range(dialect: Dialect, columns: Sequence[str], one: KeyRange) -> str | None:
    """A null is less than any value: it is below every upper bound, and not above a lower one."""
    parts = []
    if one.lower is not None:
        parts.append(_from(dialect, columns, one.lower))
    if one.upper is not None:
        parts.append(_below(dialect, columns, one.upper))
    return " AND ".join(parts) or None


def joined(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """The ranges in order, neighbours made one; when they are too many, with gaps filled evenly."""
    ends: list[KeyRange] = []
    for one in in_order(ranges):
        if ends and ends[-1].upper is not None and ends[-1].upper == one.lower:
            ends[-1] = KeyRange(ends[-1].lower, one.upper)
        else:
            ends.append(one)
    if len(ends) <= MAX_RANGES:
        return ends
    edges = [len(ends) * at // MAX_RANGES for at in range(MAX_RANGES + 1)]
    return [KeyRange(ends[first].lower, ends[after - 1].upper) for first, after in pairwise(edges)]


def in_order(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    first = [one for one in ranges if one.lower is None]
    return first + sorted((one for one in ranges if one.lower is not None), key=_lower)


def _lower(one: KeyRange) -> Key:
    assert one.lower is not None
    return one.lower


def _from(dialect: Dialect, columns: Sequence[str], bound: Key) -> str:
    pairs = [(dialect.column(name), dialect.constant(name, value)) for name, value in zip(columns, bound.values)]  # noqa: B905 - a bound may have the first columns only
    column, constant = pairs[-1]
    found = f"{column} >= {constant}"
    for column, constant in reversed(pairs[:-1]):
        found = f"{column} > {constant} OR ({column} = {constant} AND ({found}))"
    column, constant = pairs[0]
    return found if len(pairs) == 1 else f"{column} >= {constant} AND ({found})"


def _below(dialect: Dialect, columns: Sequence[str], bound: Key) -> str:
    pairs = [(dialect.column(name), dialect.constant(name, value)) for name, value in zip(columns, bound.values)]  # noqa: B905 - as above
    column, constant = pairs[-1]
    found = f"{column} < {constant} OR {column} IS NULL"
    for column, constant in reversed(pairs[:-1]):
        found = f"{column} < {constant} OR {column} IS NULL OR ({column} = {constant} AND ({found}))"
    column, constant = pairs[0]
    return f"({found})" if len(pairs) == 1 else f"({column} <= {constant} OR {column} IS NULL) AND ({found})"


def within(paths: pa.Array[Any] | pa.ChunkedArray[Any], scopes: Iterable[Scope]) -> pa.Array[Any]:
    """Whether each path is in one of the namespaces; a null is in none. However many there are, all namespaces of one
    depth are looked up together.
    """
    found: pa.Array[Any] = pa.repeat(pa.scalar(False), len(paths))
    for depth, same in groupby(sorted(scopes, key=_depth), key=_depth):
        heads: Any = pc.replace_substring_regex(paths, rf"(?s)^((?:[^/]*/){{{depth}}}).*$", r"\1")
        found = pc.or_(found, pc.is_in(heads, pa.array([each.path for each in same], pa.string())))
    return found


def _depth(scope: Scope) -> int:
    return scope.path.count("/")
