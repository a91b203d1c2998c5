"""The place of a chunk in its document: the page and line on which it begins, and the headings it stands under."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

#: A heading is cut to this many characters, as titles are.
_LONGEST: Final = 300
#: A heading of Markdown: `## Heading`, or a line above `===` or `---`.
_ATX: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*\S)")
_CLOSING: Final = re.compile(r"[ \t]+#+$")
_RULE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
#: So many letters of a page are enough to find it by.
_KEY: Final = 60


class Heading(NamedTuple):
    """A heading in a text: where it begins, its level from 1 on, and what it says. One that says nothing ends others of
    its level.
    """

    at: int
    level: int
    text: str


def starts_of(text: str, chunks: Sequence[str]) -> list[int | None]:
    """Find where chunks begin in their text, each behind the beginning of the one before. A chunk that is not in the
    text has no place, nor have those behind it.
    """
    found: list[int | None] = []
    start = 0
    for chunk in chunks:
        at = text.find(chunk, start)
        if at < 0:
            break
        found.append(at)
        start = at + 1
    return found + [None] * (len(chunks) - len(found))


def page_at(pages: Sequence[int], at: int | None) -> int | None:
    """The number of the page, from 1 on, that a place is on. `pages`: where each begins."""
    return bisect_right(pages, at) or None if pages and at is not None else None


def lines_at(text: str, starts: Sequence[int | None]) -> list[int | None]:
    """The number of the line, from 1 on, that each of some ascending places is on."""
    found: list[int | None] = []
    line, done = 1, 0
    for at in starts:
        line, done = line + text.count("\n", done, at or done), at or done
        found.append(None if at is None else line)
    return found


def headings_at(headings: Sequence[Heading], starts: Sequence[int | None]) -> list[list[str] | None]:
    """List, for each place, the headings that are open there, outermost first, with one that begins there."""
    found: list[list[str] | None] = []
    open_: list[Heading] = []
    following = 0
    for at in starts:
        while at is not None and following < len(headings) and headings[following].at <= at:
            new = headings[following]
            open_ = [*(each for each in open_ if each.level < new.level), new]
            following += 1
        found.append([each.text for each in open_ if each.text] or None if at is not None else None)
    return found


def contexts(title: str, headings: Sequence[Heading], starts: Sequence[int | None]) -> list[str]:
    """List what stands above each chunk, in lines: the title, and the headings that are open where it begins, but for
    one that it begins with itself.
    """
    own = {each.at: each.text for each in headings}
    above = headings_at(headings, [None if at is None else at - 1 for at in starts])
    found = []
    for at, open_ in zip(starts, above, strict=True):
        said = dict.fromkeys(filter(None, [title, *(open_ or ())]))
        said.pop("" if at is None else own.get(at, ""), None)
        found.append("\n".join(said))
    return found


def heading_text(text: str) -> str:
    """The text of a heading, on one line and not too long."""
    return " ".join(text.split())[:_LONGEST]


def markdown_headings(text: str) -> Iterator[Heading]:
    """The headings of Markdown, but those in fenced blocks."""
    fence = ""
    for (before_at, before), (at, line) in pairwise([(0, ""), *_lines(text)]):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            fence = mark[1]
        elif (atx := _ATX.match(line)) and (said := heading_text(_CLOSING.sub("", atx[2]))):
            yield Heading(at, len(atx[1]), said)
        elif (rule := _RULE.match(line)) and _is_paragraph(before):
            yield Heading(before_at, 1 if rule[1][0] == "=" else 2, heading_text(before))


def _is_paragraph(line: str) -> bool:
    """Whether a line may be a heading if it is underlined: of a list, a quotation, a table it is not."""
    said = line.strip()
    return bool(said) and said[0] not in "#>|-*+=`~" and not line.startswith(("    ", "\t"))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for line in text.split("\n"):
        yield at, line
        at += len(line) + 1


def joined_pages(pages: Sequence[str]) -> tuple[str, list[int]]:
    """Texts of pages as one text, and where each begins."""
    parts = [page.strip().replace("\0", "") for page in pages]
    ends = list(_ends(parts))
    joined = "\n\n".join(parts)
    lead = len(joined) - len(joined.lstrip())
    return joined.strip(), [max(0, at - lead) for at in ends]


def _ends(parts: Sequence[str]) -> Iterator[int]:
    at = 0
    for part in parts:
        yield at
        at += len(part) + 2


def pages_in(text: str, pages: Sequence[str]) -> list[int]:
    """Find where pages begin in a text with their letters and other marks between them. Empty if one is missing."""
    places = [at for at, letter in enumerate(text) if letter.isalnum()]
    letters = "".join(text[at] for at in places)
    found: list[int] = []
    start = 0
    for page in pages:
        own = "".join(filter(str.isalnum, page))
        key = own[:_KEY]
        at = start if letters.startswith(key, start) else letters.find(key, found[-1] if found else 0)
        if at < 0:
            return []
        found.append(at)
        start = at + len(own)
    return [_place(places, at, text) for at in found]


def _place(places: Sequence[int], letter: int, text: str) -> int:
    """The beginning of the line that a letter is on: marks of a heading or a table stand before it."""
    at: Any = places[letter] if letter < len(places) else len(text)
    return text.rfind("\n", 0, at) + 1
