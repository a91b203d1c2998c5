from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import instep
from instep.jobs.entity_result import EntityResult

from . import corpus, truth


@dataclass
class Location:
    """A project on disk with its documents, and the independent truth about it."""

    root: Path
    docs: Path
    chunk: int = 800

    @property
    def index(self) -> Path:
        return self.root / ".instep" / "index"

    def open(self) -> instep.Instep:
        return instep.load(self.root)

    def run(self, **options: object) -> EntityResult:
        (result,) = self.open().run(**options)  # type: ignore[arg-type]  # options are passed through
        return result

    def declare(self, *, chunk: int = 800, extra: str = "", entity: str = "") -> None:
        self.chunk = chunk
        corpus.project(self.root, self.docs, chunk=chunk, extra=extra, entity=entity)

    def wrong(self, keep: Callable[[Path], bool] = lambda _: True) -> str:
        """What differs between the index and the truth; empty when nothing does."""
        return truth.difference(truth.expected(self.docs, size=self.chunk, keep=keep), truth.stored(self.index))


@pytest.fixture
def place(tmp_path: Path) -> Location:
    """Sixty documents, not indexed yet."""
    made = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(made.docs, range(60))
    made.declare()
    return made
