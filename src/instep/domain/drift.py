"""Drift: how tables that are stored differ from those that are declared, and what follows from it.

A change is applied in place when every stored row is, after it, what a rebuild would have written: a column or a kind
of edges is dropped, or a column gets a type that holds all its values exactly. Everything else needs a rebuild: what
is stored has no value for a column that is new (that the source has one does not move a row's watermark, so no
incremental run would ever fetch it), and a changed type, key or scope would mix two kinds of rows in one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from instep.domain.columns import Column, widens


class TableShape(Protocol):
    """A table as far as it can drift; `kind` is empty for an entity's own."""

    @property
    def kind(self) -> str: ...
    @property
    def columns(self) -> tuple[Column, ...]: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def scope(self) -> str | None: ...


class Change(StrEnum):
    ADDED = "added"
    DROPPED = "dropped"
    WIDENED = "widened"
    CHANGED = "changed"

    @property
    def in_place(self) -> bool:
        return self in (Change.DROPPED, Change.WIDENED)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of the table of this kind: in a column, or in `what` else. `stored` and `declared` are texts, '' for nothing."""

    change: Change
    kind: str
    what: str
    stored: str = ""
    declared: str = ""

    def __str__(self) -> str:
        """For people."""
        where = f"edges {self.kind!r}" if self.kind else "own table"
        match self.change:
            case Change.ADDED:
                return f"{where}: {self.what} is new: nothing stored has it, so the index is rebuilt"
            case Change.DROPPED:
                return f"{where}: {self.what} is dropped, in place"
            case Change.WIDENED:
                return f"{where}: {self.what} is widened from {self.stored} to {self.declared}, in place"
            case Change.CHANGED:
                return f"{where}: {self.what} was {self.stored} and is {self.declared}, so the index is rebuilt"


@dataclass(frozen=True, slots=True)
class TableDrift:
    """All differences; without any it is false."""

    differences: tuple[Difference, ...]

    def __bool__(self) -> bool:
        return bool(self.differences)

    @property
    def needs_rebuild(self) -> bool:
        """If one needs it, nothing is applied in place: the rebuild has it all."""
        return any(not each.change.in_place for each in self.differences)

    def of(self, change: Change) -> tuple[Difference, ...]:
        return tuple(each for each in self.differences if each.change is change)


def drift(stored: Iterable[TableShape], declared: Iterable[TableShape]) -> TableDrift:
    """How the tables of an index differ from the declared ones, both by kind; the order of columns does not count."""
    before = {table.kind: table for table in stored}
    after = {table.kind: table for table in declared}
    found: list[Difference] = []
    for kind in sorted(before.keys() | after.keys()):
        if kind not in before:
            found.append(Difference(Change.ADDED, kind, "the table"))
        elif kind not in after:
            found.append(Difference(Change.DROPPED, kind, "the table"))
        else:
            found += _table_drift(before[kind], after[kind])
    return TableDrift(tuple(found))


def _table_drift(stored: TableShape, declared: TableShape) -> list[Difference]:
    kind = declared.kind
    found: list[Difference] = []
    if stored.key != declared.key:
        found.append(Difference(Change.CHANGED, kind, "the key", _listed(stored.key), _listed(declared.key)))
    if stored.scope != declared.scope:
        found.append(Difference(Change.CHANGED, kind, "the scope", stored.scope or "none", declared.scope or "none"))
    types = {column.name: column.type for column in stored.columns}
    for column in declared.columns:
        what, was = f"column {column.name!r}", types.pop(column.name, None)
        if was is None:
            found.append(Difference(Change.ADDED, kind, what, "", str(column.type)))
        elif was != column.type:
            # Stores sort, and find rows, by the key as it is: it is never altered under them.
            wide = widens(was, column.type) and column.name not in declared.key
            change = Change.WIDENED if wide else Change.CHANGED
            found.append(Difference(change, kind, what, str(was), str(column.type)))
    found += [Difference(Change.DROPPED, kind, f"column {name!r}", str(was)) for name, was in types.items()]
    return found


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"
