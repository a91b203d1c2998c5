"""The work of tasks that plan a corpus on Spark: list rows, compare a part of them, cut a bucket of the changes.

Parts are ranges of document ids (`document_state.corpus_parts`), so that what belongs to one part is found without the
others, and the changes of all parts, one part after the other, are in the order of their ids.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns, ListedColumns, stream_of
from instep.document_state.corpus_parts import bounds, parts_of
from instep.document_state.cuts import runs
from instep.document_state.difference import ENTRY, RECORDED, Record, difference
from instep.document_state.identities import heads_of
from instep.document_state.losses import failing, tally
from instep.document_state.pieces import Recorded, new_file, read_whole, write_whole
from instep.domain.manifest import Action, Difference
from instep.domain.planning import SliceSizing
from instep.domain.promotion_rules import Tally
from instep.sources.tables.row_documents import RowDocuments, named_schema

#: Rows of a part that were listed together, as a batch of `_ROWS`; none, so that a task comes to that part.
LISTED: Final = pa.schema(dict[str, pa.DataType](part=pa.int32(), rows=pa.binary()))
#: `head`: the beginning of the document's id, in whose order the rows are.
_ROWS: Final = named_schema().append(pa.field("head", pa.uint64()))
#: Rows that are told apart by part at once.
_TOGETHER: Final = 200_000
#: The numbers of a `Difference`.
SUMS: Final = ("unchanged", "known_failures", "recorded", "gone", "lost")
#: What was found in a part, and the file that has its changes.
FOUND: Final = pa.schema(
    dict.fromkeys(("part", "listed", *SUMS, *map(str, Action)), pa.int64())
    | dict.fromkeys(("file", "buckets"), pa.string())
)
#: The numbers of a part by which a build is judged.
TALLIED: Final = pa.schema(dict.fromkeys(Tally._fields, pa.int64()))
#: A slice, and its place in the file that has its changes.
CUT: Final = pa.schema(
    dict.fromkeys(("bucket", "units", "work", "at", "bytes"), pa.int64())
    | dict.fromkeys(("first", "digest", "file"), pa.string())
)
CHANGES: Final = ".changes"
PLAN: Final = ".plan"


@dataclass(frozen=True)
class Comparison:
    """Compares the rows of a table with what is recorded of its documents. Picklable: its methods run in tasks.

    `failed` has the failures of each part, as `difference` takes them.
    """

    source: RowDocuments
    recorded: Recorded | None
    failed: Mapping[int, Mapping[str, str]]
    parts: int
    buckets: int
    retry_failures: bool
    folder: Path

    def listed(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows as a table lists them become batches of `LISTED`: they cross the JVM packed, a part in one value."""
        for some in _together(map(self.source.named, rows)):
            heads = heads_of(some["uri"])
            order = np.argsort(heads, kind="stable")  # Of rows with one key the first one counts.
            heads = heads[order]
            ordered = some.take(_indices(order)).append_column("head", pa.array(heads))
            (whole,) = ordered.cast(_ROWS).combine_chunks().to_batches()
            parts = parts_of(heads, self.parts)
            edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
            packed = [whole.slice(start, stop - start).serialize().to_pybytes() for start, stop in pairwise(edges)]
            numbers: Any = pa.array(parts[edges[:-1]])
            yield pa.RecordBatch.from_arrays([numbers, pa.array(packed, pa.binary())], schema=LISTED)

    def compared(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare whole parts: batches of `LISTED` become one row of `FOUND` for each."""
        for part, rows in self._parts(batches):
            yield self._part(part, rows)

    def tallied(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count whole parts: batches of `LISTED` become one row of `TALLIED` for each."""
        for part, rows in self._parts(batches):
            listed = self._listed(rows).table
            known = failing(listed, self.failed.get(part, {}))
            counted = tally(self._record(part).columns, listed, known)._asdict()
            yield pa.RecordBatch.from_pylist([counted], TALLIED)

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        found: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for part, packed in zip(batch.column(0).to_numpy().tolist(), batch.column(1), strict=True):
                here = found.setdefault(part, [])
                if packed.is_valid:
                    here.append(pa.ipc.read_record_batch(packed.as_buffer(), _ROWS))
        for part in sorted(found):
            yield part, pa.Table.from_batches(found.pop(part), _ROWS)

    def _listed(self, rows: pa.Table) -> ListedColumns:
        return self.source.documents(_by_id(rows).select(named_schema().names).combine_chunks())

    def _part(self, part: int, rows: pa.Table) -> pa.RecordBatch:
        listed = self._listed(rows)
        found = difference(
            listed,
            self._record(part),
            self.failed.get(part, {}),
            complete=True,
            buckets=self.buckets,
            retry_failures=self.retry_failures,
        )
        file, buckets = self._written(found)
        assert isinstance(found.changes, ChangeColumns), "compared in columns"
        actions = found.changes.counts("action")
        values: list[Any] = [part, len(listed), *(getattr(found, name) for name in SUMS)]
        values += [*(actions[str(each)] for each in Action), file, buckets]
        return pa.RecordBatch.from_pylist([dict(zip(FOUND.names, values, strict=True))], FOUND)

    def _record(self, part: int) -> Record:
        if self.recorded is None:
            return Record.nothing()
        entries = self.recorded.between(*bounds(part, self.parts))

        def named(uris: pa.Array[Any]) -> pa.Table:
            return entries.filter(pc.is_in(entries["uri"], value_set=uris)).select(ENTRY)

        return Record(entries.select(RECORDED), named)

    def _written(self, found: Difference) -> tuple[str, str]:
        """The name of the file of a part's changes, by bucket and id, a batch for each bucket; and these buckets."""
        assert isinstance(found.changes, ChangeColumns), "compared in columns"
        table = found.changes.table
        if not table.num_rows:
            return "", ""
        table = table.sort_by([("bucket", "ascending"), ("document_id", "ascending")]).combine_chunks()
        numbers = table["bucket"].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        (whole,) = table.to_batches()
        batches = [whole.slice(start, stop - start) for start, stop in pairwise(starts)]
        name = write_whole(self.folder, CHANGES, *batches)
        return name, " ".join(str(numbers[start]) for start in starts[:-1])


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for each in batches:
        held.append(each)
        if sum(one.num_rows for one in held) >= _TOGETHER:
            yield pa.Table.from_batches(held)
            held = []
    if any(each.num_rows for each in held):
        yield pa.Table.from_batches(held)


def _by_id(rows: pa.Table) -> pa.Table:
    """In the order of ids, as records are: then most comparisons are of columns as a whole."""
    heads = rows["head"].to_numpy()
    order = np.argsort(heads)
    if np.any(heads[order[1:]] == heads[order[:-1]]):  # Rows with one key, as a rule. They have to lie together.
        return rows.sort_by([("head", "ascending"), ("uri", "ascending")])
    return rows.take(_indices(order))


def _indices(order: npt.NDArray[np.int64]) -> Any:
    return pa.array(order)


class PartFile(NamedTuple):
    """A file of changes of a part, and the bucket of each of its batches."""

    name: str
    buckets: Sequence[int]

    def read(self, folder: Path) -> pa.Table:
        return read_whole(folder, self.name, CHANGES).read_all()

    def bucket(self, folder: Path, bucket: int) -> pa.Table:
        """The changes of a bucket: of all readers of the file only `read` looks whether it is whole."""
        mapped = pa.memory_map(str(folder / f"{self.name}{CHANGES}"))
        return pa.Table.from_batches([pa.ipc.open_file(mapped).get_batch(self.buckets.index(bucket))])


@dataclass(frozen=True)
class Cutting:
    """Cuts the changes of buckets into slices of about `most` rows. Picklable: a task does a bucket."""

    files: Sequence[PartFile]
    sizing: SliceSizing
    most: int
    folder: Path

    def cut(self, bucket: int) -> pa.RecordBatch:
        """Write the slices of a bucket into a file; a row of `CUT` for each."""
        portions = (each.bucket(self.folder, bucket) for each in self.files if bucket in each.buckets)
        found: list[dict[str, Any]] = []
        whole, at = hashlib.blake2b(digest_size=16), 0
        with new_file(self.folder) as new:
            for changes, work in runs(portions, self.sizing, self.most):
                data = stream_of(changes)
                first = changes.table["document_id"][0].as_py()
                digest = hashlib.blake2b(data, digest_size=16).hexdigest()
                found.append({"bucket": bucket, "units": len(changes), "work": work, "at": at, "first": first})
                found[-1] |= {"bytes": len(data), "digest": digest}
                at += new.file.write(data)
                whole.update(data)
            new.name = f"{whole.hexdigest()}{PLAN}"
        return pa.RecordBatch.from_pylist([{**each, "file": new.name} for each in found], CUT)


def counts_of(found: pa.Table) -> Counter[str]:
    """The sums of what was found in all parts."""
    sums = {each.name: pc.sum(found[each.name]).as_py() or 0 for each in FOUND if pa.types.is_integer(each.type)}
    return Counter({name: int(value) for name, value in sums.items() if name != "part"})
