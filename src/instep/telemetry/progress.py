"""What a long use case tells whoever watches it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called from several threads. `entity` is the label of a partition; a `unit` is a document, or a row. `total`
    is None when nobody has counted them. What was advanced is taken back, by less than nothing, when its attempt fails.
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
