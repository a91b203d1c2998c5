"""The first half of a wave of rows of a table, or of messages of a topic: what is one chunk as it is is read in whole
columns.

All others are read one by one (`reading.Reader`), with the same outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.hashes import hashes, hashes_of_parts
from instep.domain.document_columns import Origin
from instep.domain.manifest import Action
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.parse import TITLE, titled
from instep.pipeline.documents.reading import Reader, bounded, interleaved, together, tombstones
from instep.sources.tables.row_documents import sound
from instep.sources.tables.rows import FACTS, WRONG, content_versions

if TYPE_CHECKING:
    from instep.sources.tables.row_documents import FoundRows, RowDocuments
    from instep.sources.topic import TopicSource

    Array = np.ndarray[Any, np.dtype[Any]]

#: White space as Python has it, and as the splitter has it, which leaves it out at both ends of a chunk.
_SPACES: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
_TRIMMED: Final = "".join(each for each in _SPACES if not "\x1c" <= each <= "\x1f")
_SPACE: Final = "".join(rf"\x{{{ord(each):x}}}" for each in _SPACES)
#: A title that is not stored as it is: `parse.titled` changes it.
_UNTIDY: Final = rf"\A \z|\A | \z|  |[{_SPACE.replace(chr(92) + 'x{20}', '')}]"
#: The name of a document that is Markdown, or may be when its escapes are resolved.
_MARKDOWN: Final = r"(?i)\.(md|markdown|mdown|mkd|mdx)$|%[^/]*$"
#: Messages that are Python objects at once.
_MESSAGES: Final = 2_000
_BOM: Final = "\N{ZERO WIDTH NO-BREAK SPACE}"


def _has_byte(texts: Any, sign: str) -> bool:
    """Whether a byte is in one of them, or near it: quick to see, and mostly there is none."""
    data = texts.buffers()[2]
    return data is not None and bool((np.frombuffer(data, np.uint8) == ord(sign)).any())


def _unless_trimmed(known: Any, before: Any, texts: Any) -> Any:
    """The hashes of texts: of those that are as they were before, these are known."""
    trimmed: Any = pc.less(pc.binary_length(texts), pc.binary_length(before)).fill_null(False)
    return pc.replace_with_mask(known, trimmed, hashes(texts.filter(trimmed)))


@dataclass(frozen=True)
class PlainReader:
    """Reads documents that a source has in columns as `reader` reads documents. `titled`: it gives them titles, too."""

    reader: Reader

    @property
    def titled(self) -> bool:
        raise NotImplementedError

    def _looked_up(self, changes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Changes of documents that are to be read."""
        raise NotImplementedError

    def rows(self, changes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `CHUNK_SCHEMA`: documents that go first, then the others about in the order of the changes."""
        for batch in together(changes):
            gone: Any = pc.equal(batch["action"], pa.scalar(Action.DELETE.value))
            if pc.any(gone, min_count=0).as_py():
                yield from tombstones(batch.filter(gone), self.reader.schema)
                batch = batch.filter(pc.invert(gone))  # noqa: PLW2901
            yield from self._looked_up(batch)

    @cached_property
    def _simple(self) -> bool:
        """Whether any row may be one chunk as it is: that is for this chunker to say, and columns are the row's."""
        reader = self.reader
        of_rows = all(each.origin in (Origin.SOURCE, Origin.TRANSFORM) for each in reader.columns.declared)
        chunker = reader.chunker
        plain = type(chunker) is Chunker and not chunker.context and chunker.tokens is None
        return plain and of_rows and reader.limits.chunks_text(1) is None

    def _plain(self, changes: pa.RecordBatch, said: pa.RecordBatch) -> pa.BooleanArray | None:
        """A mask of the rows that are sound, and of which the text is one chunk as it is."""
        if not self._simple or not changes.num_rows:
            return None
        reader = self.reader
        assert isinstance(reader.chunker, Chunker)
        try:
            texts: Any = said["text"].fill_null(b"").cast(pa.string())
            said["title"].cast(pa.string())
        except pa.ArrowInvalid:  # Not UTF-8: which of them, is found one by one.
            return None
        most = min(reader.limits.ceiling, reader.limits.max_line_bytes)
        chunks: Any = pc.utf8_trim(texts, _TRIMMED)
        lengths: Any = pc.utf8_length(chunks)
        odd = [
            pc.greater(pc.binary_length(texts), pa.scalar(most)),
            pc.equal(lengths, pa.scalar(0)),
            pc.greater(lengths, pa.scalar(reader.chunker.size)),
            *(pc.match_substring(texts, each) for each in ("\0", "\r") if _has_byte(texts, each)),
            pc.starts_with(texts, _BOM),
            pc.less(pc.binary_length(pc.utf8_trim(chunks, _SPACES)), pc.binary_length(chunks)),
            pc.match_substring_regex(changes["uri"], _MARKDOWN),
        ]
        if WRONG in said.schema.names:
            odd.append(pc.not_equal(said[WRONG], pa.scalar("")))
        any_odd = odd[0]
        for each in odd[1:]:
            any_odd = pc.or_(any_odd, each)
        plain: pa.BooleanArray = pc.invert(any_odd)
        return plain

    def _whole(self, changes: pa.RecordBatch, said: pa.RecordBatch, sizes: Any = None) -> pa.RecordBatch:
        """Chunk rows of plain rows. `sizes`: those of their documents, if they are not those of their texts."""
        reader = self.reader
        stored: Any = said["text"]
        of_documents: Any = self._hashes(said)
        recorded: Any = changes["previous_hash"] if reader.as_recorded else pa.scalar("")
        unchanged: Any = pc.equal(of_documents, recorded)
        changed: Any = pc.invert(unchanged)
        fresh = np.flatnonzero(changed.to_numpy(zero_copy_only=False))
        counts = np.zeros(changes.num_rows, np.int64)
        counts[fresh] = 1
        rows, nothing = changes.num_rows, pa.nulls(changes.num_rows, pa.string())
        no = pa.repeat(False, rows)
        at: Any = pa.array(fresh)
        sizes = pc.binary_length(stored) if sizes is None else sizes
        # As a rule all are, and no text is copied.
        new = stored if len(fresh) == rows else stored.take(at)
        texts: Any = pc.utf8_trim(new.cast(pa.string()), _TRIMMED)
        documents: dict[str, Any] = {
            "slice_id": changes["slice_id"],
            "document_id": changes["document_id"],
            "document_hash": of_documents,
            "source_uri": changes["uri"],
            "source_version": said["version"],
            "source_size": sizes.cast(pa.int64()),
            "bucket": changes["bucket"],
            "deleted": no,
            "unchanged": unchanged,
            "vanished": no,
            "failure_stage": nothing,
            "failure_reason": nothing,
            "title": pc.if_else(changed, self._titles(changes, said), pa.scalar(None, pa.string())),
            "modified": pa.nulls(rows, pa.timestamp("us", "UTC")),
            **{each.name: said[each.name] for each in reader.columns.fields},
        }
        # As a rule a text is all that a row says, and has no space at its ends: then its hash is known.
        alone = not self.titled and FACTS not in said.schema.names
        of_texts = _unless_trimmed(of_documents.take(at), new, texts) if alone else hashes(texts)
        chunks = {
            "chunk_index": pa.array(np.zeros(len(fresh), np.int32)),
            "chunk_id": hashes_of_parts(documents["document_id"].take(at), of_texts, "0", between="|"),
            "chunk_hash": of_texts,
            "text": texts,
        }
        return interleaved(documents, chunks, counts, reader.schema)

    def _hashes(self, said: pa.RecordBatch) -> Any:
        """Hashes of documents as `Content.hash` has them, with what the source says beside title and text
        (`identity.with_facts`).
        """
        facts = said[FACTS] if FACTS in said.schema.names else None
        return content_versions(said["title"] if self.titled else None, said["text"], facts)

    def _titles(self, changes: pa.RecordBatch, said: pa.RecordBatch) -> pa.Array[Any]:
        """The titles that the source gives, or else the names of the documents."""
        names: Any = pc.replace_substring_regex(changes["uri"], "^.*/", "")
        names = pc.utf8_slice_codeunits(names, 0, TITLE)
        if not self.titled:
            return names  # type: ignore[no-any-return]  # of texts
        given: Any = said["title"].fill_null(b"").cast(pa.string())
        untidy: Any = pc.or_(
            pc.match_substring_regex(given, _UNTIDY), pc.greater(pc.utf8_length(given), pa.scalar(TITLE))
        )
        untidy = pc.or_(untidy, pc.match_substring(given, "\0"))
        if pc.any(untidy, min_count=0).as_py():
            tidied = pa.array([titled(each) for each in given.filter(untidy).to_pylist()], pa.string())
            given = pc.replace_with_mask(given, untidy, tidied)
        return pc.if_else(pc.equal(given, pa.scalar("")), names, given)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RowReader(PlainReader):
    """Reads rows of a table as `reader` reads documents."""

    source: RowDocuments

    @property
    def titled(self) -> bool:
        return bool(self.source.columns.title)

    def rows_of(self, answered: Iterable[tuple[pa.RecordBatch, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Chunk rows of changes with their rows (`said_schema`), which were read elsewhere."""
        for changes, said in answered:
            yield from self._of_rows(changes, said)

    def _looked_up(self, changes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Changes of documents that are to be read."""
        if not changes.num_rows:
            return
        uris, flaws = (pa.chunked_array([changes[name]]) for name in ("uri", "locator"))
        yield from self.rows_found(changes, self.source.looked_up(uris, flaws))

    def rows_found(self, changes: pa.RecordBatch, rows: Iterable[FoundRows]) -> Iterator[pa.RecordBatch]:
        """Chunk rows of changes whose rows were found."""
        for found in rows:
            some = changes.slice(found.at.start, found.at.stop - found.at.start)
            there: Any = pc.and_(pa.array(found.places >= 0), sound(some["locator"]))
            if there.true_count == len(there):
                yield from self._of_rows(some, found.rows)
                continue
            yield from self._of_rows(some.filter(there), found.rows.filter(there.filter(pa.array(found.places >= 0))))
            rest = some.filter(pc.invert(there))
            if rest.num_rows:
                places = found.places[np.flatnonzero(~there.to_numpy(zero_copy_only=False))]
                answers = self.source.absent(places, rest["locator"].to_pylist())
                yield from self.reader.rows_of([(rest, answers)])

    def _of_rows(self, changes: pa.RecordBatch, said: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        plain = self._plain(changes, said)
        if plain is not None and (number := plain.true_count):
            every = number == len(plain)
            one, of_it = (changes, said) if every else (changes.filter(plain), said.filter(plain))
            yield from bounded(self._whole(one, of_it))
            if every:
                return
            changes, said = (each.filter(pc.invert(plain)) for each in (changes, said))
        if changes.num_rows:
            answers = self.source.contents_of(said, max_bytes=self.reader.limits.ceiling)
            yield from self.reader.rows_of([(changes, answers)])


@dataclass(frozen=True)
class TopicReader(PlainReader):
    """Reads messages of a topic."""

    source: TopicSource

    @property
    def titled(self) -> bool:
        return True

    def _looked_up(self, changes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for start in range(0, changes.num_rows, _MESSAGES):
            some = changes.slice(start, _MESSAGES)
            said = self.source.texts(some["locator"]) if self._simple else None
            plain = None if said is None else self._plain_messages(some, said)
            if said is None or plain is None:
                yield from self.reader.rows([some])
                continue
            told = said.append_column("version", some["version"])
            if plain.true_count == len(plain):
                yield from bounded(self._whole(some, told, some["size"]))
                continue
            if plain.true_count:
                yield from bounded(self._whole(some.filter(plain), told.filter(plain), some["size"].filter(plain)))
            yield from self.reader.rows([some.filter(pc.invert(plain))])

    def _plain_messages(self, changes: pa.RecordBatch, said: pa.RecordBatch) -> pa.BooleanArray | None:
        plain: Any = self._plain(changes, said)
        if plain is None:
            return None
        short = pc.less_equal(changes["size"], pa.scalar(self.reader.limits.ceiling))
        sound: Any = pc.and_(said["text"].is_valid(), short)
        return pc.and_(plain, sound)  # type: ignore[no-any-return]  # flags
