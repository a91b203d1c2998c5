"""A judged collection out of documentation in Markdown: `python -m bench.linked FOLDER INTO`.

Each sentence that links to another page is a query, and that page answers it. The paragraphs with such links are not in
the documents, or they would be found themselves. Sentences with fewer than five words beside the link are left out:
many say no more than the title. Authors link pages by what they are called, so titles and headings help here more than
they do with questions of readers.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_LEAST_WORDS: Final = 5
_INLINE: Final = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)(?:\{[^}]*\})?")
_REFERRING: Final = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\](?:\[([^\]]*)\])?")
_REFERENCE: Final = re.compile(r"(?m)^\[([^\]]+)\]:\s*(\S+).*$")
#: Paragraphs, items of lists, and headings.
_BLOCKS: Final = re.compile(r"(?<=\n)(?=\n|[ \t]*(?:[-+*]|\d+\.)[ \t]|#)")
_SENTENCES: Final = re.compile(r"(?<=[.!?:])\s+")
_MARKS: Final = re.compile(r"[`*_#>]|^\s*(?:[-+]|\d+\.)\s+|\{[^}]*\}")


class Linked(NamedTuple):
    """A sentence, and the pages that it links to."""

    text: str
    pages: tuple[str, ...]


def linked(text: str, page: str, pages: frozenset[str]) -> tuple[str, list[Linked]]:
    """A page without its paragraphs that link to others, and the sentences of these."""
    references = {name.lower(): target for name, target in _REFERENCE.findall(text)}
    kept, found = [], []
    for block in _BLOCKS.split(_REFERENCE.sub("", text)):
        if not any(_targets(block, page, pages, references)):
            kept.append(block)
            continue
        for sentence in _SENTENCES.split(" ".join(block.split())):
            targets = tuple(dict.fromkeys(_targets(sentence, page, pages, references)))
            plain = _plain(sentence)
            beside = _plain(_REFERRING.sub("", _INLINE.sub("", sentence)))
            if targets and len(beside.split()) >= _LEAST_WORDS:
                found.append(Linked(plain, targets))
    return "".join(kept), found


def _targets(text: str, page: str, pages: frozenset[str], references: Mapping[str, str]) -> Iterator[str]:
    said = [target for _, target in _INLINE.findall(text)]
    for shown, name in _REFERRING.findall(_INLINE.sub("", text)):
        said.append(references.get((name or shown).lower(), ""))
    for each in said:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), each.partition("#")[0]))
        path = re.sub(r"\.html$", ".md", path)
        if path in pages and path != page:
            yield path


def _plain(text: str) -> str:
    text = _REFERRING.sub(r"\1", _INLINE.sub(r"\1", text))
    return " ".join(_MARKS.sub("", text).split())


def collect(folder: Path, into: Path) -> tuple[int, int]:
    """Write the collection; returns the numbers of documents and queries."""
    pages = {each.relative_to(folder).as_posix(): each for each in sorted(folder.rglob("*.md"))}
    queries: dict[str, set[str]] = {}
    for name, file in pages.items():
        text, sentences = linked(file.read_text(encoding="utf-8"), name, frozenset(pages))
        place = into / "docs" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        for each in sentences:
            queries.setdefault(each.text, set()).update(each.pages)
    lines = [
        json.dumps({"id": str(at), "query": query, "relevant": sorted(relevant)})
        for at, (query, relevant) in enumerate(queries.items(), 1)
    ]
    (into / "judged.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return len(pages), len(queries)


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.linked", description=__doc__)
    asked.add_argument("folder", type=Path, help="documentation in Markdown")
    asked.add_argument("into", type=Path, help="folder for the collection")
    given = asked.parse_args()
    documents, queries = collect(given.folder, given.into)
    print(f"{documents:,} documents, {queries:,} queries")


if __name__ == "__main__":
    main()
