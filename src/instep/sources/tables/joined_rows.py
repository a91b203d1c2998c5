"""Rows that are part of documents: the versions that they give them, and a spool that puts them together.

In a listing such a row has, where others have a version, a text that tells it from other rows of its document
(`child_facts`). It begins with a NUL, which no version has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.hashes import hashes
from instep.domain.identity import content_hash
from instep.domain.rows import ChildColumns, DocumentColumns
from instep.sources.tables.row_documents import FoundRows
from instep.sources.tables.rows import RowSpool, portions, row_versions, said_schema

#: Between the text of a document and those of its rows.
BETWEEN: Final = b"\n\n"
#: The column of the bytes of a document, of which the text is null if they are too many.
SIZE: Final = "_size"
_MARK: Final = "\0"

_Places = npt.NDArray[np.int64]


def child_facts(name: str, orders: Sequence[pa.Array[Any]], versions: pa.Array[Any]) -> pa.Array[Any]:
    """A text of each row that differs when its version or its place among others does."""
    texts: list[Any] = [pa.scalar(""), pa.scalar(name), *map(row_versions, orders), versions, pa.scalar(_MARK)]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*texts)
    return joined


def are_facts(versions: Any) -> npt.NDArray[np.bool_]:
    """A mask of those that are of rows that are part of documents."""
    found: Any = pc.starts_with(versions, _MARK)
    return np.asarray(found.to_numpy(), bool)


def joined_versions(versions: Any, of: _Places, facts: Any) -> pa.Array[Any]:
    """The versions of documents with those of their rows: the row with `facts` is of the document at `of`. The order of
    rows is none of their concern.
    """
    rows = pa.table({"of": of, "fact": facts}).sort_by([("of", "ascending"), ("fact", "ascending")])
    numbers = rows["of"].to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    if not len(starts):
        return _whole(versions)  # type: ignore[no-any-return]  # of texts
    with_rows = pa.array(numbers[starts])
    several = _lists(rows["fact"].cast(pa.large_string()), np.append(starts, len(numbers)))
    told: Any = pc.binary_join(several, pa.scalar("\n", pa.large_string()))
    own: Any = _whole(versions).take(with_rows).cast(pa.large_string())
    whole: Any = pc.binary_join_element_wise(own, told, pa.scalar(_MARK, pa.large_string()))
    of_wholes = pa.array(map(content_hash, whole.cast(pa.large_binary()).to_pylist()), pa.string())
    mask = np.zeros(len(versions), bool)
    mask[numbers[starts]] = True
    replaced: pa.Array[Any] = pc.replace_with_mask(_whole(versions), pa.array(mask), of_wholes)
    return replaced


def _whole(values: Any) -> Any:
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values


def _lists(values: Any, edges: _Places) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), values)


class ChildSpool(RowSpool):
    """Rows on disk that are part of documents, with what puts them in order."""

    def __init__(self, entity: str, child: ChildColumns) -> None:
        super().__init__(entity, child.columns)
        self.child = child
        self._ranks: list[pa.Table] = []
        self._facts: list[Any] = []

    @property
    def keys(self) -> int:
        return self.child.keys

    def put(self, uris: pa.Array[Any], rows: pa.RecordBatch) -> pa.RecordBatch:
        said = super().put(uris, rows)
        orders = rows.columns[: len(self.child.columns.key) - self.child.keys]
        # Of rows that are at one place the text says which is first, wherever they come from.
        by_text = hashes(said["text"])
        names = [f"o{at}" for at in range(len(orders))]
        self._ranks.append(pa.table([*orders, said["version"], by_text], [*names, "version", "hash"]))
        self._facts.append(child_facts(self.child.name, orders, said["version"]))
        return said

    def of_documents(self, uris: Any, there: npt.NDArray[np.bool_]) -> tuple[_Places, _Places]:
        """The places of the rows of these documents, as far as they are there, in the order of documents and rows; and
        the document of each.
        """
        if not self._ranks or not len(there):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        of = np.asarray(pc.index_in(self.uris(), value_set=uris).fill_null(-1).to_numpy(), np.int64)
        mine = np.flatnonzero((of >= 0) & there[of])
        chosen: Any = pa.array(mine)
        ranks = pa.concat_tables(self._ranks).take(chosen).add_column(0, "of", pa.array(of[mine]))
        found: Any = pc.sort_indices(ranks, sort_keys=[(name, "ascending") for name in ranks.column_names])
        order = mine[found.to_numpy()]
        return order, of[order]

    def facts(self, places: _Places) -> Any:
        chosen: Any = pa.array(places)
        return pa.chunked_array(self._facts, pa.string()).take(chosen)


class JoinedSpool:
    """Documents on disk, with the rows of other tables that are part of them. Those of more than `most` bytes are not
    put together. Used once; gone when it is closed.
    """

    def __init__(self, entity: str, columns: DocumentColumns, children: Sequence[ChildColumns], most: int) -> None:
        self.parents = RowSpool(entity, columns)
        self.children = [ChildSpool(entity, each) for each in children]
        self._schema = joined_schema(columns)
        self._most = most

    @property
    def members(self) -> Sequence[RowSpool]:
        """The spool of the documents' own rows, and those of the others."""
        return [self.parents, *self.children]

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for each in self.members:
                opened.enter_context(each)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def found(self, uris: pa.ChunkedArray[Any]) -> Iterator[FoundRows]:
        """These documents, a few megabytes at once (`joined_schema`)."""
        places = self.parents.places(uris)
        held = self.parents.bytes_of(places)
        rows = [each.of_documents(uris, places >= 0) for each in self.children]
        for child, (order, of) in zip(self.children, rows, strict=True):
            sizes = child.bytes_of(order) + len(BETWEEN)
            held = held + np.bincount(of, sizes, len(places)).astype(np.int64)
        fits = held <= self._most
        for some in portions(np.where(fits, held, 0)):
            here = [_between(*each, some) for each in rows]
            yield FoundRows(some, places[some], self._together(places[some], held[some], fits[some], here))

    def _together(
        self, places: _Places, held: _Places, fits: npt.NDArray[np.bool_], rows: Sequence[tuple[_Places, _Places]]
    ) -> pa.RecordBatch:
        there = places >= 0
        number = np.cumsum(there) - 1
        said = self.parents.rows(places[there])
        held, fits = held[there], fits[there]
        texts: list[Any] = [said["text"].cast(pa.large_binary())]
        of = [np.arange(len(said))]
        facts, facts_of = [], []
        for child, (order, documents) in zip(self.children, rows, strict=True):
            mine = number[documents]
            facts.extend(child.facts(order).chunks)
            facts_of.append(mine)
            found = child.rows(order[fits[mine]])["text"].cast(pa.large_binary())
            filled = _filled(found)
            found, mine = found.filter(pa.array(filled)), mine[fits[mine]][filled]
            if child.child.heading is not None:
                headed = np.unique(mine)
                texts.append(pa.repeat(pa.scalar(child.child.heading.encode(), pa.large_binary()), len(headed)))
                of.append(headed)
            texts.append(found)
            of.append(mine)
        text = _joined(texts, of, len(said))
        sizes = np.where(fits, pc.binary_length(text).to_numpy(zero_copy_only=False), held).astype(np.int64)
        text = pc.if_else(pa.array(fits), text, pa.scalar(None, pa.binary()))
        versions = joined_versions(said["version"], np.concatenate(facts_of), pa.chunked_array(facts, pa.string()))
        columns = {**dict(zip(said.schema.names, said.columns, strict=True)), "version": versions, "text": text}
        columns[SIZE] = pa.array(sizes)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)


def joined_schema(columns: DocumentColumns) -> pa.Schema:
    """See `said_schema`; and the bytes of each document."""
    return said_schema(columns).append(pa.field(SIZE, pa.int64()))


def _between(order: _Places, of: _Places, some: slice) -> tuple[_Places, _Places]:
    first, after = np.searchsorted(of, [some.start, some.stop])
    return order[first:after], of[first:after] - some.start


def _filled(texts: Any) -> npt.NDArray[np.bool_]:
    lengths: Any = pc.fill_null(pc.binary_length(texts), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False) > 0, bool)


def _joined(texts: Sequence[Any], of: Sequence[_Places], documents: int) -> Any:
    """One text of each document: of its texts that are not empty, in their order."""
    every, numbers = pa.concat_arrays(texts), np.concatenate(of)
    filled = np.flatnonzero(_filled(every))
    order = filled[np.argsort(numbers[filled], kind="stable")]
    edges = np.searchsorted(numbers[order], np.arange(documents + 1))
    lists = _lists(every.take(pa.array(order)), edges)
    return pc.binary_join(lists, pa.scalar(BETWEEN, pa.large_binary())).cast(pa.binary())
