"""A project that stays open between searches: its adapters, its ledger, and the indexes last seen served."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from instep.container import Container
from instep.domain.texts import names_in
from instep.errors import UserError
from instep.ledger.open import file_of

if TYPE_CHECKING:
    from instep.answers.looks import Looks, Seen
    from instep.entities.documents.setup import DocumentSetup
    from instep.ledger.ledger import Ledger
    from instep.project import Project

T = TypeVar("T")

#: After so long everything is opened anew.
_SECONDS: Final = 60.0

#: That of a ledger that is not there yet: it is looked for at each search.
_NO_FILE: Final = (-1, -1)


@dataclass(slots=True, weakref_slot=True)
class Opened:
    """One opening of it; ends with the last reference."""

    container: Container
    ledger: Ledger
    file: tuple[int, int] | None
    memory: dict[Hashable, Seen] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)
    process: int = field(default_factory=os.getpid)
    setups: dict[tuple[str, ...], list[DocumentSetup]] = field(default_factory=dict)

    def documents(self, entities: Iterable[str] | None) -> list[DocumentSetup]:
        named = tuple(names_in(entities))
        if named not in self.setups:
            self.setups[named] = self.container.documents(named)
        return self.setups[named]

    @property
    def fresh(self) -> bool:
        """Whether it is still the ledger's own file, of this very process, and not open for too long."""
        same = self.file == file_of(self.container.project.ledger_url) and self.process == os.getpid()
        return same and time.monotonic() - self.since < _SECONDS


class OpenProject:
    """Opens a project at its first search. May be shared by threads."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._lock = threading.Lock()
        self._opened: Opened | None = None

    def ask(self, question: Callable[[Opened, Looks], T]) -> T:
        """Ask it something; again, if that failed since another index is served by now than was seen before."""
        from instep.answers.looks import Looks

        with self._lock:
            opened = self._opened
            if opened is None or not opened.fresh:
                opened = self._opened = self._open()
        looks = Looks(opened.ledger, opened.memory)
        try:
            return question(opened, looks)
        except UserError:
            if not looks.outdated():
                raise
        return question(opened, Looks(opened.ledger, opened.memory))

    def _open(self) -> Opened:
        container, file = Container(self._project), file_of(self._project.ledger_url)
        ledger = container.ledger(read_only=True)
        opened = Opened(container, ledger, file if ledger.exists else _NO_FILE)
        # Others may be in the middle of a question when it is replaced. What a fork inherits is not its own to close.
        owner = os.getpid()
        weakref.finalize(opened, lambda: ledger.close() if os.getpid() == owner else None)
        return opened
