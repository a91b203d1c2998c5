"""The place that all servers share: documents that change, a project, a ledger, an index; and the truth."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sqlalchemy import Engine

from instep.ledger.dialects.sqlite import sqlite_engine
from instep.ledger.open_server import server_at
from instep.servers.address import server_address
from tests.e2e import corpus, truth

_PARAGRAPHS = 400
_FOLDERS = 100
BUCKETS = 32


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of the index that are not as they must be."""

    lost: int = 0
    duplicate: int = 0
    stale: int = 0
    examples: str = ""

    @property
    def total(self) -> int:
        return self.lost + self.duplicate + self.stale


def difference(want: truth.Truth, have: truth.Truth) -> Difference:
    lost, extra = want - have, have - want
    duplicate = sum(number for row, number in extra.items() if row in want)
    return Difference(sum(lost.values()), duplicate, sum(extra.values()) - duplicate, truth.difference(want, have))


@dataclass
class Site:
    """`ledger` is a URL. Documents are small: what is to be shown is coordination, not throughput."""

    folder: Path
    ledger: str
    seed: int
    revision: int = 0
    _alive: list[int] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self._rng = rng
        self._paragraphs = [" ".join(rng.choice(corpus.WORDS) for _ in range(60)) for _ in range(_PARAGRAPHS)]

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def docs(self) -> Path:
        return self.folder / "docs"

    @property
    def index(self) -> Path:
        return self.project / ".instep" / "index"

    def prepare(
        self, documents: int, *, entity: str = f"slice_rows: 1000\nbuckets: {BUCKETS}", extra: str = ""
    ) -> None:
        corpus.project(self.project, self.docs, extra=f'ledger: "{self.ledger}"\n{extra}', entity=entity)
        for number in range(_FOLDERS):
            (self.docs / f"{number:02d}").mkdir(parents=True)
        self._add(documents)

    def edit(self, changed: int, removed: int, added: int) -> None:
        """Some documents change, some go, others come. Each file changes at once, as by an editor that saves."""
        self.revision += 1
        touched = self._rng.sample(self._alive, min(len(self._alive), changed + removed))
        for number in touched[:changed]:
            self._write(number)
        gone = set(touched[changed:])
        for number in gone:
            self._path(number).unlink()
        self._alive = [number for number in self._alive if number not in gone]
        self._add(added)

    def wrong(self) -> Difference:
        """How the index differs from the documents as they are now, all of them read anew."""
        return difference(truth.expected(self.docs), truth.stored(self.index))

    @property
    def documents(self) -> int:
        return len(self._alive)

    @cached_property
    def engine(self) -> Engine:
        """To read the ledger's tables, without Instep's ledger in between."""
        if self.ledger.startswith("sqlite"):
            return sqlite_engine(Path(self.ledger.removeprefix("sqlite:///")), read_only=True)
        return server_at(server_address(self.ledger)).engine(read_only=True)

    def close(self) -> None:
        if "engine" in self.__dict__:
            self.engine.dispose()

    def _add(self, count: int) -> None:
        new = range(self._next, self._next + count)
        self._next += count
        self._alive += new
        for number in new:
            self._write(number)

    def _write(self, number: int) -> None:
        title = f"# Document {number} as of {self.revision}"
        sections = [f"## Section {at} of {number}\n\n{self._rng.choice(self._paragraphs)}." for at in range(3)]
        path = self._path(number)
        draft = path.with_suffix(".draft")
        draft.write_text("\n\n".join([title, *sections]) + "\n", encoding="utf-8")
        draft.replace(path)

    def _path(self, number: int) -> Path:
        return self.docs / f"{number % _FOLDERS:02d}" / f"doc{number:06d}.md"
