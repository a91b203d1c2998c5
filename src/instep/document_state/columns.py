"""Listings and changes of documents in columns, which look like sequences of documents to callers that want a few."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeVar, overload

from instep.domain.identity import canonical_uri, document_id
from instep.domain.manifest import Action, DocumentChange, ManifestEntry, SourceDocument

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from instep.domain.jobs import SlicePlan
    from instep.domain.planning import SliceSizing

#: Rows that become Python objects at once, when a caller reads all of them.
_AT_ONCE: Final = 10_000

#: Up to so many documents are compared one by one: importing Arrow takes longer.
FEW: Final = 50_000

Row = TypeVar("Row", SourceDocument, DocumentChange, ManifestEntry)


class Rows(Sequence[Row], Generic[Row]):
    """Rows of a table, made when they are asked for and not kept."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def _row(self, values: Sequence[Any]) -> Row:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), _AT_ONCE):
            columns = [column.to_pylist() for column in self.table.slice(start, _AT_ONCE).columns]
            yield from map(self._row, zip(*columns, strict=True))

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return type(self)(self.table.slice(start, max(0, stop - start)))
            return [self[place] for place in range(start, stop, step)]
        place = range(len(self))[at]
        return self._row([column[place].as_py() for column in self.table.columns])


class ListedColumns(Rows[SourceDocument]):
    """A listing in columns (those of `SourceDocument`), each document once. `orphans`: see `Listing`."""

    def __init__(self, table: pa.Table, orphans: int = 0) -> None:
        super().__init__(table)
        self.orphans = orphans

    def _row(self, values: Sequence[Any]) -> SourceDocument:
        return SourceDocument(*values)

    def named(self, uris: Collection[str]) -> ListedColumns:
        """Those that have one of these URIs."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(list(uris), pa.string())
        return ListedColumns(self.table.filter(pc.is_in(self.table["uri"], value_set=wanted)))


class ListedElsewhere(Sequence[SourceDocument]):
    """A listing of which only the number of documents is here, and of `orphans`: tasks have listed them."""

    def __init__(self, number: int, orphans: int = 0) -> None:
        self._number = number
        self.orphans = orphans

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, at: int) -> SourceDocument: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SourceDocument]: ...
    def __getitem__(self, at: int | slice) -> NoReturn:
        raise TypeError("these documents were listed in tasks")


class ChangesElsewhere(Sequence[DocumentChange]):
    """Changes that tasks have written, and read from there when they are asked for."""

    def cut(self, sizing: SliceSizing, *, priority: int) -> list[SlicePlan]:
        """Slices of these changes."""
        raise NotImplementedError

    def counts(self, name: str) -> Counter[str]:
        """The number of times that each value of a column is there; of the action."""
        raise NotImplementedError

    def names(self) -> Iterator[str]:
        """Names that tell these changes from others."""
        raise NotImplementedError


class ChangeColumns(Rows[DocumentChange]):
    """Changes in columns (those of `DocumentChange`). An id that is null is the one that the URI gives: the ids of a
    first build would take more than all else that is known of its documents. `order`: the places of the rows by bucket
    and id, if it is known.
    """

    def __init__(self, table: pa.Table, order: npt.NDArray[np.uint32] | None = None) -> None:
        super().__init__(table)
        self.order = order

    def _row(self, values: Sequence[Any]) -> DocumentChange:
        action, identity, uri, *rest = values
        return DocumentChange(Action(action), identity or document_id(canonical_uri(uri)), uri, *rest)

    def with_ids(self) -> pa.Table:
        """The columns, with each id in them."""
        from instep.document_state.identities import named

        at = self.table.schema.get_field_index("document_id")
        ids = self.table["document_id"]
        found = named(ids, self.table["uri"])
        return self.table if found is ids else self.table.set_column(at, self.table.schema.field(at), found)

    def counts(self, name: str) -> Counter[str]:
        """The number of times that each value of a column is there."""
        found: Any = self.table[name].value_counts()
        return Counter({each["values"]: each["counts"] for each in found.to_pylist()})

    def without(self, ids: Collection[str]) -> ChangeColumns:
        """Those of other documents."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table: Any = self.with_ids()
        these = pc.is_in(table["document_id"], value_set=pa.array(sorted(ids), table.schema.field("document_id").type))
        return ChangeColumns(table.filter(pc.invert(these)))

    def deletes(self) -> Any:
        """Flags of the documents that are deleted."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def of(actions: Any) -> Any:
            at = actions.dictionary.index(str(Action.DELETE)).as_py()
            return pc.equal(actions.indices, pa.scalar(at, actions.indices.type))

        return pa.chunked_array(list(map(of, self.table["action"].chunks)), pa.bool_())

    def sizes(self) -> list[int]:
        """For each the bytes of its document and one more; of one that is deleted, one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table: Any = self.table
        found: Any = pc.if_else(
            self.deletes(), pa.scalar(1, pa.int64()), pc.add(table["size"], pa.scalar(1, pa.int64()))
        )
        sizes: list[int] = found.to_pylist()
        return sizes

    def ending(self, suffix: str) -> int:
        """The number of documents that are not deleted and whose URI ends so, in letters of either case."""
        import pyarrow.compute as pc

        uris: Any = self.table["uri"].filter(pc.invert(self.deletes()))
        ends: Any = pc.match_substring_regex(uris, f"{re.escape(suffix)}$", ignore_case=True)
        return int(pc.sum(ends).as_py() or 0)

    def buffers(self, *names: str) -> Iterator[pa.Buffer]:
        """The content of these columns, in the same bytes however they came to be."""
        import pyarrow as pa

        some = self.table.select(names)
        plain = [(each.name, getattr(each.type, "value_type", each.type)) for each in some.schema]
        for start in range(0, len(self), _AT_ONCE):
            for batch in some.slice(start, _AT_ONCE).cast(pa.schema(plain)).combine_chunks().to_batches():
                yield batch.serialize()


def stream_of(changes: Sequence[DocumentChange]) -> bytes:
    """Changes in columns, as a compressed stream of Arrow. It is read once and soon: what is packed in a tenth of the
    time may be larger.
    """
    assert isinstance(changes, ChangeColumns), "a plan in columns"
    return stream_of_table(changes.with_ids(), compression="lz4")


def of_stream(data: bytes) -> ChangeColumns:
    """The changes of such a stream."""
    return ChangeColumns(table_of_stream(data))


def stream_of_table(table: pa.Table, *, compression: Literal["lz4", "zstd"] | None = "zstd") -> bytes:
    """A table as a stream of Arrow, compressed or not."""
    data: bytes = buffer_of_table(table, compression=compression).to_pybytes()
    return data


def buffer_of_table(table: pa.Table, *, compression: Literal["lz4", "zstd"] | None = None) -> pa.Buffer:
    """The same stream where Arrow has made it, without a copy."""
    import pyarrow as pa

    table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    # Most are small: threads would take longer to be asked than to do it.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def table_of_stream(data: bytes | memoryview) -> pa.Table:
    """The table of such a stream, whose memory it uses as far as that is not compressed."""
    import pyarrow as pa

    ipc: Any = pa.ipc
    options = ipc.IpcReadOptions(use_threads=False, ensure_alignment=ipc.Alignment.DataTypeSpecific)
    with ipc.open_stream(pa.py_buffer(data), options=options) as reader:
        found: pa.Table = reader.read_all()
        return found


def listed_columns(documents: Iterable[SourceDocument]) -> ListedColumns:
    """The same listing in columns; of a document that is in it twice, the first."""
    import pyarrow as pa

    once: dict[str, SourceDocument] = {}
    for each in documents:
        once.setdefault(each.uri, each)
    return ListedColumns(pa.Table.from_batches([listed_batch(once.values())]))


def listed_batch(documents: Collection[SourceDocument]) -> pa.RecordBatch:
    """Some documents of a listing in columns."""
    import pyarrow as pa

    schema = listed_schema()
    columns = zip(*documents, strict=True) if documents else ((),) * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def listed_schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"uri": pa.string(), "size": pa.int64(), "version": pa.string(), "locator": pa.string()}
    return pa.schema([pa.field(name, kinds[name], nullable=False) for name in SourceDocument._fields])
