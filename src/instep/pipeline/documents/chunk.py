"""Limits of a document, and cutting text into chunks along its structure: headings, paragraphs, sentences, words."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Final

from instep.domain.fingerprint import digest
from instep.pipeline.documents.parse import ParseFailure
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
RULES = "pieces-1"
#: Raised whenever a chunk's context would be another one.
CONTEXT_RULES = "headings-1"
#: The splitter's time grows with the square of a block's length (100 MB of plain lines would take
#: hours), so longer texts are first cut into pieces of at most this many characters.
PIECE = 65_536
#: Within a line it is slower still: a line longer than this many chunks becomes pieces of its own.
CHUNKS_IN_LINE = 10
#: Where to cut into pieces, best first: after the first character of the mark.
_CUTS = ("\n# ", "\n## ", "\n\n", "\n")
_LINE_CUTS = (" ",)


@dataclass(frozen=True)
class Chunker:
    """Chunks of at most `size` characters, each repeating up to `overlap` of the one before.

    White space around chunks is trimmed; a text of white space only has none. No overlap reaches
    over the edge of a piece (`PIECE` characters). `context`: title and headings are embedded and searched with them.
    With `tokens`, size and overlap are in tokens.
    """

    size: int = 800
    overlap: int = 0
    context: bool = False
    tokens: Tokens | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.size:
            raise ValueError("overlap must be at least 0 and less than size")

    @property
    def fingerprint(self) -> str:
        return digest([self.rules, CONTEXT_RULES]) if self.context else self.rules

    @property
    def rules(self) -> str:
        """The fingerprint of how texts are cut."""
        made = _fingerprint(self.size, self.overlap)
        return digest([made, self.tokens.fingerprint]) if self.tokens else made

    @property
    def characters(self) -> int:
        """The characters of a chunk that are of it alone, about."""
        return (self.size - self.overlap) * (CHARACTERS if self.tokens else 1)

    def least_step(self, chunk: str) -> int:
        """The least number of characters between the beginnings of a chunk and of the next."""
        if self.tokens and self.overlap:
            return 1  # It is not known how many characters the repeated tokens are.
        return max(1, len(chunk) - self.overlap)

    def cut(self, texts: Sequence[tuple[str, str]]) -> Sequence[list[str] | ParseFailure]:
        """Chunks of each (kind, text), or why there are none."""
        return self.chunks(texts)

    def chunks(self, texts: Sequence[tuple[str, str]]) -> list[list[str]]:
        """Chunks of each (kind, text), in order; all of one kind at once, on all cores."""
        pieces: dict[bool, list[str]] = {}
        places: list[tuple[bool, int, int] | str] = []
        for kind, text in texts:
            if self._is_one(text):
                places.append(text)
                continue
            group = pieces.setdefault(kind == "markdown", [])
            before = len(group)
            group.extend(self._pieces(text))
            places.append((kind == "markdown", before, len(group)))
        cut: dict[bool, list[list[str]]] = {
            markdown: _splitter(markdown, self.size, self.overlap, self.tokens).chunk_all(group)
            for markdown, group in pieces.items()
        }
        return [[place] if isinstance(place, str) else _joined(cut[place[0]][place[1] : place[2]]) for place in places]

    def _is_one(self, text: str) -> bool:
        """Whether a text is its only chunk as it is: splitters leave it alone then, and take their time to see it."""
        # No token is of less than a byte, but for the mark that some tokenizers put in front.
        length = len(text.encode()) + 1 if self.tokens else len(text)
        return bool(text) and length <= self.size and not (text[0].isspace() or text[-1].isspace())

    def _pieces(self, text: str) -> Iterable[str]:
        size = self.size * (CHARACTERS if self.tokens else 1)
        return _cut(text, max(PIECE, 16 * size), CHUNKS_IN_LINE * size)


@functools.lru_cache(maxsize=8)
def _fingerprint(size: int, overlap: int) -> str:
    return digest([RULES, version("semantic-text-splitter"), size, overlap])


def _cut(text: str, most: int, most_of_line: int) -> Iterator[str]:
    """Pieces of at most `most` characters, ending at line ends; longer lines are cut at spaces."""
    start, end = 0, len(text)
    while start < end:
        stop = end if end - start <= most else _last(text, start + most // 2, start + most, _CUTS)
        line = _long_line(text, start, stop, most_of_line)
        if line is not None:
            stop = line if line > start else _last(text, start + most_of_line // 2, start + most_of_line, _LINE_CUTS)
        yield text[start:stop]
        start = stop


def _last(text: str, low: int, high: int, marks: Sequence[str]) -> int:
    """Just after the last of the best mark's first character between two places; `high` without any."""
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


def _joined(pieces: Sequence[list[str]]) -> list[str]:
    return pieces[0] if len(pieces) == 1 else [chunk for piece in pieces for chunk in piece]


@functools.lru_cache(maxsize=8)
def _splitter(markdown: bool, size: int, overlap: int, tokens: Tokens | None = None) -> Any:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    kind = MarkdownSplitter if markdown else TextSplitter
    return kind(size, overlap) if tokens is None else tokens.splitter(kind, size, overlap)
