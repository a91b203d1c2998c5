"""Generated Markdown corpora: Zipf-distributed words in headings and paragraphs, the same for the same seed.

A document is about 7.5 KB: ten chunks of 800 characters. Texts are drawn as token numbers with numpy
and joined once, so that 20,000 documents take seconds.

    python -m bench.corpus generate FOLDER --documents 20000
    python -m bench.corpus mutate FOLDER --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

WORDS = 20_000
ZIPF_EXPONENT = 1.05
DOCUMENTS_PER_FOLDER = 250
LAYOUTS = 64

Tokens = npt.NDArray[np.int64]

# A token is word + form * WORDS; the form says how the word is written at its place.
_PLAIN, _FIRST, _LAST, _PARAGRAPH_END, _TITLE, _HEADING, _HEADING_END = range(7)


@dataclass(frozen=True, slots=True)
class Mutation:
    """Paths (relative to the corpus, with slashes) that a mutation touched."""

    changed: tuple[str, ...]
    deleted: tuple[str, ...]
    added: tuple[str, ...]


class Writer:
    """Draws documents and paragraphs. The vocabulary never depends on the seed, only what is drawn from it."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._forms = _forms(_vocabulary())
        self._by_quantile = _zipf_quantiles()
        shape = np.random.default_rng(7)
        self._layouts = [_document_layout(shape) for _ in range(LAYOUTS)]

    def document(self) -> str:
        return self._text(self._layouts[int(self._draw.integers(LAYOUTS))])

    def paragraph(self) -> str:
        return self._text(_paragraph_layout(self._draw)).rstrip("\n")

    def choose(self, paths: list[str], count: int) -> list[str]:
        return [paths[each] for each in self._draw.choice(len(paths), size=count, replace=False)]

    def below(self, end: int) -> int:
        return int(self._draw.integers(end))

    def _text(self, layout: Tokens) -> str:
        words = self._by_quantile[self._draw.integers(len(self._by_quantile), size=len(layout))]
        return "".join(self._forms[words + layout])


def generate(folder: Path, documents: int, *, seed: int = 0) -> None:
    """Write `documents` new Markdown files into sub-folders of `folder`, which must not exist."""
    folder.mkdir(parents=True)
    writer = Writer(seed)
    for number in range(documents):
        part = folder / f"part-{number // DOCUMENTS_PER_FOLDER:04d}"
        if number % DOCUMENTS_PER_FOLDER == 0:
            part.mkdir()
        (part / f"doc-{number:06d}.md").write_text(writer.document(), encoding="utf-8")


def mutate(
    folder: Path, *, seed: int, changed: int | None = None, deleted: int | None = None, added: int | None = None
) -> Mutation:
    """Change one paragraph in 1 % of the documents, delete 0.1 % and add 0.1 % (or the counts given)."""
    paths = list(markdown_files(folder))
    changed = max(1, len(paths) // 100) if changed is None else changed
    deleted = max(1, len(paths) // 1000) if deleted is None else deleted
    added = max(1, len(paths) // 1000) if added is None else added
    writer = Writer(1_000_000 + seed)
    touched = writer.choose(paths, changed + deleted)
    for path in touched[:changed]:
        _change_one_paragraph(folder / path, writer)
    for path in touched[changed:]:
        (folder / path).unlink()
    new = [f"part-0000/added-{seed:03d}-{number:04d}.md" for number in range(added)]
    for path in new:
        (folder / path).write_text(writer.document(), encoding="utf-8")
    return Mutation(tuple(touched[:changed]), tuple(touched[changed:]), tuple(new))


def markdown_files(folder: Path) -> Iterator[str]:
    """All Markdown files below `folder`, sorted, as relative paths."""
    for part in sorted(folder.iterdir()):
        if part.is_dir():
            yield from (f"{part.name}/{name}" for name in sorted(each.name for each in part.glob("*.md")))


def _change_one_paragraph(path: Path, writer: Writer) -> None:
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    paragraphs = [position for position, block in enumerate(blocks) if block.strip() and not block.startswith("#")]
    blocks[paragraphs[writer.below(len(paragraphs))]] = writer.paragraph()
    path.write_text("\n\n".join(blocks), encoding="utf-8")


def _vocabulary() -> list[str]:
    """Distinct pronounceable words, two to four syllables; common words are shorter."""
    consonants, vowels = [*"bdfghklmnprstvwz", "ch", "st", "tr"], [*"aeiou", "ai", "ea"]
    draw = np.random.default_rng(1)
    words: dict[str, None] = {}
    while len(words) < WORDS:
        syllables = 1 + (len(words) > 100) + (len(words) > 2_000) + int(draw.integers(2))
        picks = draw.integers(0, 1_000_000, size=(syllables, 2))
        words["".join(consonants[a % len(consonants)] + vowels[b % len(vowels)] for a, b in picks)] = None
    return list(words)


def _forms(words: list[str]) -> npt.NDArray[np.object_]:
    """Every word in each of the seven forms, with the white space that follows it there."""
    capital = [word.capitalize() for word in words]
    table = [f"{word} " for word in words]
    table += [f"{word} " for word in capital]
    table += [f"{word}. " for word in words]
    table += [f"{word}.\n\n" for word in words]
    table += [f"# {word} " for word in capital]
    table += [f"## {word} " for word in capital]
    table += [f"{word}\n\n" for word in words]
    return np.array(table, dtype=object)


def _zipf_quantiles() -> Tokens:
    """2^20 word numbers, each as often as its share: a draw is one random integer."""
    weights = 1.0 / np.arange(1, WORDS + 1) ** ZIPF_EXPONENT
    cumulative = np.cumsum(weights) / weights.sum()
    return np.searchsorted(cumulative, (np.arange(1 << 20) + 0.5) / (1 << 20))


def _document_layout(draw: np.random.Generator) -> Tokens:
    """Forms (times WORDS) of a title and two to four sections of thirteen to seventeen paragraphs."""
    parts = [_heading(_TITLE, draw), _paragraph_layout(draw)]
    for _ in range(int(draw.integers(2, 5))):
        parts.append(_heading(_HEADING, draw))
        parts.extend(_paragraph_layout(draw) for _ in range(int(draw.integers(13, 18))))
    return np.concatenate(parts)


def _heading(form: int, draw: np.random.Generator) -> Tokens:
    middle = [_PLAIN] * int(draw.integers(1, 4))
    return np.array([form, *middle, _HEADING_END], dtype=np.int64) * WORDS


def _paragraph_layout(draw: np.random.Generator) -> Tokens:
    """One to three sentences of eight to sixteen words."""
    forms: list[int] = []
    for _ in range(int(draw.integers(1, 4))):
        forms += [_FIRST, *[_PLAIN] * int(draw.integers(6, 15)), _LAST]
    forms[-1] = _PARAGRAPH_END
    return np.array(forms, dtype=np.int64) * WORDS


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate or mutate a corpus.")
    parser.add_argument("action", choices=["generate", "mutate"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.action == "generate":
        generate(options.folder, options.documents, seed=options.seed)
    else:
        done = mutate(options.folder, seed=options.seed)
        print(f"changed {len(done.changed)}, deleted {len(done.deleted)}, added {len(done.added)}")


if __name__ == "__main__":
    main()
