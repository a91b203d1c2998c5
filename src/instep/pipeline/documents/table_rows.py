"""Tables cut by rows: where the rows of a table in text begin and end, and which of them are a chunk together."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final
from zlib import crc32

#: What may stand between two fields of a row.
_DELIMITERS: Final = ",;\t|"
#: A chunk ends where at least this part of its room is used: two of its rows can then end it, if two fit.
_LEAST: Final = 3
#: A table in Markdown, as parsers write it: every line between pipes, the second one of dashes.
_TABLE: Final = re.compile(
    r"^(?P<head> {0,3}\|.*\n {0,3}\|(?:[ \t]*:?-+:?[ \t]*\|)++[ \t]*\n)(?P<rows>(?: {0,3}\|.*(?:\n|\Z))++)",
    re.MULTILINE,
)
#: A heading that is the last line of a text.
_LAST_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t].*\n\s*\Z", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a text: where it begins, its header with the line end, where its first row begins, and where each row
    ends. The first row is taken together with all that is before it.
    """

    start: int
    header: str
    body: int
    ends: Sequence[int]

    @property
    def end(self) -> int:
        return self.ends[-1]

    def without_header(self) -> Table:
        """A copy whose header is a row like others."""
        return Table(self.start, "", self.start, [self.body, *self.ends])

    def place(self, rows: range) -> tuple[int, int]:
        """The place of some rows in the text."""
        return self.ends[rows.start - 1] if rows.start else self.start, self.ends[rows.stop - 1]

    def runs(self, text: str, rows: range, room: int, most: int) -> Iterator[range]:
        """Cut rows into runs of at most `room` characters, `most` for that with the first row of all. A row that is
        longer is alone.

        A run ends before the row with the least checksum among those that may begin the next one. So the same rows are
        cut alike soon after a place at which others were put in.
        """
        first, last = rows.start, rows.stop
        while first < last:
            start = self.place(range(first, first + 1))[0]
            stop = bisect_right(self.ends, start + (room if first else most), first, last)
            if first + 1 < stop < last:
                least = bisect_left(self.ends, start + room // _LEAST, first, stop - 1)
                stop = min(range(stop, least, -1), key=lambda row: _mark(text, self.ends, row))
            stop = max(stop, first + 1)
            yield range(first, stop)
            first = stop


def _mark(text: str, ends: Sequence[int], row: int) -> int:
    """The checksum of a row that is not the first one."""
    return crc32(text[ends[row - 1] : ends[row]].encode())


def csv_table(text: str, *, tabs: bool = False) -> Table | None:
    """The rows of CSV, or of fields between `tabs`, with the first as their header; None of a single row. Line breaks
    between quotes end no row. A quote without another one, or within a field, is a letter like all others.
    """
    start = len(text) - len(text.lstrip("\n"))
    line = text[start : text.find("\n", start) + 1]
    delimiter = "\t" if tabs else max(_DELIMITERS, key=line.count)
    ends = [each.end() for each in _row(delimiter).finditer(text, start) if each.end() > each.start()]
    return Table(0, text[start : ends[0]], ends[0], ends[1:]) if len(ends) > 1 else None


@cache
def _row(delimiter: str) -> re.Pattern[str]:
    return re.compile(rf'(?:[^"\n]++|(?<![^{re.escape(delimiter)}\n])"(?:[^"]++|"")*+"|")*+(?:\n|\Z)')


def markdown_tables(text: str, size: int) -> Iterator[Table]:
    """The tables in Markdown of more than `size` characters. One that has a heading above it begins with that, if the
    first row fits beside it.
    """
    done = 0
    for found in _TABLE.finditer(text) if "|" in text else ():
        if found.end() - found.start() <= size:
            continue
        ends = _lines(text, found.start("rows"), found.end())
        above = _LAST_HEADING.search(text, max(done, found.start() - size), found.start())
        start = above.start() if above and ends[0] - above.start() <= size else found.start()
        yield Table(start, found["head"], found.start("rows"), ends)
        done = found.end()


def _lines(text: str, start: int, end: int) -> list[int]:
    """The ends of the lines between two places."""
    found = [start + each.end() for each in re.finditer("\n", text[start:end])]
    return found if found and found[-1] == end else [*found, end]
