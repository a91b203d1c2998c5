"""Documents of a topic: each message says what became of one document, as a line of a feed does (`feed_lines`).

A look reads the messages that came since the offsets that are known, and remembers the newest of each document. Its
text goes with the plan, in the locator: tasks need no Kafka, and a job that is resumed does the same as was planned,
though messages were compacted or deleted since. A message that names no document is a document that cannot be read: a
failure, which names topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from instep.document_state.columns import ListedColumns, listed_schema
from instep.domain.manifest import SourceDocument
from instep.domain.texts import amount
from instep.domain.topic_offsets import Gap, Offsets
from instep.errors import UserError
from instep.sources.document_source import Answer, Content, Listing, Unreadable
from instep.sources.feed_lines import LineContent, LineFormat, Malformed, Place, Told
from instep.sources.local_files import check_size

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.sources.kafka import KafkaTopic, Message

#: Messages that one job of a refresh takes, about: they are in memory, and in its plan.
WINDOW: Final = 100_000
_PROGRESS_EVERY: Final = 10_000
_TEXT, _FLAW = "+", "!"
#: Stands for the version of a document, which is the place of its message.
_PLACED: Final = "placed"
#: How the URI of a message begins that names no document, not even by its key.
FLAWED: Final = "kafka:/"


class TopicRead(NamedTuple):
    """The documents of some messages, and the offsets behind these. `waiting` messages were there, up to the `end`, of
    which so many are `left`. `first`: the offsets of the first messages that are there. `behind`: there are newer ones.
    So many offsets are `empty`: their messages were compacted, or are marks of transactions.
    """

    listing: Listing
    offsets: Offsets
    end: Offsets
    first: Mapping[int, int]
    waiting: int
    left: int
    behind: bool = False
    empty: int = 0


@dataclass(frozen=True)
class TopicSource:
    """Implements `sources.document_source.DocumentSource`. `entity` goes into the URIs of documents that have an id
    only; a message of more than `max_line` bytes is not read. `fields` are those that columns are made of.
    """

    entity: str
    topic: KafkaTopic
    lines: LineFormat
    max_line: int
    fields: tuple[str, ...] = ()

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """All that the topic has. What it says nothing of is left as it is."""
        return self.read(None, progress=progress).listing

    def read(
        self,
        since: Offsets | None,
        *,
        most: int | None = None,
        until: Offsets | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> TopicRead:
        """The messages since these offsets (None: all that are there), or about so many of them, and none from `until`
        on. Raises `UserError` when some were deleted before they were read.
        """
        state = self.topic.state()
        if since is not None and state.end == since:
            return TopicRead(Listing([], [], exhaustive=False), since, since, state.first, 0, 0)
        if since is not None:
            self._demand_whole(since, state.end, state.first)
        start = state.end.begun(since, state.first)
        last = state.end if until is None else state.end.up_to(until, start)
        end = last if most is None else self.topic.within(start, last, most)
        newest = self._newest(start, end, progress)
        behind = state.end.waiting(end) > 0
        waiting, left, empty = last.waiting(start), last.waiting(end), end.waiting(start) - newest.seen
        if since is not None and newest.emptied is not None:
            # Of other partitions an earlier run may have read what came after that.
            newest = self._newest(self.topic.since(newest.emptied, start), end, progress)
        return TopicRead(newest.listing(), end, last, state.first, waiting, left, behind, empty)

    def _newest(self, start: Offsets, end: Offsets, progress: Callable[[int], None] | None) -> _Newest:
        newest = _Newest(self, progress)
        for message in self.topic.messages(start, end):
            newest.add(message)
        return newest

    def _demand_whole(self, since: Offsets, end: Offsets, first: Mapping[int, int]) -> None:
        hint = "Rebuild it from the messages that the topic has now: instep run --full-refresh"
        if since.topic != end.topic:
            raise UserError(
                "it is not the topic that was read before, but another of this name", where=self.topic.text, hint=hint
            )
        gaps = end.gaps(since, first)
        if gaps:
            raise UserError(
                f"messages were deleted before they were read: {_gaps_text(gaps)}",
                where=self.topic.text,
                hint=f"Its retention is shorter than the pause between two runs. {hint}",
            )

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        for document in documents:
            try:
                yield self._content(document, max_bytes)
            except Unreadable as answer:
                yield answer

    def texts(self, locators: Any) -> pa.RecordBatch | None:
        """The texts and titles that messages have, in columns; None if columns are declared, which are read one by one.
        Of those that cannot be read they are null.
        """
        import pyarrow as pa

        if self.fields:
            return None
        found: list[LineContent | None] = []
        mark = _TEXT.encode()
        for each in locators.cast(pa.binary()).to_pylist():
            try:
                found.append(self.lines.content(each[1:], ()) if each.startswith(mark) else None)
            except ValueError:
                found.append(None)
        texts = [None if each is None else each.text for each in found]
        titles = [None if each is None else each.title for each in found]
        columns = [pa.array(texts, pa.string()).cast(pa.binary()), pa.array(titles, pa.string()).cast(pa.binary())]
        return pa.RecordBatch.from_arrays(columns, ["text", "title"])

    def _content(self, document: SourceDocument, max_bytes: int) -> Content:
        mark, said = document.locator[:1], document.locator[1:]
        if mark != _TEXT:
            raise Unreadable(said or "its message is no longer available: instep run --full-refresh reads all again")
        check_size(document.size, max_bytes)
        try:
            found = self.lines.content(said.encode(), self.fields)
        except ValueError as error:
            raise Unreadable(f"{document.version}: {error}") from None
        fields = found.fields if self.fields else None
        return Content(found.text.encode(), document.size, document.version, found.title, text=True, fields=fields)


def _gaps_text(gaps: Iterable[Gap]) -> str:
    return ", ".join(f"offsets {each.first:,} to {each.last - 1:,} of partition {each.partition}" for each in gaps)


class _Last(msgspec.Struct, frozen=True, gc=False):
    """The newest message of a document; `size` is -1 if it deletes it. `locator`: see `TopicSource`. There may be
    millions, which the search for garbage passes over.
    """

    partition: int
    offset: int
    time: int
    size: int
    locator: str


class _Newest:
    """The newest message of each document. In a partition the order is that of the offsets; between partitions, as when
    some were added, that of the timestamps. What is not known to be older than an emptied table stays: of the same
    millisecond only places in the log of the database tell that.
    """

    def __init__(self, source: TopicSource, progress: Callable[[int], None] | None) -> None:
        self._source, self._progress = source, progress
        self._last: dict[str, _Last] = {}
        #: Messages that cannot be read, if nothing came after them, by what their keys name.
        self._wrong: dict[str, _Last] = {}
        #: When the table was last emptied, as each partition tells it: that may be read before what came earlier.
        self._emptied: dict[int, _Last] = {}
        self.seen = 0

    def add(self, message: Message) -> None:
        self.seen += 1
        if self._progress and self.seen % _PROGRESS_EVERY == 0:
            self._progress(len(self._last))
        try:
            told = self._told(message)
            if told is None:
                return
            if told.truncates:
                self._empty(message)
                return
            new = _new(told, message)
            if told.left is not None:
                self._put(told.left, msgspec.structs.replace(new, size=-1, locator=""))
            self._put(told.uri, new)
        except Malformed as error:
            self._put_wrong(*self._flaw(message, str(error)))

    def _put(self, uri: str, new: _Last) -> None:
        if _older(new, self._last.get(uri)) or (self._emptied and self._before_emptied(new)):
            return
        self._last[uri] = new
        # A wrong one that came after it stays, whichever of the two was read first.
        if self._wrong and not _older(new, self._wrong.get(uri)):
            self._wrong.pop(uri, None)

    def _put_wrong(self, uri: str, new: _Last) -> None:
        known = (self._last.get(uri), self._wrong.get(uri))
        if not any(_older(new, each) for each in known) and not self._before_emptied(new):
            self._wrong[uri] = new

    @property
    def emptied(self) -> int | None:
        """The moment when the table was last emptied."""
        return max((each.time for each in self._emptied.values()), default=None)

    def _before_emptied(self, new: _Last) -> bool:
        return any(self._precedes(new, each) for each in self._emptied.values())

    def _precedes(self, row: _Last, emptied: _Last) -> bool:
        if row.partition == emptied.partition:
            return row.offset < emptied.offset
        if row.time != emptied.time:
            return row.time < emptied.time
        of_row, of_emptied = self._place(row), self._place(emptied)
        return of_row is not None and of_emptied is not None and of_row < of_emptied

    def _place(self, last: _Last) -> Place | None:
        mark, said = last.locator[:1], last.locator[1:]
        return self._source.lines.place(said.encode()) if mark == _TEXT else None

    def _told(self, message: Message) -> Told | None:
        lines, entity, value = self._source.lines, self._source.entity, message.value
        if value is None:
            if message.key is None:
                raise Malformed("has neither key nor value")
            return Told(lines.keyed(message.key, entity), None)
        if len(value) > self._source.max_line:
            raise Malformed("is longer than a document may be")
        return lines.told(value, entity, _PLACED)

    def _empty(self, message: Message) -> None:
        said = (message.value or b"").decode(errors="replace")
        at = _Last(message.partition, message.offset, message.time, -1, f"{_TEXT}{said}")
        self._last, self._wrong = (
            {uri: each for uri, each in some.items() if not self._precedes(each, at)}
            for some in (self._last, self._wrong)
        )
        self._emptied[at.partition] = at

    def _flaw(self, message: Message, said: str) -> tuple[str, _Last]:
        """A failure of the document that the key names, so that its next message ends it; without a key, of none. See
        `listing` for one that has another message, too.
        """
        topic, place = self._source.topic.name, f"partition {message.partition}, offset {message.offset}"
        last = _Last(message.partition, message.offset, message.time, 1, f"{_FLAW}{topic}, {place}: {said}")
        if message.key is not None:
            with suppress(Malformed):
                return self._source.lines.keyed(message.key, self._source.entity), last
        return self._flawed(last), last

    def _flawed(self, last: _Last) -> str:
        """The URI of a message that names no document."""
        return f"{FLAWED}{self._source.topic.name}/{last.partition}/{last.offset}"

    def listing(self) -> Listing:
        """The documents. A message that cannot be read, and came after another one of its document, is a failure of its
        own.
        """
        import pyarrow as pa

        there = {uri: each for uri, each in self._last.items() if each.size >= 0}
        there |= {self._flawed(each) if uri in self._last else uri: each for uri, each in self._wrong.items()}
        deleted = [uri for uri, each in self._last.items() if each.size < 0]
        topic, found = self._source.topic.name, there.values()
        columns: list[Sequence[Any]] = [
            list(there),
            [each.size for each in found],
            [f"{topic}/{each.partition}/{each.offset}" for each in found],
            [each.locator for each in found],
        ]
        schema = listed_schema()
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        documents = ListedColumns(pa.Table.from_arrays(arrays, schema=schema))
        return Listing(documents, [], deleted, exhaustive=bool(self._emptied))


def _new(told: Told, message: Message) -> _Last:
    value = message.value or b""
    if told.version is None:
        return _Last(message.partition, message.offset, message.time, -1, "")
    try:
        return _Last(message.partition, message.offset, message.time, len(value), f"{_TEXT}{value.decode()}")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8") from None


def _older(new: _Last, known: _Last | None) -> bool:
    return known is not None and known.partition != new.partition and new.time < known.time


def waiting_text(read: TopicRead, topic: KafkaTopic) -> str:
    """`12 messages wait in topic orders`, for a plan."""
    left = f", of which {read.left:,} are left for later jobs" if read.left else ""
    waits = "waits" if read.waiting == 1 else "wait"
    return f"{amount(read.waiting, 'message')} {waits} in topic {topic.name}{left}"
