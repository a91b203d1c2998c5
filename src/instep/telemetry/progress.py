"""Progress of a long use case: the port for those who display it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called from several threads. `entity` is the label of a partition; a `unit` is a document, or a row. `total` is
    None if the units were not counted. When an attempt fails, its progress is taken back by a negative advance.
    """

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None: ...

    def say(self, entity: str, message: str) -> None: ...

    def end(self, entity: str, *, well: bool = True) -> None: ...


class Silent:
    """Implements `Progress` by saying nothing."""

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None: ...

    def say(self, entity: str, message: str) -> None: ...

    def end(self, entity: str, *, well: bool = True) -> None: ...
