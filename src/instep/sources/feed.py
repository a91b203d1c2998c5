"""Documents of a change feed: files of JSON lines that only grow, with upserts and tombstones.

The last line of a document says what became of it; files are read in the order of their names. A document that no line
is of is left as it is. So a feed is listed by reading it, without its texts, and nothing is remembered of it. What a
line says is for its format to tell (`feed_lines`, `debezium`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from instep.document_state.columns import FEW, ListedColumns, listed_batch, listed_schema
from instep.domain.identity import file_uri
from instep.domain.manifest import SourceDocument
from instep.errors import UserError
from instep.sources.document_source import Answer, Content, Listing, Unreadable, Vanished
from instep.sources.feed_lines import JsonLines, LineFormat, Malformed, Told, unmarked, whole
from instep.sources.files import FilesSource
from instep.sources.local_files import check_size, reason
from instep.sources.url_files import base_uri, is_url

if TYPE_CHECKING:
    import pyarrow as pa

#: Of more lines that are malformed only the number is said.
_PROBLEMS = 20
_PROGRESS_EVERY = 10_000


class _Line(NamedTuple):
    number: int
    offset: int
    data: bytes
    #: Longer than is read; `data` is empty.
    too_long: bool = False


class _Place(NamedTuple):
    """The place of a line: the locator of a document's version."""

    number: int
    offset: int
    length: int
    file: str

    def __str__(self) -> str:
        return f"{self.number}:{self.offset}:{self.length}:{self.file}"

    @classmethod
    def of(cls, locator: str) -> _Place:
        number, offset, length, file = locator.split(":", 3)
        return cls(int(number), int(offset), int(length), file)

    @property
    def shown(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.number}"


@dataclass(frozen=True)
class FeedSource:
    """Implements `sources.document_source.DocumentSource`. `entity` goes into the URIs of documents that have an id
    only; a line of more than `max_line` bytes is not read. `fields` are those that columns are made of.
    """

    entity: str
    places: tuple[FilesSource, ...]
    max_line: int
    fields: tuple[str, ...] = ()
    lines: LineFormat = field(default_factory=JsonLines)

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Lines that name no document are problems. Each might have been the last of any document: so those that are
        deleted in a line before it are not deleted until it is mended.
        """
        state = _State(self.entity, self.lines, progress)
        for place, file in _files(self.places):
            try:
                with place.open(file) as stream:
                    for line in _lines(stream, self.max_line):
                        state.add(file, line)
            except (Vanished, Unreadable, OSError) as error:
                # Without it an older line would be taken for a document's last.
                said = reason(error) if isinstance(error, OSError) else str(error) or "it is gone"
                raise UserError(f"cannot be read: {said}", where=file) from None
        return state.listing()

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        for document in documents:
            try:
                yield self._content(document, _Place.of(document.locator), max_bytes)
            except (Vanished, Unreadable) as answer:
                yield answer

    def _content(self, document: SourceDocument, place: _Place, max_bytes: int) -> Content:
        check_size(place.length, max_bytes)
        line = unmarked(self._read(place))
        try:
            told = self.lines.told(line, self.entity)
        except Malformed:
            told = None
        if told is None or told.version is None or told.uri != document.uri:
            raise Vanished  # The file was rewritten since: the next listing says what became of it.
        try:
            found = self.lines.content(line, self.fields)
        except ValueError as error:
            raise Unreadable(f"{place.shown}: {error}") from None
        fields = found.fields if self.fields else None
        return Content(found.text.encode(), place.length, told.version, found.title, text=True, fields=fields)

    def _read(self, place: _Place) -> bytes:
        for files in self.places:
            if files.holds(place.file):
                return files.part(place.file, place.offset, place.length)
        raise Vanished  # The place it was found in is no longer part of the source.


def _files(places: Iterable[FilesSource]) -> list[tuple[FilesSource, str]]:
    """By their names."""
    found: dict[str, FilesSource] = {}
    for place in places:
        listed = place.list()
        if not listed.complete:
            raise UserError(f"the feed cannot be listed: {listed.problems[0]}")
        found |= {each.uri: place for each in listed.documents}
    return [(found[uri], uri) for uri in sorted(found, key=lambda uri: _order(found[uri], uri))]


def _order(place: FilesSource, uri: str) -> str:
    """Their names are those that they have on disk: some may be declared relative to the project, and others not."""
    path = place.path_of(uri)
    return uri if path is None else file_uri(path)


class _State:
    """The documents known after some lines."""

    def __init__(self, entity: str, lines: LineFormat, progress: Callable[[int], None] | None) -> None:
        self._entity = entity
        self._lines = lines
        self._exhaustive = False
        self._progress = progress
        #: Of each document its last line: what it puts, or (a number) which of all lines deletes it.
        self._last: dict[str, SourceDocument | int] = {}
        #: The same in columns, as far as there are more than a few; a later one counts.
        self._columns: list[pa.RecordBatch] = []
        self._seen = 0
        self._malformed = 0
        self._last_malformed = 0
        self.problems: list[str] = []

    def add(self, file: str, line: _Line) -> None:
        self._seen += 1
        try:
            told = self._told(line)
        except Malformed as error:
            self._report(f"{_Place(line.number, 0, 0, file).shown}: {error}")
            return
        if told is None:
            return
        if told.truncates:
            self._exhaustive = True
            self._last, self._columns = {}, []
            # Whatever malformed lines before it meant, it took that away.
            self.problems, self._malformed = [], 0
            return
        if told.left is not None:
            self._last[told.left] = self._seen
        self._last.pop(told.uri, None)
        self._last[told.uri] = self._seen if told.version is None else _put(told, file, line)
        if len(self._last) >= FEW:
            self._columns.append(_in_columns(self._last))
            self._last = {}
        if self._progress and self._seen % _PROGRESS_EVERY == 0:
            self._progress(len(self._last) + sum(each.num_rows for each in self._columns))

    def _told(self, line: _Line) -> Told | None:
        if line.too_long:
            raise Malformed("is longer than a document may be")
        return self._lines.told(line.data, self._entity)

    def _report(self, problem: str) -> None:
        self._malformed += 1
        self._last_malformed = self._seen
        if self._malformed <= _PROBLEMS:
            self.problems.append(problem)

    def listing(self) -> Listing:
        documents: Sequence[SourceDocument]
        if self._columns:
            documents, deleted = _last_of([*self._columns, _in_columns(self._last)], self._last_malformed)
        else:
            documents = [each for each in self._last.values() if not isinstance(each, int)]
            deleted = [uri for uri, line in self._last.items() if isinstance(line, int) and line > self._last_malformed]
        if self._malformed > _PROBLEMS:
            self.problems.append(f"and {self._malformed - _PROBLEMS:,} more lines")
        if self._progress:
            self._progress(len(documents))
        return Listing(documents, self.problems, deleted, exhaustive=self._exhaustive)


def _in_columns(last: Mapping[str, SourceDocument | int]) -> pa.RecordBatch:
    """The last rows as columns: those that put documents, and the lines that delete them, or 0."""
    import pyarrow as pa

    puts = [SourceDocument(uri, 0, "") if isinstance(each, int) else each for uri, each in last.items()]
    lines = [each if isinstance(each, int) else 0 for each in last.values()]
    listed = listed_batch(puts)
    return pa.RecordBatch.from_arrays([*listed.columns, pa.array(lines, pa.int64())], [*listed.schema.names, "deleted"])


def _last_of(batches: Sequence[pa.RecordBatch], last_malformed: int) -> tuple[ListedColumns, list[str]]:
    """The last row of each document: those that are put, and the URIs of those that are deleted after a line."""
    import numpy as np
    import pyarrow as pa

    rows: Any = pa.Table.from_batches(batches)
    codes = rows["uri"].combine_chunks().dictionary_encode().indices.to_numpy()
    last = np.zeros(codes.max() + 1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    rows = rows.take(pa.array(np.sort(last)))
    lines = rows["deleted"].to_numpy()
    put = ListedColumns(rows.filter(pa.array(lines == 0)).drop_columns("deleted").cast(listed_schema()))
    return put, rows["uri"].filter(pa.array(lines > last_malformed)).to_pylist()


def _put(told: Told, file: str, line: _Line) -> SourceDocument:
    place = _Place(line.number, line.offset, len(line.data), file)
    return SourceDocument(told.uri, len(line.data), told.version or "", str(place))


def _lines(stream: IO[bytes], most: int) -> Iterator[_Line]:
    """Lines that are not empty. A last one that does not end is left for the next time if it is not whole: a writer is
    writing it.
    """
    number = offset = 0
    while data := stream.readline(most + 1):
        number += 1
        start, offset = offset, offset + len(data)
        mark = len(data) - len(data := unmarked(data))
        if data.endswith(b"\n"):
            data = data.removesuffix(b"\n").removesuffix(b"\r")
        elif len(data) > most:
            offset += _rest_of_line(stream, most)
            yield _Line(number, start, b"", too_long=True)
            continue
        elif not whole(data):
            return
        if data.strip():
            yield _Line(number, start + mark, data)


def _rest_of_line(stream: IO[bytes], most: int) -> int:
    passed = 0
    while data := stream.readline(min(most, 1 << 20)):
        passed += len(data)
        if data.endswith(b"\n"):
            break
    return passed


def feed_source(
    entity: str,
    paths: Iterable[str],
    storage_options: Mapping[str, Any],
    *,
    max_line: int,
    project: str | None = None,
    fields: Sequence[str] = (),
    lines: LineFormat | None = None,
) -> FeedSource:
    """`paths` are files, folders (all `.jsonl` and `.ndjson` below them), or globs; relative ones in `project`."""
    places = tuple(FilesSource((root,), include, (), storage_options, project) for root, include in map(_place, paths))
    return FeedSource(entity, places, max_line, tuple(fields), lines or JsonLines())


def places_of(paths: Iterable[str]) -> list[list[str]]:
    """The locations that paths name, in order and without secrets."""
    placed = map(_place, paths)
    return sorted([base_uri(root) if is_url(root) else root, *include] for root, include in placed)


def _place(path: str) -> tuple[str, tuple[str, ...]]:
    """A path as a root and globs below it."""
    names, marks = path.split("/"), "*[" if is_url(path) else "*[?"
    first = next((at for at, name in enumerate(names) if not set(marks).isdisjoint(name)), None)
    if first is None:
        return path, ("*.jsonl", "*.ndjson")
    return "/".join(names[:first]) or ("/" if path.startswith("/") else "."), ("/" + "/".join(names[first:]),)
