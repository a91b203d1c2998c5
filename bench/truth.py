"""What must be in the index, computed without Instep: a fast wrong answer does not count.

python -m bench.truth CORPUS DATASET.lance
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

CHUNK_SIZE = 800

#: (document id, sha256 of the chunk's text) → how many times
Chunks = Counter[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rows that are missing, rows that should not be there, and rows that are there more than once too often."""

    rows: int
    missing: int
    stale: int
    double: int

    @property
    def holds(self) -> bool:
        return not (self.missing or self.stale or self.double)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.missing:,} missing, {self.stale:,} stale, {self.double:,} double"


def expected(corpus: Path, *, chunk_size: int = CHUNK_SIZE) -> Chunks:
    """The chunks of every Markdown file below `corpus`."""
    from semantic_text_splitter import MarkdownSplitter

    splitter = MarkdownSplitter(chunk_size)
    chunks: Chunks = Counter()
    for folder, _, names in os.walk(corpus.resolve()):
        for name in names:
            if name.endswith(".md"):
                path = Path(folder, name)
                document = "doc_" + sha256(f"file://{quote(str(path))}".encode()).hexdigest()
                texts = splitter.chunks(path.read_bytes().decode())
                chunks.update((document, sha256(text.encode()).digest()) for text in texts)
    return chunks


def found(dataset: Path) -> Chunks:
    """The chunks in a Lance dataset."""
    import lance

    chunks: Chunks = Counter()
    for batch in lance.dataset(str(dataset)).to_batches(columns=["document_id", "text"]):
        ids, texts = (column.to_pylist() for column in batch.columns)
        chunks.update((document, sha256(text.encode()).digest()) for document, text in zip(ids, texts, strict=True))
    return chunks


def indexed(dataset: Path) -> float:
    """Share of the rows that the full-text index covers (the rest is searched flat); 1 without an index."""
    import lance

    opened = lance.dataset(str(dataset))
    covered = [each.num_rows_indexed for each in opened.describe_indices() if each.field_names == ["text"]]
    return sum(covered) / max(1, opened.count_rows()) if covered else 1.0


def compare(want: Chunks, have: Chunks) -> Verdict:
    """A chunk that is wanted and there too often is double; one that is not wanted at all is stale."""
    missing = (want - have).total()
    extra = have - want
    double = sum(count for chunk, count in extra.items() if chunk in want)
    return Verdict(have.total(), missing, extra.total() - double, double)


def check(corpus: Path, dataset: Path) -> Verdict:
    return compare(expected(corpus), found(dataset))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a Lance dataset with a corpus of Markdown files.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("dataset", type=Path)
    options = parser.parse_args()
    verdict = check(options.corpus, options.dataset)
    print(verdict)
    sys.exit(0 if verdict.holds else 1)


if __name__ == "__main__":
    main()
