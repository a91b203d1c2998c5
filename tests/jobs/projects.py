"""Real projects on disk, for tests of use cases on real ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import instep
from instep.jobs.entity_result import EntityResult
from tests.e2e import corpus


@dataclass(frozen=True)
class Home:
    root: Path

    @property
    def docs(self) -> Path:
        return self.root / "docs"

    def open(self) -> instep.Instep:
        return instep.load(self.root)

    def run(self) -> EntityResult:
        (result,) = self.open().run()
        return result

    def path(self, number: int) -> Path:
        return corpus.path(self.docs, number)

    def uri(self, number: int) -> str:
        return self.path(number).as_uri()

    def change(self, number: int, more: str) -> None:
        """A line more, at the end: chunks before the last stay as they are."""
        with self.path(number).open("a", encoding="utf-8") as file:
            file.write(f"\n{more}\n")


def home(folder: Path, documents: int = 10) -> Home:
    """A project with some documents, not indexed yet."""
    made = Home(folder)
    corpus.write(made.docs, range(documents))
    corpus.project(folder, made.docs)
    return made
