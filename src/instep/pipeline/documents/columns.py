"""Values of a document's declared columns: read from its source, and turned into Arrow columns of their types.

The values of a row as one text tell whether any of them has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.hashes import hashes, hashes_of_parts
from instep.arrow.values import OtherType, column_type, texts_of, typed
from instep.domain.column_values import Value, WrongValue, value_of
from instep.domain.document_columns import DeclaredColumn, Origin
from instep.domain.identity import OF_TEXT
from instep.errors import UserError
from instep.pipeline.documents.rows import told_apart
from instep.sources.document_source import Content, Row

Values: TypeAlias = Mapping[str, Value]


class Said(NamedTuple):
    """The values of the columns of a document, and the reason why the first of the wrong ones is wrong."""

    values: dict[str, Value]
    wrong: str | None = None


@dataclass(frozen=True)
class ColumnReader:
    """Finds the values of the columns of one document after the other, but for those that a transform adds. `secret`:
    not everybody may read them, and failures are read by others.
    """

    declared: Sequence[DeclaredColumn]
    secret: bool = False

    def said(self, error: WrongValue) -> str:
        """The reason of a failure."""
        if not self.secret:
            return str(error)
        column = " ".join(str(error).split()[:2]).rstrip(":")
        return f"{column}: a value of another type, not shown as its documents have readers"

    @cached_property
    def fields(self) -> Sequence[pa.Field[Any]]:
        return [pa.field(each.name, column_type(each.column.type)) for each in self._read]

    @cached_property
    def _read(self) -> Sequence[DeclaredColumn]:
        return [each for each in self.declared if each.origin is not Origin.TRANSFORM]

    @cached_property
    def of_documents(self) -> Sequence[pa.Field[Any]]:
        """The fields that have one value for a document."""
        return [self.fields[at] for at, each in enumerate(self._read) if each.origin is not Origin.CHUNK]

    @cached_property
    def of_chunks(self) -> Mapping[str, str]:
        """The other ones: name → the fact of a chunk that is its value."""
        return {each.name: each.of for each in self._read if each.origin is Origin.CHUNK}

    @cached_property
    def _patterns(self) -> Mapping[str, re.Pattern[str]]:
        return {each.name: re.compile(each.of) for each in self._read if each.origin is Origin.PATH}

    def of_source(self, uri: str, content: Content) -> Said:
        """The values that are not in the text itself."""

        def found() -> Iterator[tuple[DeclaredColumn, Any, bool]]:
            for each in self._read:
                if each.origin is Origin.PATH:
                    yield each, _matched(self._patterns[each.name], each.name, uri), True
                elif each.origin is Origin.FILE:
                    yield each, _fact(each.of, uri, content), False
                elif each.origin is Origin.SOURCE and isinstance(content.fields, Mapping):
                    yield each, content.fields.get(each.of), False

        said = self._said(found())
        if isinstance(content.fields, Row) and (reason := content.fields.wrong):
            return said._replace(wrong=said.wrong or self.said(WrongValue(reason)))
        return said

    def of_front_matter(self, said: Mapping[str, Any]) -> Said:
        """The values in front matter, which is text."""
        mine = (each for each in self._read if each.origin is Origin.FRONT_MATTER)
        return self._said((each, said.get(each.of), True) for each in mine)

    def _said(self, found: Iterable[tuple[DeclaredColumn, Any, bool]]) -> Said:
        """A wrong value hides none of the others: readers are obeyed of a document that fails, too."""
        values: dict[str, Value] = {}
        wrong: str | None = None
        for each, said, text in found:
            try:
                values[each.name] = _value(each, said, text=text)
            except WrongValue as error:
                wrong = wrong or self.said(error)
        return Said(values, wrong)

    def arrays(self, documents: Sequence[tuple[Values, Row | None]]) -> list[pa.Array[Any]]:
        """The columns `of_documents` of some documents, of each what was found, and its row if it is one of a table."""
        return [self._array(field, documents) for field in self.of_documents]

    def _array(self, field: pa.Field[Any], documents: Sequence[tuple[Values, Row | None]]) -> pa.Array[Any]:
        if any(row is not None and field.name in row.rows.schema.names for _, row in documents):
            return _gathered(field, [row for _, row in documents])
        found: pa.Array[Any] = pa.array([values.get(field.name) for values, _ in documents], field.type)
        return found


def _gathered(field: pa.Field[Any], rows: Sequence[Row | None]) -> pa.Array[Any]:
    """A column of rows, batch by batch as they lie."""
    parts: list[Any] = []
    for _, some in groupby(rows, lambda row: None if row is None else id(row.rows)):
        here = list(some)
        if here[0] is None:
            parts.append(pa.nulls(len(here), field.type))
        else:
            parts.append(here[0].rows[field.name].take(pa.array([row.at for row in here if row is not None])))
    return pa.concat_arrays(parts)


def _value(each: DeclaredColumn, said: Any, *, text: bool = False) -> Value:
    try:
        found: Value = value_of(each.column, said, text=text)
    except WrongValue:
        if each.lenient:
            return None
        raise
    return found


def _matched(pattern: re.Pattern[str], name: str, uri: str) -> str | None:
    """The text that a pattern finds in the path of a document: that of the group with the column's name, or else of its
    first group.
    """
    path = unquote(uri.partition("://")[2].lstrip("/"), errors="replace")
    found = pattern.search(path)
    if found is None:
        return None
    return found[name] if name in pattern.groupindex else found[min(pattern.groups, 1)]


def _fact(name: str, uri: str, content: Content) -> Any:
    if name == "size":
        return content.size
    if name == "modified":
        return content.modified
    return PurePosixPath(unquote(uri.rsplit("/", 1)[-1], errors="replace")).suffix.lower().removeprefix(".") or None


def typed_rows(rows: pa.Table, declared: Sequence[DeclaredColumn]) -> tuple[pa.Table, dict[int, str]]:
    """Rows as a transform left them with the declared columns in their types, and what is wrong of a row."""
    flaws: dict[int, str] = {}
    for each in declared:
        if each.name not in rows.column_names:
            raise UserError(
                f"the transform adds no column {each.name}",
                hint=f"It is declared under `columns`: add it with .withColumn({each.name!r}, …), or say `from:`.",
            )
        try:
            found, wrong = typed(each.column, rows[each.name])
        except OtherType as error:
            raise UserError(f"{error}, as the transform leaves it", hint="Cast it, or declare another type.") from None
        if not each.lenient:
            flaws = {**wrong, **flaws}
        place = rows.schema.get_field_index(each.name)
        rows = rows.set_column(place, pa.field(each.name, column_type(each.column.type)), found)
    return rows, flaws


def chunk_hashes(rows: pa.Table, declared: Sequence[DeclaredColumn]) -> Any:
    """The hash of each row, as `domain.identity.chunk_hash` has it: of its title, its text with what stands before it,
    and its columns.
    """
    found = hashes_of_parts(rows["title"], told_apart(rows), between="\0")
    if not declared:
        return found
    said = texts_of({each.name: rows[each.name] for each in declared})
    halves = (pc.utf8_slice_codeunits(each, 0, OF_TEXT) for each in (found, hashes(said)))
    return pc.if_else(pc.equal(said, pa.scalar("")), found, pc.binary_join_element_wise(*halves, ""))


def spoken(values: Values) -> str:
    """A text of values that are there; no other values have the same."""
    said = [(name, value) for name, value in values.items() if value is not None]
    return repr(said) if said else ""


def facts_of(values: Values, row: Row | None) -> Iterable[str]:
    """Texts of all that a source says beside title and text."""
    return filter(None, (spoken(values), row.facts if row else ""))
