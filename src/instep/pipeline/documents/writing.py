"""The second half of a wave: chunk rows → what is missing is embedded, staged and accounted for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.hashes import hashes
from instep.arrow.values import column_type
from instep.arrow.words import runs_of
from instep.domain.column_values import WrongValue
from instep.domain.document_columns import DeclaredColumn, Origin
from instep.domain.texts import withheld
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.errors import InstepError
from instep.pipeline.documents.accounting import Effects, Ends, SliceTally, account
from instep.pipeline.documents.columns import ColumnReader, chunk_hashes, typed_rows
from instep.pipeline.documents.diff import chunk_difference, chunk_digests, document_digests, placed_rows, same_texts
from instep.pipeline.documents.narrowing import TOGETHER, narrow
from instep.pipeline.documents.rows import CHUNK_SCHEMA, CONTEXT, embedded_texts
from instep.pipeline.documents.words import searched_column
from instep.pipeline.outcomes import encode_outcome, outcome_batch
from instep.targets.document_target import (
    SEARCHED,
    ChunkChanges,
    ChunkWriter,
    existing_schema,
    retold_schema,
    row_schema,
)
from instep.targets.request_limits import portions

if TYPE_CHECKING:
    import numpy as np

    from instep.arrow.words import Parted
    from instep.pipeline.documents.vectors import Embedded, Vectoriser

    Array = np.ndarray[Any, np.dtype[Any]]

#: Documents are compared, embedded and staged in groups of about this many rows, and bytes of vectors; fewer with a
#: slow embedder. Some hundred calls are made for each group, whatever its size, and threads take turns between them.
GROUP_ROWS = 16_000
GROUP_BYTES = 24 << 20
FIRST_GROUP_ROWS, LEAST_GROUP_ROWS, GROUP_SECONDS = 500, 50, 1.0
#: The first group of an embedder that is known to be quick.
QUICK_FIRST_ROWS = 4_000


class IncompleteDocument(InstepError):
    """Rows of a document came without its end row: to go on could delete live chunks."""


class Stamp(NamedTuple):
    """The build that writes; it is stored in each row."""

    ref: str
    instance: str
    version: int


class Writer:
    """Stages the rows of one task, and keeps the outcome of each of its slices. Used once.

    `transformed`: the rows went through a user's function, so they are checked, and texts hashed again.
    `compressed`: its outcomes are.
    """

    def __init__(
        self,
        writer: ChunkWriter,
        vectors: Vectoriser,
        stamp: Stamp,
        *,
        transformed: bool = False,
        columns: Sequence[DeclaredColumn] = (),
        readers: DeclaredColumn | None = None,
        searched: Searched = SEARCHED_BY_DEFAULT,
        compressed: bool = True,
    ) -> None:
        self._writer = writer
        self._compressed = compressed
        self._readers = readers
        self._searched = searched
        self._declared = columns
        self._columns = [each.column for each in columns]
        self._vectors = vectors
        self._stamp = stamp
        self._transformed = transformed
        self._ended: str | None = None
        self._slices: dict[str, SliceTally] = {}

    def outcome(self, chunks: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """Stage everything; one row of `OUTCOME_SCHEMA`."""
        outcomes: list[bytes] = []
        staged = self._writer.stage(chain(self._changes(chunks), self._outcomes(outcomes)))
        return outcome_batch(staged, outcomes, self._vectors.bill)

    def _outcomes(self, found: list[bytes]) -> Iterator[ChunkChanges]:
        """No changes: when all are made, the outcomes, while a writer may still be busy with the last ones."""
        for name, done in self._slices.items():
            found.append(encode_outcome(done.outcome(name), compressed=self._compressed))
        yield from ()

    def _changes(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[ChunkChanges]:
        first = QUICK_FIRST_ROWS if self._vectors.quick else FIRST_GROUP_ROWS
        size = GroupSize(GROUP_BYTES // (4 * self._vectors.dimensions), first)
        for group in whole_documents(chunks, size):
            ends, effects, change = self._group(group)
            if change.rows.num_rows or change.stale.num_rows or change.retold:
                yield change
            # What was refused since is among the flaws.
            if self._readers is not None:
                nothing = ChunkChanges(change.rows.slice(0, 0), change.stale.slice(0, 0))
                for retold in self._narrowed(self._readers, group, ends, effects):
                    yield nothing._replace(retold=retold)
            size.learn(group.num_rows)
            account(self._slices, ends, effects)

    def _group(self, group: pa.Table) -> tuple[Ends, Effects, ChunkChanges]:
        """Compare some whole documents with what is stored of them, and embed what is missing."""
        import numpy as np

        end = _flags(group["end_of_document"])
        ends = Ends(group.filter(pa.array(end)))
        self._require_one_end(ends)
        owner = np.repeat(np.arange(len(ends)), np.diff(np.flatnonzero(end), prepend=-1) - 1)
        rows = _marked(group.filter(pa.array(~end)), ends.complete[owner])
        owner = owner[ends.complete[owner]]
        rows, flaws = _checked(rows, owner) if self._transformed else (rows, {})
        if self._transformed and self._declared:
            rows, wrong = typed_rows(rows, self._declared)
            hide = ColumnReader(self._declared, self._readers is not None).said
            _add_flaws(flaws, "transform", {row: hide(WrongValue(said)) for row, said in wrong.items()}, owner)
        of_texts = _column(rows, "chunk_hash")
        rows = _with_hashes(rows, chunk_hashes(rows, self._declared))
        existing, stored_owner = self._existing(ends)
        compared = ends.compared[stored_owner]
        kept = np.flatnonzero(ends.unchanged[stored_owner])
        stored = existing.filter(pa.array(compared))
        # A transform may have put its rows into an order of its own.
        rows = rows if self._transformed else placed_rows(rows, stored, owner)
        difference = chunk_difference(rows, stored)
        write, stale = difference.write, np.zeros(len(compared), bool)
        stale[compared] = difference.stale
        retold, replaced = same_texts(rows, stored, difference)
        replaced = np.flatnonzero(compared)[replaced]
        _leave_alone(flaws, owner, write, stored_owner, stale)

        _add_flaws(flaws, "write", self._writer.unfit(_marked(rows, write)), owner[write])
        _leave_alone(flaws, owner, write, stored_owner, stale)

        told_anew = np.zeros(len(write), bool)
        told_anew[retold] = True
        places = np.flatnonzero(write & ~told_anew)
        fresh, of_fresh = (rows, of_texts) if len(places) == len(write) else (rows.take(places), of_texts.take(places))
        embedded, runs = self._embedded(fresh, of_fresh)
        _add_flaws(flaws, "embed", {row: self._told(said) for row, said in embedded.flaws.items()}, owner[places])
        _leave_alone(flaws, owner, write, stored_owner, stale)
        good = write[places]

        def per_document(owners: Array) -> Array:
            return np.bincount(owners, minlength=len(ends))

        effects = Effects(
            wanted=per_document(owner),
            written=per_document(owner[write]),
            removed=per_document(stored_owner[stale]),
            embedded=per_document(owner[places[good & embedded.computed]]),
            stored=per_document(stored_owner),
            wanted_digest=document_digests(_chunk_digests(rows), owner, len(ends)),
            stored_digest=document_digests(_chunk_digests(existing.take(kept)), stored_owner[kept], len(ends)),
            flaws=flaws,
            left={},
        )

        def refuse(document_id: str, reason: str) -> None:
            flaws.setdefault(ends.place_of(document_id), ("write", self._told(reason)))

        every = good.all()
        vectors = embedded.vectors if every else embedded.vectors[good]
        staged = self._stamped(_marked(fresh, good), vectors, runs if every else None)
        left = write[retold]
        anew = self._retold(rows.take(retold[left]), existing["locator"].take(replaced[left]))
        stale[replaced] = False
        gone = ends.deleted.copy()
        gone[list(flaws)] = False
        removed = ends.ids_of(gone)
        return ends, effects, ChunkChanges(staged, existing.filter(pa.array(stale)), removed, refuse, anew)

    def _embedded(self, rows: pa.Table, hashes: Any) -> tuple[Embedded, Parted | None]:
        """The vectors of rows, and the runs of their texts, if both vectors and words are made of these."""
        texts = _flat(embedded_texts(rows))
        # What stands before a text is embedded with it, and searched by itself.
        shared = self._vectors.by_runs and CONTEXT not in rows.schema.names
        runs = runs_of(texts) if shared else None
        return self._vectors.of(texts, hashes, runs), runs

    def _told(self, reason: str) -> str:
        """A reason that a server said, which may quote the document."""
        return reason if self._readers is None else withheld(reason)

    def _narrowed(self, readers: DeclaredColumn, group: pa.Table, ends: Ends, effects: Effects) -> Iterator[pa.Table]:
        """Readers of what is indexed of documents that fail: see `narrowing`."""
        import numpy as np

        failed = np.flatnonzero(effects.failed(ends)).tolist()
        if not failed:
            return
        # Of most that fail nothing is there: many are asked for at once, and of few rows all columns.
        ids = {place: ends.id_of(place) for place in failed}
        there = set(self._writer.existing(list(ids.values()))["document_id"].to_pylist())
        named = _readers_named(readers, group)
        for some in portions([place for place in failed if ids[place] in there], TOGETHER):
            of_documents = {ids[place]: place for place in some}
            stored = self._writer.stored(list(of_documents), self._columns)
            found = narrow(stored, {each: named[at] for each, at in of_documents.items()}, readers.name, self._declared)
            effects.left.update({of_documents[each]: left for each, left in found.left.items()})
            # Their words stay: what stands before their texts is not stored.
            retold = self._retold(found.rows, _column(found.rows, "locator"), words=_column(found.rows, SEARCHED))
            if retold is not None:
                yield retold

    def _require_one_end(self, ends: Ends) -> None:
        """Rows that a transform multiplies stay together, and so do end rows: of two the second would seem to be that
        of a document without chunks.
        """
        twice = pc.any(pc.equal(ends.ids[1:], ends.ids[:-1]), min_count=0).as_py()
        if twice or ends.id_of(0) == self._ended:
            raise IncompleteDocument(
                "a document came with two end rows; a transform must not multiply the rows with end_of_document "
                "(a join with several matches does)"
            )
        self._ended = ends.id_of(-1)

    def _existing(self, ends: Ends) -> tuple[pa.Table, Array]:
        """Rows stored of these documents, and which document each is of."""
        import numpy as np

        asked = ends.ids_of(ends.compared | ends.unchanged)
        if not asked:
            return existing_schema().empty_table(), np.zeros(0, np.int64)
        existing = self._writer.existing(asked, {*ends.ids_of(ends.deleted)}).select(existing_schema().names)
        owner: Any = pc.index_in(_column(existing, "document_id"), value_set=ends.ids)
        return existing, owner.to_numpy(zero_copy_only=False).astype(np.int64)

    def _stamped(self, rows: pa.Table, vectors: Array, runs: Parted | None = None) -> pa.RecordBatch:
        dimensions = vectors.shape[1]
        flat = pa.array(vectors.reshape(-1))
        stamps = self._stamps(rows, searched_column(rows, self._searched, runs))
        made = {"vector": pa.FixedSizeListArray.from_arrays(flat, dimensions), **stamps}
        schema = row_schema(dimensions, self._columns)
        columns = [made[name] if name in made else _column(rows, name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _retold(self, rows: pa.Table, locators: Any, words: Any = None) -> pa.Table | None:
        if not rows.num_rows:
            return None
        words = searched_column(rows, self._searched) if words is None else words
        made = {"locator": locators, **self._stamps(rows, words)}
        schema = retold_schema(self._columns)
        columns = [made[name] if name in made else _column(rows, name) for name in schema.names]
        return pa.Table.from_arrays(columns, schema=schema)

    def _stamps(self, rows: pa.Table, words: Any) -> dict[str, Any]:
        return {
            SEARCHED: words,
            "_ref": pa.repeat(pa.scalar(self._stamp.ref), rows.num_rows),
            "_instance": pa.repeat(pa.scalar(self._stamp.instance), rows.num_rows),
            "_version": pa.repeat(pa.scalar(self._stamp.version, pa.int64()), rows.num_rows),
        }


class GroupSize:
    """The number of rows of the next group: what is done in about `GROUP_SECONDS`, at most `most`. Progress is told
    group by group.
    """

    def __init__(self, most: int = GROUP_ROWS, first: int = FIRST_GROUP_ROWS) -> None:
        self._most = min(GROUP_ROWS, most)
        self.rows = min(self._most, first)
        self._began = time.monotonic()

    def learn(self, rows: int) -> None:
        """A group of so many rows is done."""
        now = time.monotonic()
        wanted = round(rows * GROUP_SECONDS / max(now - self._began, 1e-3))
        self.rows = max(LEAST_GROUP_ROWS, min(self._most, wanted))
        self._began = now


def whole_documents(chunks: Iterable[pa.RecordBatch], size: GroupSize | None = None) -> Iterator[pa.Table]:
    """Batches regrouped into tables of about so many rows that hold whole documents only. A batch is not cut for
    less than half of a group: then all that follow would be copied, to put parts of two together.

    Raises `IncompleteDocument` when the rows end, or another document begins, before an end row.
    """
    import numpy as np

    size = size or GroupSize()
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in chunks:
        rest = batch
        while rest.num_rows:
            ends = np.flatnonzero(_flags(rest["end_of_document"])) + 1
            enough = ends[ends + held >= size.rows]
            if not len(enough):
                waiting.append(rest)
                held += rest.num_rows
                if 2 * held >= size.rows and len(ends) and ends[-1] == rest.num_rows:
                    yield _table(waiting)
                    waiting, held = [], 0
                break
            yield _table([*waiting, rest.slice(0, int(enough[0]))])
            waiting, held, rest = [], 0, rest.slice(int(enough[0]))
    if waiting:
        yield _table(waiting)


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches).combine_chunks()
    end, ids = _flags(table["end_of_document"]), _column(table, "document_id")
    # Each row that ends no document must be followed by one of the same document.
    followed: Any = pc.equal(ids[:-1], ids[1:])
    if not end[-1] or not (end[:-1] | _flags(followed)).all():
        raise IncompleteDocument(
            "rows of a document came without its end row; a transform must keep the rows with end_of_document"
        )
    return table


def _checked(rows: pa.Table, owner: Array) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Rows as a transform left them, with texts hashed again, and documents whose rows are no use."""
    flaws: dict[int, tuple[str, str]] = {}
    for name in ("chunk_id", "chunk_index", "text", "document_hash"):
        for row in _flags(rows[name].is_null()).nonzero()[0].tolist():
            flaws.setdefault(int(owner[row]), ("transform", f"the transform left {name} empty"))
    seen: set[str] = set()
    for row, identity in enumerate(map(str, rows["chunk_id"].to_pylist())):
        if identity in seen:
            flaws.setdefault(int(owner[row]), ("transform", "the transform gave one chunk_id to two rows"))
        seen.add(identity)
    return _with_hashes(rows, hashes(embedded_texts(rows))), flaws


def _with_hashes(rows: pa.Table, found: Any) -> pa.Table:
    place = rows.schema.get_field_index("chunk_hash")
    return rows.set_column(place, CHUNK_SCHEMA.field("chunk_hash"), found)


def _add_flaws(flaws: dict[int, tuple[str, str]], stage: str, found: Mapping[int, str], owner: Array) -> None:
    """The first flaw of a document counts."""
    for row, reason in found.items():
        flaws.setdefault(int(owner[row]), (stage, reason))


def _leave_alone(flaws: dict[int, Any], owner: Array, write: Array, stored_owner: Array, stale: Array) -> None:
    """Exclude failed documents: nothing of them is written or removed."""
    import numpy as np

    if flaws:
        failed = np.array(sorted(flaws))
        write[np.isin(owner, failed)] = False
        stale[np.isin(stored_owner, failed)] = False


def _chunk_digests(rows: pa.Table) -> Array:
    return chunk_digests(_column(rows, "chunk_id"), _column(rows, "chunk_hash"))


def _readers_named(readers: DeclaredColumn, group: pa.Table) -> list[list[str]]:
    """The readers that the source names of each document of a group, as its end row says them: what a transform adds to
    chunks is not told of a document that fails.
    """
    told = group.filter(group["end_of_document"])
    kind = column_type(readers.column.type)
    if readers.origin is Origin.TRANSFORM or readers.name not in told.schema.names:
        return [[] for _ in range(told.num_rows)]
    try:
        column: Any = told[readers.name].cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # A transform made something else of it.
        return [[] for _ in range(told.num_rows)]
    return [list(filter(None, some or ())) for some in column.to_pylist()]


def _marked(rows: pa.Table, mask: Array) -> pa.Table:
    """The rows that a mask marks: as a rule all of them."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def _flags(column: Any) -> Array:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    flags: Array = flat.to_numpy(zero_copy_only=False)
    return flags


def _column(table: pa.Table, name: str) -> Any:
    return table[name].combine_chunks()


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
