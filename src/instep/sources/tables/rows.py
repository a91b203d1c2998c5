"""Ids and versions of rows that are documents, for many at once; and a spool of rows on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.hashes import hashes, hashes_of_parts
from instep.arrow.sets import ValueSet
from instep.arrow.values import OtherType, column_type, demand_type, not_utf8, texts_of, typed
from instep.domain.document_columns import DeclaredColumn
from instep.domain.rows import NULL, SCHEME, DocumentColumns, key_part
from instep.errors import UserError

#: Text that is the same in a URI.
_PLAIN = "^[A-Za-z0-9_.~:-]*$"
#: Versions are kept in ledgers; longer ones, those with a NUL in it and those of odd bytes are by their hash.
_LONGEST = 128
_OWN_SQL = "make one of it with `sql`."
#: Rows that are taken out of a spool at once, and bytes.
_PORTION_ROWS = 8_000
_PORTION_BYTES = 4 << 20


def row_uris(entity: str, keys: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """The URIs of rows, as `domain.row_documents.row_uri` has them. A key of bytes that are not UTF-8 is none."""
    texts: list[Any] = [pa.scalar(SCHEME + entity), *map(_parts, keys), "/"]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=NULL)
    return joined


def _parts(values: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if pa.types.is_string(values.type):
        if (broken := not_utf8(values)) is not None:
            values = pc.if_else(broken, pa.scalar(None, values.type), values)
        plain: Any = pc.match_substring_regex(values, _PLAIN)
        if pc.all(plain, min_count=0).as_py():
            return values
    coded: Any = values.dictionary_encode()
    texts = pa.array([key_part(each) for each in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def row_versions(values: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a version column as text, the same one from whatever the table is read; a null is none."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        texts: Any = pa.array([each if each is None else each.hex() for each in values.to_pylist()], pa.string())
    else:
        texts = values.cast(pa.string())
    texts = texts.fill_null("")
    long: Any = pc.greater(pc.binary_length(texts), pa.scalar(_LONGEST))
    odd: Any = pc.or_(long, pc.match_substring(texts, "\0"))
    if (broken := not_utf8(texts)) is not None:
        odd = pc.or_(odd, broken)
    if not pc.any(odd, min_count=0).as_py():
        versions: pa.Array[Any] = texts
        return versions
    found: Any = texts.filter(odd).cast(pa.binary())
    replaced: pa.Array[Any] = pc.replace_with_mask(texts, odd, hashes(found))
    return replaced


def versions_of(
    values: pa.Array[Any], titles: pa.Array[Any] | None, texts: pa.Array[Any], facts: Any = None
) -> pa.Array[Any]:
    """The values of a version column as text. Of a row that has none its content tells whether it has changed."""
    found: Any = row_versions(values)
    if not values.null_count:
        return found  # type: ignore[no-any-return]  # of texts
    without = values.is_null()
    rest = None if facts is None else facts.filter(without)
    by_content = content_versions(None if titles is None else titles.filter(without), texts.filter(without), rest)
    versions: pa.Array[Any] = pc.replace_with_mask(found, without, by_content)
    return versions


def content_versions(titles: pa.Array[Any] | None, texts: pa.Array[Any], facts: Any = None) -> pa.Array[Any]:
    """The versions of rows that have no column for it: a hash of all that they say (bytes). A null says nothing.
    `facts` tell the values of declared columns.
    """
    found = hashes(texts) if titles is None else hashes_of_parts(titles, texts, between="\0")
    return versions_with(found, facts)


def versions_with(found: Any, facts: Any) -> pa.Array[Any]:
    """Versions by content, with the values of declared columns, as `domain.identity.with_facts` has them."""
    if facts is None:
        return found  # type: ignore[no-any-return]  # of texts
    found, told = found.fill_null(""), facts.fill_null("")
    versions: pa.Array[Any] = pc.if_else(
        pc.equal(told, pa.scalar("")), found, hashes_of_parts(found, told, between="\0")
    )
    return versions


class Declared(NamedTuple):
    """Declared columns of rows in their types; of each row a text that says why one of its values is none of its type
    (else empty), and one that tells its values from others.
    """

    values: Sequence[pa.Array[Any]]
    wrong: pa.Array[Any]
    facts: pa.Array[Any]


def demand_declared(column: DeclaredColumn, stored: pa.DataType, where: str, instead: str = _OWN_SQL) -> None:
    """Check that values of this type can become those that are declared. Raises `UserError`, with the place of the
    table, and what can be done `instead` of another declaration.
    """
    try:
        demand_type(column.column, stored)
    except OtherType as error:
        raise UserError(str(error), where=where, hint=f"Declare another type, or {instead}") from None


def declared_values(found: Sequence[pa.Array[Any]], columns: Sequence[DeclaredColumn]) -> Declared:
    """Columns as they are stored, in the order of those that are declared."""
    values, reasons = [], dict[int, str]()
    rows = len(found[0])
    for stored, each in zip(found, columns, strict=True):
        try:
            made, wrong = typed(each.column, stored)
        except OtherType as error:
            raise UserError(str(error), hint=f"Declare another type, or {_OWN_SQL}") from None
        values.append(made)
        if not each.lenient:
            reasons = {**wrong, **reasons}
    flawed = np.zeros(rows, bool)
    flawed[list(reasons)] = True
    said = [reasons[at] for at in np.flatnonzero(flawed).tolist()]
    nothing: Any = pa.repeat("", rows)
    wrongs = pc.replace_with_mask(nothing, pa.array(flawed), pa.array(said, pa.string()))
    texts = texts_of({each.name: made for each, made in zip(columns, values, strict=True)})
    return Declared(values, wrongs, pc.binary_join_element_wise(texts, wrongs, ""))


_COLUMNS: list[tuple[str, pa.DataType]] = [("version", pa.string()), ("title", pa.binary()), ("text", pa.binary())]
#: Beside declared columns; none of those can be called so.
WRONG, FACTS = "_wrong", "_facts"


def said_schema(columns: DocumentColumns) -> pa.Schema:
    """Versions, titles and texts, and declared columns."""
    if not columns.columns:
        return pa.schema(_COLUMNS)
    declared = [(each.name, column_type(each.column.type)) for each in columns.columns]
    return pa.schema([*_COLUMNS, *declared, (WRONG, pa.string()), (FACTS, pa.string())])


class RowSpool:
    """Rows on disk, found by the URIs that their keys give them. Used once; gone when it is closed."""

    def __init__(self, entity: str, columns: DocumentColumns) -> None:
        self._entity = entity
        self._columns = columns
        self._file: Any = None
        self._writer: Any = None
        self._kept: list[Any] = []
        self._sizes: list[npt.NDArray[np.int64]] = []
        self._batches: list[pa.RecordBatch] = []
        #: The first row of each batch, among all.
        self._starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._uris: Any = pa.chunked_array([], pa.string())
        #: Bytes of title and text of each row.
        self._bytes: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def __enter__(self) -> Self:
        self._file = tempfile.NamedTemporaryFile()
        self._writer = pa.ipc.new_file(self._file, said_schema(self._columns))
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.clear()
        self._file.close()

    def keep(self, rows: Iterable[pa.RecordBatch], uris: pa.ChunkedArray[Any]) -> None:
        """Keep those of these rows with these URIs (and perhaps others: see `ValueSet`)."""
        wanted, named = ValueSet(uris), self.keys
        for batch in rows:
            found = row_uris(self._entity, batch.columns[:named])
            chosen = wanted.contains(found)
            if chosen.any():
                mask = pa.array(chosen)
                some = batch.filter(mask)
                self.put(found.filter(mask), some.select(range(named, some.num_columns)))
        self.seal()

    @property
    def keys(self) -> int:
        """The number of columns that name a row."""
        return len(self._columns.key)

    def put(self, uris: pa.Array[Any], rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keep rows with these URIs, which are without the columns that name them; they are `said_by` these."""
        said = said_by(rows, self._columns)
        self._kept.append(uris)
        self._sizes.append(_bytes_of(said["title"]) + _bytes_of(said["text"]))
        self._writer.write_batch(said)
        return said

    def seal(self) -> None:
        """All rows are there: from here on they are found."""
        self._writer.close()
        self._file.flush()
        reader = pa.ipc.open_file(pa.memory_map(self._file.name))
        self._batches = [reader.get_batch(at) for at in range(len(self._kept))]
        self._starts = np.cumsum([0, *map(len, self._kept)])
        self._uris = pa.chunked_array(self._kept, pa.string())
        self._bytes = np.concatenate([self._bytes, *self._sizes])

    def uris(self) -> pa.ChunkedArray[Any]:
        """The URIs of all rows, in their order."""
        return self._uris  # type: ignore[no-any-return]  # of texts

    def bytes_of(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bytes of title and text of the rows at these places; 0 where there is none."""
        return np.where(places >= 0, self._bytes[np.maximum(places, 0)], 0) if len(self._bytes) else places * 0

    def places(self, uris: pa.ChunkedArray[Any]) -> npt.NDArray[np.int64]:
        """The place of the row of each URI; -1 where there is none, and less where there are more: minus so many."""
        if not len(self._uris):
            return np.full(len(uris), -1, np.int64)
        found: Any = pc.index_in(uris, value_set=self._uris)
        places = np.asarray(found.fill_null(-1).to_numpy(), np.int64)
        counted: Any = self._uris.value_counts()
        if len(counted) < len(self._uris):
            counts = pc.struct_field(counted, "counts")
            twice = counted.filter(pc.greater(counts, pa.scalar(1)))
            at: Any = pc.index_in(uris, value_set=pc.struct_field(twice, "values"))
            number = pc.struct_field(twice, "counts").take(at).fill_null(0).to_numpy()
            places = np.where(number > 1, -number, places)
        return places

    def portions(self, places: npt.NDArray[np.int64]) -> Iterator[slice]:
        """Stretches of these places, the rows of which are a few megabytes together (or one row)."""
        return portions(self.bytes_of(places))

    def rows(self, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The rows at these places, in their order (`said_schema`)."""
        batch = np.searchsorted(self._starts, places, "right") - 1
        order = np.argsort(batch, kind="stable")
        taken = [
            self._batches[number].take(pa.array(places[some] - self._starts[number]))
            for number, some in _runs(batch, order)
        ]
        back: Any = pa.array(np.argsort(order, kind="stable"))
        together = pa.Table.from_batches(taken, said_schema(self._columns)).combine_chunks().to_batches()
        return together[0].take(back) if together else pa.RecordBatch.from_pylist([], said_schema(self._columns))


def portions(held: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Stretches of what has so many bytes each, a few megabytes together (or one alone)."""
    ends, start = np.cumsum(held), 0
    while start < len(held):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + _PORTION_BYTES, "right"))
        stop = min(start + _PORTION_ROWS, max(start + 1, fits))
        yield slice(start, stop)
        start = stop


def _bytes_of(texts: Any) -> npt.NDArray[np.int64]:
    lengths: Any = pc.fill_null(pc.binary_length(texts), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _runs(values: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each value, with where it is; `order` sorts them."""
    edges = np.flatnonzero(np.diff(values[order])) + 1
    for some in np.split(order, edges):
        if len(some):
            yield int(values[some[0]]), some


def said_by(rows: pa.RecordBatch, columns: DocumentColumns) -> pa.RecordBatch:
    """Versions as text, titles and texts of rows, and declared columns (`said_schema`): of the last columns, as far as
    there are any for them.
    """
    at = rows.num_columns - 1 - len(columns.columns)
    declared = declared_values(rows.columns[at + 1 :], columns.columns) if columns.columns else None
    facts = declared.facts if declared else None
    texts = rows.column(at)
    titles = rows.column(at := at - 1) if columns.title else None
    versions = (
        versions_of(rows.column(at - 1), titles, texts, facts)
        if columns.version
        else content_versions(titles, texts, facts)
    )
    shown = pa.nulls(rows.num_rows, pa.binary()) if titles is None else titles
    more = [*declared.values, declared.wrong, declared.facts] if declared else []
    return pa.RecordBatch.from_arrays([versions, shown, texts, *more], schema=said_schema(columns))
