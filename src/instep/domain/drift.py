"""Drift: differences between stored tables and the declared ones.

Any difference needs a rebuild. A new column has no stored values (its appearance does not change a row's watermark, so
no incremental run would fetch them), and a changed type, key or scope would mix two kinds of rows in one table. Dropped
or widened columns could be altered in place, differently in each store and under its readers; a rebuild handles them
all in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from instep.domain.columns import Column


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


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of the table of this kind: in a column, or in `what` else. `stored` and `declared` are texts, '' for
    nothing.
    """

    kind: str
    what: str
    stored: str
    declared: str

    def __str__(self) -> str:
        """The difference for people."""
        where = f"edges {self.kind!r}" if self.kind else "own table"
        if not self.stored:
            return f"{where}: {self.what} is new: {self.declared}"
        if not self.declared:
            return f"{where}: {self.what} is gone"
        return f"{where}: {self.what} was {self.stored} and is {self.declared}"


def drift(stored: Iterable[TableShape], declared: Iterable[TableShape]) -> tuple[Difference, ...]:
    """The differences of an index's tables from the declared ones, both by kind; the order of columns does not
    count.
    """
    before = {table.kind: table for table in stored}
    after = {table.kind: table for table in declared}
    found: list[Difference] = []
    for kind in sorted(before.keys() | after.keys()):
        if kind not in before:
            found.append(Difference(kind, "the table", "", _listed(after[kind].key)))
        elif kind not in after:
            found.append(Difference(kind, "the table", _listed(before[kind].key), ""))
        else:
            found += _table_drift(before[kind], after[kind])
    return tuple(found)


def _table_drift(stored: TableShape, declared: TableShape) -> list[Difference]:
    kind = declared.kind
    found: list[Difference] = []
    if stored.key != declared.key:
        found.append(Difference(kind, "the key", _listed(stored.key), _listed(declared.key)))
    if stored.scope != declared.scope:
        found.append(Difference(kind, "the scope", stored.scope or "none", declared.scope or "none"))
    types = {column.name: str(column.type) for column in stored.columns}
    for column in declared.columns:
        was = types.pop(column.name, "")
        if was != str(column.type):
            found.append(Difference(kind, f"column {column.name!r}", was, str(column.type)))
    return found + [Difference(kind, f"column {name!r}", was, "") for name, was in types.items()]


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"
