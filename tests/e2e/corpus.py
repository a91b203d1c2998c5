"""Small, seeded Markdown corpora."""

from __future__ import annotations

import functools
import random
from pathlib import Path

_TEXT = """
index search vector graph source target ledger lease fence slice wave claim worker crash recover document chunk
bucket hash watermark checkpoint partition instance want job spark arrow batch river bridge market window garden
silver quiet thunder maple harbour
"""
WORDS = _TEXT.split()


@functools.cache
def text(number: int, *, paragraphs: int = 4, seed: int = 0) -> str:
    """A Markdown document of a few chunks; the same number and seed give the same text."""
    rng = random.Random(number * 1_000_003 + seed)
    parts = [f"# Document {number}\n"]
    for section in range(paragraphs):
        words = " ".join(rng.choice(WORDS) for _ in range(80))
        parts.append(f"\n## Section {section} of {number}\n\n{words}.\n")
    return "".join(parts)


def write(folder: Path, numbers: range, *, seed: int = 0) -> None:
    for number in numbers:
        place = folder / f"{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"doc{number:05d}.md").write_text(text(number, seed=seed), encoding="utf-8")


def path(folder: Path, number: int) -> Path:
    return folder / f"{number % 10}" / f"doc{number:05d}.md"


def project(folder: Path, docs: Path, *, chunk: int = 800, extra: str = "", entity: str = "") -> Path:
    """Write an instep.yaml that indexes `docs`; `entity` adds lines to the entity, `extra` to the project."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "instep.yaml"
    lines = [
        "name: test",
        "targets: {index: {type: lance, uri: .instep/index}}",
        *extra.splitlines(),
        "entities:",
        "  Document:",
        f'    source: {{type: files, path: "{docs}", include: ["**/*.md"]}}',
        f"    chunk: {{size: {chunk}}}",
        "    embed: {type: hashing, dimensions: 32}",
        *(f"    {line}" for line in entity.splitlines()),
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
