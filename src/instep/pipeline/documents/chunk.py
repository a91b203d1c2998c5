"""Limits of a document, and cutting it into chunks along its structure: headings, paragraphs, rows, definitions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from itertools import chain
from typing import Any, Final, NamedTuple

from instep.domain.fingerprint import digest
from instep.pipeline.documents.parse import Parsed, ParseFailure
from instep.pipeline.documents.places import Heading, markdown_headings
from instep.pipeline.documents.syntax import GRAMMARS, Syntax
from instep.pipeline.documents.table_rows import Table, csv_table, markdown_tables
from instep.pipeline.documents.tokens import CHARACTERS, Tokens

#: Where documents over the limit are indexed all the same, none of more than so many times the limit is read: they are
#: held in memory whole.
MOST_TIMES: Final = 4


class Oversize(StrEnum):
    """The treatment of a document over a limit. `FAIL` and `SKIP` leave alone what is indexed of it."""

    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Limits:
    """A document over a limit does not touch its neighbours. A line that is too long is a failure in any case."""

    max_document_bytes: int = 256_000_000
    max_line_bytes: int = 1_000_000
    max_chunks: int | None = None
    on_oversize: Oversize = Oversize.FAIL

    @property
    def ceiling(self) -> int:
        """Bytes of the largest document that is read."""
        return self.max_document_bytes * (MOST_TIMES if self.on_oversize is Oversize.WARN else 1)

    def bytes_text(self, size: int) -> str:
        """The reason why a document of so many bytes is not read."""
        if self.on_oversize is Oversize.WARN:
            return f"too large: {size:,} bytes; not even with a warning are more than {self.ceiling:,} read"
        return f"too large: {size:,} bytes; max_document_bytes is {self.max_document_bytes:,}"

    def chunks_text(self, chunks: int) -> str | None:
        """The reason why a document of so many chunks is too large, or None."""
        if self.max_chunks is None or chunks <= self.max_chunks:
            return None
        return f"too large: {chunks:,} chunks; max_chunks is {self.max_chunks:,}"


DEFAULT_LIMITS: Final = Limits()


#: Raised whenever the rules below would cut any text differently.
RULES = "rows-1"
#: Raised whenever a chunk's context would be another one.
CONTEXT_RULES = "headings-1"
#: The splitter's time grows with the square of a block's length (100 MB of plain lines would take
#: hours), so longer texts are first cut into pieces of at most this many characters.
PIECE = 65_536
#: Within a line it is slower still: a line longer than this many chunks becomes pieces of its own.
CHUNKS_IN_LINE = 10
#: Texts of more than so many characters a token are taken for too long without being looked at.
LONG_TOKEN = 16
#: Where to cut into pieces, best first: after the first character of the mark.
_CUTS = ("\n# ", "\n## ", "\n\n", "\n")
_LINE_CUTS = (" ",)


class Chunk(NamedTuple):
    """A chunk of a text, and where it begins there, if that is known; of rows below a header that is repeated, where
    they do.
    """

    text: str
    at: int | None


class _Way(NamedTuple):
    """The splitter that cuts a piece: that of a kind (`text`, `markdown`, a language), and its sizes."""

    kind: str
    size: int
    overlap: int


class _Piece(NamedTuple):
    """A part of a text that is cut for itself; `header` is put before each of its chunks."""

    way: _Way
    text: str
    at: int
    header: str = ""


@dataclass(frozen=True)
class Chunker:
    """Chunks of at most `size` characters, each repeating up to `overlap` of the one before.

    White space around chunks is trimmed; a text of white space only has none. No overlap reaches
    over the edge of a piece (`PIECE` characters). `context`: title and headings are embedded and searched with them.
    With `tokens`, size and overlap are in tokens. With `syntax`, code is cut by it.
    """

    size: int = 800
    overlap: int = 0
    context: bool = False
    tokens: Tokens | None = None
    syntax: Syntax | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.size:
            raise ValueError("overlap must be at least 0 and less than size")

    @property
    def fingerprint(self) -> str:
        return digest([self.rules, CONTEXT_RULES]) if self.context else self.rules

    @property
    def rules(self) -> str:
        """The fingerprint of how texts are cut."""
        parts = [each.fingerprint for each in (self.tokens, self.syntax) if each is not None]
        made = _fingerprint(self.size, self.overlap)
        return digest([made, *parts]) if parts else made

    @property
    def characters(self) -> int:
        """The characters of a chunk that are of it alone, about."""
        return (self.size - self.overlap) * self._letters

    @property
    def _letters(self) -> int:
        """Characters in what sizes are in, about."""
        return CHARACTERS if self.tokens else 1

    def headings(self, parsed: Parsed) -> Sequence[Heading]:
        """The headings of a document, each where it begins; of code, by its syntax, names of what is defined."""
        if parsed.kind == "markdown":
            return list(markdown_headings(parsed.text))
        if self.syntax is not None and parsed.kind in GRAMMARS:
            return list(self.syntax.definitions(parsed.kind, parsed.text))
        return ()

    def cut(self, texts: Sequence[tuple[str, str]]) -> Sequence[list[Chunk] | ParseFailure]:
        """Chunks of each (kind, text), in order, or why there are none; all of one kind are cut at once, on all
        cores.
        """
        parts = [list(self._parts(kind, text)) for kind, text in texts]
        waiting: dict[_Way, list[str]] = {}
        for part in chain.from_iterable(parts):
            if isinstance(part, _Piece):
                waiting.setdefault(part.way, []).append(part.text)
        cut = {way: iter(self._splitter(way).chunk_all_indices(pieces)) for way, pieces in waiting.items()}
        return [
            [
                chunk
                for part in some
                for chunk in ([part] if isinstance(part, Chunk) else _placed(part, next(cut[part.way])))
            ]
            for some in parts
        ]

    def _parts(self, kind: str, text: str) -> Iterator[Chunk | _Piece]:
        """The parts of a text in their order: those that are a chunk already, and those to be cut into some."""
        if self._is_one(text):
            yield Chunk(text, 0)
        elif kind in ("csv", "tsv"):
            table = csv_table(text, tabs=kind == "tsv")
            yield from self._rows(text, table) if table else self._pieces("text", text, 0, len(text))
        elif kind == "markdown":
            done = 0
            for table in markdown_tables(text, self.size):
                yield from self._pieces(kind, text, done, table.start)
                yield from self._rows(text, table)
                done = table.end
            yield from self._pieces(kind, text, done, len(text))
        else:
            of_code = self.syntax is not None and kind in GRAMMARS
            yield from self._pieces(kind if of_code else "text", text, 0, len(text))

    def _is_one(self, text: str) -> bool:
        """Whether a text is its only chunk as it is: splitters leave it alone then, and take their time to see it."""
        return bool(text) and self._surely_fits(text) and not (text[0].isspace() or text[-1].isspace())

    def _surely_fits(self, text: str) -> bool:
        # No token is of less than a byte, but for the mark that some tokenizers put in front.
        return (len(text.encode()) + 1 if self.tokens else len(text)) <= self.size

    def _pieces(self, kind: str, text: str, start: int, end: int) -> Iterator[_Piece]:
        size = self.size * self._letters
        for at, stop in _cut(text, start, end, max(PIECE, 16 * size), CHUNKS_IN_LINE * size):
            piece = text[at:stop]
            by_text = kind in GRAMMARS and self.syntax is not None and not self.syntax.reads(kind, piece)
            yield _Piece(_Way("text" if by_text else kind, self.size, self.overlap), piece, at)

    def _rows(self, text: str, table: Table) -> Iterator[Chunk | _Piece]:
        """Chunks of whole rows, all but the first with the header repeated before them: if that takes less than half
        of a chunk, else it is a row like others. A row that is longer is cut as text, with the header.
        """
        half = self.size // 2
        if not self._fit(half - 1, [table.header])[0]:
            table = table.without_header()
        most = self.size * self._letters
        yield from self._runs(text, table, range(len(table.ends)), most - len(table.header), most)

    def _runs(self, text: str, table: Table, rows: range, room: int, most: int) -> Iterator[Chunk | _Piece]:
        runs = list(table.runs(text, rows, room, most))
        places = list(map(table.place, runs))
        made = [
            (table.header if each.start else "") + text[at:end].strip("\n")
            for each, (at, end) in zip(runs, places, strict=True)
        ]
        for each, (at, end), chunk, fits in zip(runs, places, made, self._fit(self.size, made), strict=True):
            if not text[at:end].strip():
                continue
            if fits:
                yield Chunk(chunk, at + _blank(text[at:end]))
            elif len(each) > 1:
                yield from self._runs(text, table, each, (end - at) // 2, (end - at) // 2)
            else:
                yield from self._long_row(text, table, at, end)

    def _long_row(self, text: str, table: Table, start: int, end: int) -> Iterator[_Piece]:
        if start == table.start:
            yield from self._pieces("text", text, start, table.body - len(table.header))
            start = table.body
        size = self.size - self.size // 2 if table.header else self.size
        characters = size * self._letters
        for at, stop in _cut(text, start, end, max(PIECE, 16 * characters), CHUNKS_IN_LINE * characters):
            yield _Piece(_Way("text", size, 0), text[at:stop], at, table.header)

    def _fit(self, size: int, texts: Sequence[str]) -> list[bool]:
        """Whether each of some texts is of no more than so many characters or tokens."""
        if self.tokens is None or size < 1:
            return [len(each) <= size for each in texts]
        # Long texts, which a splitter takes long to look through, have more tokens.
        tried = [each if len(each) <= LONG_TOKEN * size else "" for each in texts]
        cut = self._splitter(_Way("text", size, 0)).chunk_all(tried)
        return [bool(each) and len(pieces) == 1 for each, pieces in zip(tried, cut, strict=True)]

    def _splitter(self, way: _Way) -> Any:
        return _splitter(way, self.tokens, self.syntax)


def _blank(rows: str) -> int:
    """The length of the blank lines that rows begin with."""
    return len(rows) - len(rows.lstrip("\n"))


def _placed(piece: _Piece, cut: Sequence[tuple[int, str]]) -> Iterator[Chunk]:
    return (Chunk(piece.header + text, piece.at + at) for at, text in cut)


@functools.lru_cache(maxsize=8)
def _fingerprint(size: int, overlap: int) -> str:
    return digest([RULES, version("semantic-text-splitter"), size, overlap])


def _cut(text: str, start: int, end: int, most: int, most_of_line: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of pieces of at most `most` characters, which end at line ends; longer lines are cut at
    spaces.
    """
    while start < end:
        stop = end if end - start <= most else _last(text, start + most // 2, start + most, _CUTS)
        line = _long_line(text, start, stop, most_of_line)
        if line is not None:
            stop = line if line > start else _last(text, start + most_of_line // 2, start + most_of_line, _LINE_CUTS)
        yield start, stop
        start = stop


def _last(text: str, low: int, high: int, marks: Sequence[str]) -> int:
    """The place just after the first character of the best mark's last occurrence between two places; `high` without
    any.
    """
    for mark in marks:
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + 1
    return high


def _long_line(text: str, start: int, stop: int, most: int) -> int | None:
    """The place where the first line of more than `most` characters begins."""
    while stop - start > most:
        end = text.rfind("\n", start, start + most + 1)
        if end < 0:
            return start
        start = end + 1
    return None


@functools.lru_cache(maxsize=32)
def _splitter(way: _Way, tokens: Tokens | None = None, syntax: Syntax | None = None) -> Any:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    kind, size, overlap = way
    made = MarkdownSplitter if kind == "markdown" else TextSplitter
    if syntax is not None and kind in GRAMMARS:
        made = syntax.splitter_class(kind)
    return made(size, overlap) if tokens is None else tokens.splitter(made, size, overlap)
