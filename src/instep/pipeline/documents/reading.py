"""The first half of a wave: document changes → chunk rows, and one end row per document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from instep.arrow.hashes import hashes
from instep.arrow.values import column_type
from instep.domain.document_columns import CHUNK_FACTS
from instep.domain.identity import chunk_ids, with_facts
from instep.domain.manifest import UNREAD, Action, SourceDocument
from instep.domain.texts import cleaned, withheld
from instep.domain.waves import SKIPPED
from instep.errors import InstepError
from instep.pipeline.documents.chunk import Chunk, Chunker, Limits, Oversize
from instep.pipeline.documents.columns import ColumnReader, Values, facts_of
from instep.pipeline.documents.parse import FILE_PARSER, Parsed, ParseFailure, parse_text, titled
from instep.pipeline.documents.places import contexts, headings_at, lines_at, page_at
from instep.pipeline.documents.rows import CONTEXT, chunk_schema, embedded_texts, told_apart
from instep.sources.document_source import Answer, Content, DocumentSource, Row, TooLarge, Unread, Unreadable, Vanished

#: Rows and bytes of text in one batch, at most (a single row may be larger).
BATCH_ROWS = 16_000
BATCH_BYTES = 4 << 20
#: Documents are read until this many bytes are together; they are then cut at once, on all cores.
_GROUP_BYTES = 2 << 20
_GROUP_DOCUMENTS = 512
#: Changes that a source is asked for at once, if they come in smaller batches, and bytes of their documents: a table is
#: looked through each time, and what is found waits in a file.
_TOGETHER = 400_000
_TOGETHER_BYTES = 1 << 30
#: Of these, so many become Python objects at once.
_AT_ONCE = 2_000


class Parse(Protocol):
    """Turns bytes into text; raises `ParseFailure`."""

    def __call__(self, data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed: ...


class _Change(NamedTuple):
    """A row of `CHANGE_SCHEMA`."""

    slice_id: str
    action: str
    document_id: str
    uri: str
    size: int
    version: str
    bucket: int
    previous_hash: str
    locator: str


class _Document(NamedTuple):
    """The outcome of one document change, before its text is cut."""

    slice_id: str
    document_id: str
    uri: str
    version: str
    size: int
    bucket: int
    document_hash: str | None = None
    deleted: bool = False
    unchanged: bool = False
    vanished: bool = False
    stage: str | None = None
    reason: str | None = None
    parsed: Parsed | None = None
    modified: datetime | None = None
    values: Values = MappingProxyType({})
    row: Row | None = None


class _Place(NamedTuple):
    """The facts of a chunk (`CHUNK_FACTS`)."""

    page: int | None
    line: int | None
    headings: list[str] | None
    context: str


@dataclass(frozen=True)
class Reader:
    """Reads, parses and cuts. A document whose content is as recorded is left alone only if it is `as_recorded` in the
    index as well: into an idempotent target a try that was killed may have written another version, so there its rows
    are compared.
    """

    source: DocumentSource
    chunker: Chunker
    limits: Limits
    columns: ColumnReader = field(default_factory=lambda: ColumnReader(()))
    parse: Parse = FILE_PARSER.parse
    as_recorded: bool = True

    def rows(self, changes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `CHUNK_SCHEMA`, in the order of the changes."""
        for batch in together(changes):
            gone = _all_deleted(batch)
            yield from tombstones(batch, self.schema) if gone else self._cut(self._documents(batch))

    @property
    def schema(self) -> pa.Schema:
        """The schema of chunk rows: `CHUNK_SCHEMA` with the declared columns."""
        return chunk_schema(self.columns.fields, context=self.chunker.context)

    def rows_of(self, answered: Iterable[tuple[pa.RecordBatch, Iterable[Answer]]]) -> Iterator[pa.RecordBatch]:
        """Chunk rows of changes whose documents were read elsewhere."""
        return self._cut(
            self._read(change, answer)
            for batch, answers in answered
            for change, answer in zip(_changes(batch), answers, strict=True)
        )

    def _cut(self, documents: Iterable[_Document]) -> Iterator[pa.RecordBatch]:
        for group in _groups(documents):
            yield from bounded(self._batch(group))

    def _documents(self, batch: pa.RecordBatch) -> Iterator[_Document]:
        wanted = (
            SourceDocument(each.uri, each.size, each.version, each.locator)
            for each in _changes(batch)
            if each.action != Action.DELETE
        )
        answers = self.source.contents(wanted, max_bytes=self.limits.ceiling)
        for each in _changes(batch):
            if each.action == Action.DELETE:
                yield _document(each)._replace(deleted=True)
            else:
                yield self._read(each, next(answers))

    def _read(self, change: _Change, answer: Answer) -> _Document:
        document = _document(change)
        if isinstance(answer, Vanished):
            # Of what is not recorded no later run would delete what a try that was killed has written.
            new = change.action == Action.INSERT and not self.as_recorded
            return document._replace(vanished=True, deleted=new)
        if isinstance(answer, TooLarge):
            return self._oversize(document, "read", self.limits.bytes_text(answer.size))
        if isinstance(answer, Unread):
            # That says nothing of this version of it: the next run tries again.
            return _failed(document._replace(version=UNREAD), "read", str(answer))
        if isinstance(answer, Unreadable):
            return _failed(document, "read", str(answer))
        return self._parsed(document, answer, change.previous_hash)

    def _parsed(self, document: _Document, content: Content, previous_hash: str) -> _Document:
        source = self.columns.of_source(document.uri, content)
        row = content.fields if isinstance(content.fields, Row) else None
        found = with_facts(content.hash, "".join(facts_of(source.values, row)))
        document = document._replace(
            size=content.size,
            version=content.version,
            document_hash=found,
            modified=content.modified,
            values=source.values,
            row=row,
        )
        if self.as_recorded and found == previous_hash and source.wrong is None:
            return document._replace(unchanged=True)
        try:
            parsed = self._parse(content, document.uri)
        except ParseFailure as error:
            flaw = error.stage, self._withheld(error.reason) if error.quoting else error.reason
        except (ImportError, InstepError):
            raise
        except Exception as error:  # A parser can raise anything; that is the document's fault, not the wave's.
            flaw = "parse", self._withheld(f"{type(error).__name__}: {error}")
        else:
            front = self.columns.of_front_matter(parsed.front)
            document = document._replace(values=source.values | front.values)
            if (wrong := source.wrong or front.wrong) is None:
                return document._replace(parsed=parsed)
            flaw = "columns", wrong
        return _failed(document, *(flaw if source.wrong is None else ("columns", source.wrong)))

    def _withheld(self, reason: str) -> str:
        return withheld(reason) if self.columns.secret else reason

    def _parse(self, content: Content, uri: str) -> Parsed:
        if content.text:
            parsed = parse_text(content.data, uri, max_line_bytes=self.limits.max_line_bytes)
        else:
            most = self.limits.max_line_bytes
            parsed = self.parse(content.data, uri, max_line_bytes=most, max_bytes=self.limits.ceiling)
        return parsed if content.title is None else parsed._replace(title=titled(content.title) or parsed.title)

    def _batch(self, group: list[_Document]) -> pa.RecordBatch:
        cut = iter(self.chunker.cut([(each.parsed.kind, each.parsed.text) for each in group if each.parsed]))
        chunks: list[list[Chunk]] = []
        for place, each in enumerate(group):
            found = next(cut) if each.parsed else []
            if isinstance(found, ParseFailure):
                group[place], found = _failed(each, found.stage, self._withheld(found.reason)), []
            chunks.append(found)
        for place, found in enumerate(chunks):
            reason = self.limits.chunks_text(len(found))
            if reason is not None and self.limits.on_oversize is not Oversize.WARN:
                group[place] = self._oversize(group[place], "chunk", reason)
                chunks[place] = []
        places = self._places(group, chunks) if self.columns.of_chunks or self.chunker.context else []
        return _assemble(group, chunks, self.chunker, self.columns, places)

    def _places(self, group: list[_Document], chunks: list[list[Chunk]]) -> list[_Place]:
        """The place of each chunk in its document."""
        found: list[_Place] = []
        for document, cut in zip(group, chunks, strict=True):
            if not cut or document.parsed is None:
                continue
            parsed = document.parsed
            starts = [each.at for each in cut]
            headings = self.chunker.headings(parsed)
            pages = [page_at(parsed.pages, start) for start in starts]
            above = contexts(parsed.title, headings, starts)
            lines = lines_at(parsed.text, starts)
            found += map(_Place, pages, lines, headings_at(headings, starts), above)
        return found

    def _oversize(self, document: _Document, stage: str, reason: str) -> _Document:
        return _failed(document, SKIPPED if self.limits.on_oversize is Oversize.SKIP else stage, reason)


def _changes(batch: pa.RecordBatch) -> Iterator[_Change]:
    for start in range(0, batch.num_rows, _AT_ONCE):
        some = batch.slice(start, _AT_ONCE)
        yield from map(_Change._make, zip(*(column.to_pylist() for column in some.columns), strict=True))


def _all_deleted(batch: pa.RecordBatch) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.equal(batch["action"], pa.scalar(Action.DELETE.value))).as_py())


def tombstones(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """End rows of documents that go, of which nothing is read: made of whole columns."""
    told = {
        "slice_id": batch["slice_id"],
        "document_id": batch["document_id"],
        "source_uri": batch["uri"],
        "source_version": batch["version"],
        "source_size": batch["size"],
        "bucket": batch["bucket"],
    }
    flags = {"end_of_document": True, "deleted": True, "unchanged": False, "vanished": False}
    told |= {name: pa.repeat(pa.scalar(flag), batch.num_rows) for name, flag in flags.items()}
    columns = [told.get(each.name, pa.nulls(batch.num_rows, each.type)) for each in schema]
    yield from bounded(pa.RecordBatch.from_arrays(columns, schema=schema))


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Changes of several slices in one batch: some sources look for all of them at once."""
    import pyarrow.compute as pc

    waiting: list[pa.RecordBatch] = []
    held = size = 0
    for batch in batches:
        waiting.append(batch)
        held += batch.num_rows
        size += pc.sum(batch["size"], min_count=0).as_py() or 0
        if held >= _TOGETHER or size >= _TOGETHER_BYTES:
            yield _joined(waiting)
            waiting, held, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(each) for each in columns], schema=batches[0].schema)


def _groups(documents: Iterable[_Document]) -> Iterator[list[_Document]]:
    group: list[_Document] = []
    held = 0
    for document in documents:
        group.append(document)
        held += len(document.parsed.text) if document.parsed else 0
        if held >= _GROUP_BYTES or len(group) >= _GROUP_DOCUMENTS:
            yield group
            group, held = [], 0
    if group:
        yield group


def _document(change: _Change) -> _Document:
    return _Document(change.slice_id, change.document_id, change.uri, change.version, change.size, change.bucket)


def _failed(document: _Document, stage: str, reason: str) -> _Document:
    return document._replace(stage=stage, reason=cleaned(reason))


def _assemble(
    group: list[_Document], chunks: list[list[Chunk]], chunker: Chunker, declared: ColumnReader, places: list[_Place]
) -> pa.RecordBatch:
    """Build one batch of documents and what they were cut into."""
    import numpy as np

    counts = np.array([len(each) for each in chunks])
    starts = np.cumsum(counts) - counts
    texts = [chunk.text for each in chunks for chunk in each]
    text, flag = pa.string(), pa.bool_()
    documents: dict[str, Any] = {
        "slice_id": pa.array([each.slice_id for each in group], text),
        "document_id": pa.array([each.document_id for each in group], text),
        "document_hash": pa.array([each.document_hash for each in group], text),
        "source_uri": pa.array([each.uri for each in group], text),
        "source_version": pa.array([each.version for each in group], text),
        "source_size": pa.array([each.size for each in group], pa.int64()),
        "bucket": pa.array([each.bucket for each in group], pa.int32()),
        "deleted": pa.array([each.deleted for each in group], flag),
        "unchanged": pa.array([each.unchanged for each in group], flag),
        "vanished": pa.array([each.vanished for each in group], flag),
        "failure_stage": pa.array([each.stage for each in group], text),
        "failure_reason": pa.array([each.reason for each in group], text),
        "title": pa.array([each.parsed.title if each.parsed else None for each in group], text),
        "modified": pa.array([each.modified for each in group], pa.timestamp("us", "UTC")),
    }
    said = declared.arrays([(each.values, each.row) for each in group])
    documents |= {field.name: array for field, array in zip(declared.of_documents, said, strict=True)}
    of_chunks = {
        "chunk_index": pa.array((np.arange(counts.sum()) - np.repeat(starts, counts)).astype(np.int32)),
        "text": pa.array(texts, text),
    }
    if chunker.context:
        of_chunks[CONTEXT] = pa.array([each.context for each in places], text)
    cut = pa.RecordBatch.from_pydict(of_chunks)
    apart = hashes(told_apart(cut))
    of_chunks["chunk_hash"] = hashes(embedded_texts(cut)) if chunker.context else apart
    named, found = zip(group, starts.tolist(), (starts + counts).tolist(), strict=True), apart.to_pylist()
    of_chunks["chunk_id"] = pa.array(
        [id for each, start, end in named for id in chunk_ids(each.document_id, found[start:end])], text
    )
    for name, fact in declared.of_chunks.items():
        kind = column_type(CHUNK_FACTS[fact])
        of_chunks[name] = pa.array([getattr(each, fact) for each in places], kind)
    return interleaved(documents, of_chunks, counts, chunk_schema(declared.fields, context=chunker.context))


def interleaved(
    documents: Mapping[str, Any], chunks: Mapping[str, Any], counts: Any, schema: pa.Schema
) -> pa.RecordBatch:
    """One batch of documents and their chunks, of which each has so many: for each document its chunks, then its end
    row. Columns are gathered, not built by row.
    """
    import numpy as np

    of_document: Any = np.repeat(np.arange(len(counts)), counts + 1)
    end = np.zeros(len(of_document), bool)
    end[np.cumsum(counts + 1) - 1] = True
    # Where each row finds its chunk; end rows have none.
    of_chunk: Any = pa.array(np.cumsum(~end) - 1, mask=end)
    columns = {name: values.take(pa.array(of_document)) for name, values in documents.items()}
    columns |= {name: values.take(of_chunk) for name, values in chunks.items()}
    columns["end_of_document"] = pa.array(end)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most `BATCH_ROWS` rows and about `BATCH_BYTES` of text."""
    import numpy as np
    import pyarrow.compute as pc

    texts: Any = batch["text"]
    lengths: Any = pc.fill_null(pc.binary_length(texts), 0)
    sizes = np.cumsum(lengths.to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < batch.num_rows:
        before = sizes[start - 1] if start else 0
        stop = int(np.searchsorted(sizes, before + BATCH_BYTES, "right"))
        stop = min(max(stop, start + 1), start + BATCH_ROWS)
        yield batch.slice(start, stop - start)
        start = stop
