"""The port of tables whose rows are documents, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from instep.domain.columns import ColumnType, TypeName
from instep.domain.keys import Key
from instep.domain.row_documents import DocumentColumns
from instep.domain.rows import RowColumns, Selection, Window
from instep.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

#: Assumed bytes of text in a row whose size is unknown: only the work is estimated by it.
ROW_BYTES = 2_000


class RowTable(Protocol):
    """A table in which `columns` say what makes a document of a row. Deleted rows are not there. What is wrong with it
    is a `UserError`; `Transient` when it changed while it was read.
    """

    @property
    def text(self) -> str:
        """Where it is, for people; without secrets."""

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        """Of the columns of the key, as they come."""

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        """All rows: the columns of the key; the version as text; the size (int64; negative if it is an estimate)."""

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        """Those with these keys, and perhaps others, a few megabytes at once: the columns of the key; the version as it
        is stored, and the title, as far as there are columns for them; the text. Title and text as bytes.
        """


def selection(keys: Sequence[Key] = ()) -> Selection:
    """Rows that are not deleted; with these keys."""
    return Selection(window=Window(None, 0), keys=tuple(keys))


def row_columns(columns: DocumentColumns) -> RowColumns:
    return RowColumns(columns.key, deleted=columns.deleted)


def demand_types(columns: DocumentColumns, types: Mapping[str, ColumnType], where: str) -> None:
    """Raises `UserError` for a column that cannot be what it is named for."""
    for name in columns.key:
        if not types[name].keys:
            raise UserError(f"{name!r} is {types[name]}, and cannot be in a key", where=where)
    for text in filter(None, (columns.text, columns.title)):
        if types[text].name not in (TypeName.STRING, TypeName.BYTES):
            hint = "Make text of it in `sql`."
            raise UserError(f"{text!r} is {types[text]}, and has to be text", where=where, hint=hint)
    flags = (TypeName.BOOL, TypeName.INT32, TypeName.INT64)
    if columns.deleted and types[columns.deleted].name not in flags:
        raise UserError(f"{columns.deleted!r} is {types[columns.deleted]}, and has to be a flag", where=where)
