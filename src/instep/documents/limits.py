"""What a document may be at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """A document over a limit is a failure; its neighbours are not touched by it."""

    max_document_bytes: int = 256_000_000
    max_line_bytes: int = 1_000_000


DEFAULT_LIMITS = Limits()
