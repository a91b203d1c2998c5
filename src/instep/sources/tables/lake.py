"""A table that keeps versions of itself, as its library opens it: what Delta and Iceberg have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from instep.domain.columns import ColumnType
from instep.domain.rows import DocumentColumns
from instep.sources.tables.arrow_rows import ArrowRows, types_of

if TYPE_CHECKING:
    import pyarrow as pa

#: What to do about a column of a type that cannot be used.
OTHER_COLUMN: Final = "Make another column of it in the table."

#: A portion of a version has at least as many bytes, if there are as many.
PORTION_BYTES: Final = 64_000_000

#: And one of the changes between two: of each row a number is made, which takes longer than reading it.
WINDOW_BYTES: Final = 16_000_000

Opened = TypeVar("Opened")
Part = TypeVar("Part")


def in_portions(files: Iterable[Part], size: Callable[[Part], int], wanted: int = PORTION_BYTES) -> list[list[Part]]:
    """Files in portions of so many bytes and no more than one file beyond that, in their order."""
    found: list[list[Part]] = []
    room = 0
    for each in files:
        if room <= 0:
            found.append([])
            room = wanted
        found[-1].append(each)
        room -= size(each)
    return found


class Lake(ABC, Generic[Opened]):
    """A table as its library opens it."""

    @property
    @abstractmethod
    def text(self) -> str:
        """See `RowTable.text`."""

    @abstractmethod
    def _opened(self) -> Opened: ...

    @abstractmethod
    def _told(self) -> AbstractContextManager[None]:
        """Whatever the library says becomes a `UserError`."""

    @staticmethod
    @abstractmethod
    def _schema(table: Opened) -> pa.Schema: ...

    def schema(self) -> pa.Schema:
        """The columns that the table has now."""
        with self._told():
            return self._schema(self._opened())

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        with self._told():
            types = self._rows(self._opened(), columns).types
        return [types[name] for name in columns.key]

    def _rows(self, table: Opened, columns: DocumentColumns) -> ArrowRows:
        types = types_of(columns, [("the table", self._schema(table))], self.text, hint=OTHER_COLUMN)
        return ArrowRows(columns, types, self.text)
