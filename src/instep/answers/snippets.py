"""Snippets: the part of a text that answers a query best, with the words that match."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"\w+")
SNIPPET_CHARS = 240
#: Not marked, unless the query has nothing else: the full-text index does not look for them either.
_STOP = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not"),
        *("of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was"),
        *("will", "with"),
    )
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """`text` on one line; `marks` are the half-open character ranges that match the query."""

    text: str
    marks: tuple[tuple[int, int], ...]


def snippet(text: str, query: str, *, chars: int = SNIPPET_CHARS) -> Snippet:
    """The window of about `chars` characters that holds most different query words (first one wins)."""
    flat = " ".join(text.split())
    words = _WORD.findall(query.lower())
    stems = {_stem(word) for word in words if word not in _STOP} or set(map(_stem, words))
    hits = [match for match in _WORD.finditer(flat) if _stem(match.group().lower()) in stems]
    start = _best_start(flat, hits, chars)
    end = min(len(flat), start + chars)
    if end < len(flat):
        end = flat.rfind(" ", start, end + 1) if flat.rfind(" ", start, end + 1) > start else end
    before, after = ("… " if start else ""), (" …" if end < len(flat) else "")
    shift = len(before) - start
    marks = tuple((m.start() + shift, m.end() + shift) for m in hits if m.start() >= start and m.end() <= end)
    return Snippet(before + flat[start:end] + after, marks)


def _best_start(flat: str, hits: list[re.Match[str]], chars: int) -> int:
    if not hits or len(flat) <= chars:
        return 0
    best, best_words = hits[0], 0
    for first in hits:
        reach = first.start() + chars * 3 // 4
        words = len({_stem(hit.group().lower()) for hit in hits if first.start() <= hit.start() < reach})
        if words > best_words:
            best, best_words = first, words
    start = max(0, best.start() - chars // 4)
    if start == 0:
        return 0
    space = flat.find(" ", start, best.start())
    return space + 1 if space >= 0 else best.start()


def _stem(word: str) -> str:
    """Cuts the endings English plurals and verbs have, about as the index does: for marking only."""
    for ending in ("ing", "ies", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
