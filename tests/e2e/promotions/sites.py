"""Projects whose index is rebuilt at every turn: with other rows, so that readers can tell one turn from another.

What is declared, and what the source holds, is made of the number of the turn alone: another process makes the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import instep
from instep.container import Container
from tests.doubles.clock import VirtualClock
from tests.e2e import corpus

if TYPE_CHECKING:
    from tests.e2e.tables.quick import QuickShop

#: Kind of table (of edges; `""` is the own one), and its rows: how often there is which.
Rows = dict[str, Counter[Any]]

_DOCUMENTS = 12
#: Rows changed in the past of every clock here.
_BEGUN = 1_700_000_000_000
_HOUR = 3_600_000


@dataclass(frozen=True)
class Site(ABC):
    """`target` is what is declared of it."""

    root: Path
    target: str

    @property
    @abstractmethod
    def entity(self) -> str: ...

    @property
    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """Columns that tell rows apart, of each kind of table."""

    @abstractmethod
    def turn(self, number: int) -> None:
        """Declare the project, and fill its source, as it is at this turn."""

    @abstractmethod
    def run(self, number: int, **options: Any) -> None:
        """By this process. `number`: each has to have a higher one than those before."""

    @abstractmethod
    def expected(self, number: int) -> Rows:
        """What readers find when it is built as at this turn, computed without Instep."""

    @abstractmethod
    def container(self) -> Container: ...


@dataclass(frozen=True)
class DocumentSite(Site):
    """Other chunks at every turn."""

    @property
    def entity(self) -> str:
        return "Document"

    @property
    def key(self) -> tuple[str, ...]:
        return "document_id", "text"

    @property
    def _docs(self) -> Path:
        return self.root.parent / "docs"

    def turn(self, number: int) -> None:
        corpus.write(self._docs, range(_DOCUMENTS))
        file = corpus.project(self.root, self._docs, chunk=_chunk(number), extra="engine: inline", entity="buckets: 3")
        file.write_text(file.read_text().replace("type: lance, uri: .instep/index", self.target))

    def run(self, number: int, **options: Any) -> None:
        instep.load(self.root).run(**options)

    def expected(self, number: int) -> Rows:
        from tests.e2e import truth  # Brings a splitter, which the runs themselves can spare here.

        return {"": Counter(truth.expected(self._docs, size=_chunk(number)))}

    def container(self) -> Container:
        return Container(instep.load(self.root).project)


def _chunk(number: int) -> int:
    return 300 + 100 * (number % 5)


@dataclass(frozen=True)
class TableSite(Site):
    """One more row, and one kind of edges in place of another, at every turn. Staged are likes, tickets lie in two
    namespaces: what these are in is shared, and the last of them that is built moves the alias.
    """

    shared: bool = False

    @property
    def entity(self) -> str:
        return "Ticket" if self.shared else "Like"

    @property
    def key(self) -> tuple[str, ...]:
        return ("id",) if self.shared else ("person", "ticket")

    def turn(self, number: int) -> None:
        self._shop(number).save()

    def run(self, number: int, **options: Any) -> None:
        self._made(_clock(number)).run(self.entity, **options)

    def container(self) -> Container:
        return Container(instep.load(self.root).project, clock=_clock(0))

    def expected(self, number: int) -> Rows:
        shop = self._shop(number, declared=False)
        alive = shop.alive("tickets" if self.shared else "likes")
        rows = Counter(tuple(row[name] for name in self.key) for row in alive)
        return {kind: rows.copy() for kind in ("", *_kinds(number))}

    def _made(self, clock: VirtualClock) -> QuickShop:
        from tests.e2e.tables.quick import QuickShop  # Brings much that documents need not.

        return QuickShop(self.root, self.target, clock=clock)

    def _shop(self, number: int, *, declared: bool = True) -> QuickShop:
        shop = self._made(VirtualClock(_BEGUN))
        if declared:
            shop.declare(_declared("OPENED" if self.shared else "LIKES", number))
        for each in range(20 + number):
            shop.put("people", id=each, name=f"person {each}")
            path = f"1/{2 + each % 2}/{each % 5}/"
            shop.put("tickets", id=each, path=path, title=f"ticket {each}", author=each)
            shop.put("likes", person=each, ticket=each)
        return shop


def _declared(kind: str, number: int) -> str:
    """Each kind of edges is a view of its own: one stays, one comes and one goes."""
    from tests.e2e.tables.shop import PROJECT

    (line,) = [each for each in PROJECT.splitlines() if f"kind: {kind}," in each]
    lines = [line.replace(f"kind: {kind},", f"kind: {each},") for each in _kinds(number)]
    return PROJECT.replace(line, "\n".join(lines))


def _kinds(number: int) -> tuple[str, str]:
    return "KEPT", ("EVEN", "ODD")[number % 2]


def _clock(number: int) -> VirtualClock:
    return VirtualClock(_BEGUN + (number + 1) * _HOUR)
