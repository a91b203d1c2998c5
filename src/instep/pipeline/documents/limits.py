"""Limits of a document: bytes, length of a line, chunks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: Where documents over the limit are indexed all the same, none of more than so many times the limit is read: they are
#: held in memory whole.
MOST_TIMES: Final = 4


class Oversize(StrEnum):
    """The treatment of a document over a limit. `FAIL` and `SKIP` leave alone what is indexed of it."""

    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Limits:
    """A document over a limit does not touch its neighbours. A line that is too long is a failure in any case."""

    max_document_bytes: int = 256_000_000
    max_line_bytes: int = 1_000_000
    max_chunks: int | None = None
    on_oversize: Oversize = Oversize.FAIL

    @property
    def ceiling(self) -> int:
        """Bytes of the largest document that is read."""
        return self.max_document_bytes * (MOST_TIMES if self.on_oversize is Oversize.WARN else 1)

    def bytes_text(self, size: int) -> str:
        """Why a document of so many bytes is not read."""
        if self.on_oversize is Oversize.WARN:
            return f"too large: {size:,} bytes; not even with a warning are more than {self.ceiling:,} read"
        return f"too large: {size:,} bytes; max_document_bytes is {self.max_document_bytes:,}"

    def chunks_text(self, chunks: int) -> str | None:
        """Why a document of so many chunks is too large, or None."""
        if self.max_chunks is None or chunks <= self.max_chunks:
            return None
        return f"too large: {chunks:,} chunks; max_chunks is {self.max_chunks:,}"


DEFAULT_LIMITS: Final = Limits()
