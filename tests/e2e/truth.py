"""What the index must hold, computed without Instep: the listing, ids and chunks are made here anew."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import lance
from semantic_text_splitter import MarkdownSplitter

Truth = Counter[tuple[str, str]]


def expected(folder: Path, *, size: int = 800, keep: Callable[[Path], bool] = lambda _: True) -> Truth:
    """Multiset of (document id, chunk text) of all Markdown files under `folder`."""
    splitter = MarkdownSplitter(size)
    truth: Truth = Counter()
    for path in sorted(folder.rglob("*.md")):
        if path.is_file() and keep(path):
            identity = "doc_" + hashlib.sha256(path.as_uri().encode()).hexdigest()
            truth.update((identity, chunk) for chunk in splitter.chunks(path.read_text(encoding="utf-8")))
    return truth


def stored(index: Path, entity: str = "Document") -> Truth:
    """The same of what is served, read with the bare client."""
    table = lance.dataset(served(index, entity)).to_table(columns=["document_id", "text"])
    return Counter(zip(table["document_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def served(index: Path, entity: str = "Document") -> str:
    import json

    newest = max(index.glob(f"{entity}.alias-*.json"))
    alias = json.loads(newest.read_text())
    return str(index / f"{alias['physical']}.lance")


def difference(want: Truth, have: Truth) -> str:
    """Empty when equal; else the first few of each kind."""

    def first(rows: Iterable[tuple[str, str]]) -> str:
        return ", ".join(f"{identity[:12]}…:{text[:30]!r}" for identity, text in list(rows)[:5])

    lost, extra = want - have, have - want
    parts = []
    if lost:
        parts.append(f"{sum(lost.values())} missing ({first(lost)})")
    if extra:
        parts.append(f"{sum(extra.values())} stale, orphaned or double ({first(extra)})")
    return "; ".join(parts)
