"""What Instep needs of a document source. Sources travel to Spark tasks, so they are picklable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from instep.domain.manifest import SourceDocument


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything found. `complete` is False when a part could not be listed: then nothing is deleted."""

    documents: Sequence[SourceDocument]
    problems: Sequence[str]

    @property
    def complete(self) -> bool:
        return not self.problems


class Content(NamedTuple):
    """A document as read: bytes, and the size and version that belong to exactly these bytes."""

    data: bytes
    size: int
    version: str


class Vanished(Exception):
    """The document was listed and is gone now. Not a failure: the next listing deletes it."""


class Unreadable(Exception):
    """The document is there and cannot be read; the message says why."""


class DocumentSource(Protocol):
    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """List all documents; `progress` is told the number found so far, now and then.

        Raises `UserError` when the root is missing.
        """

    def read(self, uri: str, *, max_bytes: int) -> Content:
        """Read one document. Raises `Vanished` or `Unreadable` (also when over `max_bytes`)."""
