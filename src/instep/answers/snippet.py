"""Snippets: the part of a text that shows why it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from instep.domain.words import Marked, TextQuery, marked

SNIPPET_CHARS: Final = 240


@dataclass(frozen=True, slots=True)
class Snippet:
    """`text` on one line; `marks` are the half-open character ranges that match the query."""

    text: str
    marks: tuple[tuple[int, int], ...]


def snippet(text: str, query: TextQuery, language: str) -> Snippet:
    """The window of about `SNIPPET_CHARS` characters that holds most different query words (first one wins)."""
    flat = " ".join(text.split())
    hits = marked(flat, frozenset(query.words), language)
    start = _best_start(flat, hits)
    end = min(len(flat), start + SNIPPET_CHARS)
    if end < len(flat):
        end = flat.rfind(" ", start, end + 1) if flat.rfind(" ", start, end + 1) > start else end
    before, after = ("… " if start else ""), (" …" if end < len(flat) else "")
    shift = len(before) - start
    marks = tuple((each.start + shift, each.end + shift) for each in hits if each.start >= start and each.end <= end)
    return Snippet(before + flat[start:end] + after, marks)


def _best_start(flat: str, hits: Sequence[Marked]) -> int:
    if not hits or len(flat) <= SNIPPET_CHARS:
        return 0
    best, best_words = hits[0], 0
    for first in hits:
        reach = first.start + SNIPPET_CHARS * 3 // 4
        words = len({hit.word for hit in hits if first.start <= hit.start < reach})
        if words > best_words:
            best, best_words = first, words
    start = max(0, best.start - SNIPPET_CHARS // 4)
    if start == 0:
        return 0
    space = flat.find(" ", start, best.start)
    return space + 1 if space >= 0 else best.start
