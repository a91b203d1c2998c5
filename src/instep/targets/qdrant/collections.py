"""The port of Qdrant collections, in this process or on a server, and its errors.

`server.ServerCollections` asks a server, `edge.EdgeCollections` works in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from instep.errors import InstepError, UserError
from instep.targets.qdrant.points import Points, Where

#: How a field of the payload is indexed: `text` for words, ranked by BM25.
FieldIndex = Literal["keyword", "integer", "text"]

#: Words are found whatever their case and accents, and in scripts that do not part them by spaces.
TEXT_INDEX: Mapping[str, Any] = {"tokenizer": "multilingual", "lowercase": True, "ascii_folding": True, "scoring": True}


class TooLarge(InstepError):
    """A request has more bytes than Qdrant takes: in parts it may do with them."""


class Missing(UserError):
    """There is no such collection."""


class Scored(NamedTuple):
    score: float
    payload: Mapping[str, Any]


class Page(NamedTuple):
    """Payloads in the order of their points' ids; `next` is where to go on, None at the end."""

    payloads: Sequence[Mapping[str, Any]]
    next: str | None


class Collections(Protocol):
    """Every write is seen by every later read. All of them may be repeated."""

    @property
    def shown(self) -> str:
        """The address without secrets."""

    def check(self) -> None:
        """Raises `UserError` or `Away` unless collections can be worked with."""

    def names(self) -> list[str]: ...

    def dimensions(self, name: str) -> int | None:
        """Of its vectors (0: it has none), or None: there is no such collection."""

    def create(self, name: str, dimensions: int, indexes: Mapping[str, FieldIndex]) -> None:
        """Of 0 dimensions: without vectors. What of it is there already stays."""

    def drop(self, name: str) -> None: ...

    def upsert(self, name: str, points: Points, *, only_if: Where) -> None:
        """Write points; those that are there only if they meet the condition: that is looked at in the same step."""

    def delete(self, name: str, where: Where) -> None: ...

    def page(self, name: str, where: Where, *, fields: Sequence[str], limit: int, after: str | None = None) -> Page: ...

    def last(self, name: str, where: Where, by: str) -> Mapping[str, Any] | None:
        """The payload with the highest value of an indexed field."""

    def get(self, name: str, ids: Sequence[str], *, fields: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Payloads by id, of the points that are there."""

    def vectors(self, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """By id, of the points that are there."""

    def count(self, name: str) -> int: ...

    def nearest(self, name: str, vector: Sequence[float], *, fields: Sequence[str], limit: int) -> list[Scored]: ...

    def ranked(self, name: str, field: str, text: str, *, fields: Sequence[str], limit: int) -> list[Scored]:
        """By BM25, for a collection with an index of kind `text` on this field. Raises `UserError` without one."""

    def settle(self, name: str) -> None:
        """What was written outlives the machine's power."""

    def tidy(self, name: str) -> None:
        """After a load: let searches find their way through what was written, and free what was deleted."""

    def refine(self, name: str, begin: Callable[[], None]) -> None:
        """See `IndexTarget.refine`."""

    def pointed(self, alias: str) -> str | None:
        """The collection that readers find by this other name."""

    def point(self, alias: str, name: str | None) -> None:
        """Let readers find a collection by this name, in one step; None: no longer any."""
