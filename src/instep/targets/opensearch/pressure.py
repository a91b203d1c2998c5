"""Adaptive limit of concurrent requests: less when the server is overloaded, more again later. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

#: Unless the project says otherwise: of one request, and of how many at once.
MAX_PAYLOAD_BYTES: Final = 10_000_000
MAX_REQUESTS: Final = 4

#: OpenSearch's own `http.max_content_length`, unless it is told otherwise.
LARGEST_PAYLOAD_BYTES: Final = 100_000_000

#: As opensearch-py's own helpers: what a task has at hand makes several requests, which the server takes side by side.
_MAX_ROWS: Final = 500
_LEAST_ROWS: Final = 10
_LEAST_BYTES: Final = 64 * 1024

#: So many answers in a row without a complaint, and it is tried with more.
_CALM: Final = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """What one request may hold now, how many there may be in flight, and what both may grow to."""

    rows: int
    bytes: int
    requests: int
    most: tuple[int, int, int]
    quiet: int = 0

    @classmethod
    def fullest(cls, payload: int, requests: int) -> Pace:
        return cls(_MAX_ROWS, payload, requests, (_MAX_ROWS, payload, requests))

    def slowed(self) -> Pace:
        """Half of everything."""
        return replace(
            self,
            rows=max(_LEAST_ROWS, self.rows // 2),
            bytes=max(min(_LEAST_BYTES, self.bytes), self.bytes // 2),
            requests=max(1, self.requests // 2),
            quiet=0,
        )

    def calm(self) -> Pace:
        """After an answer without a complaint."""
        if self.quiet + 1 < _CALM:
            return replace(self, quiet=self.quiet + 1)
        rows, bytes_, requests = self.most
        return replace(
            self,
            rows=min(rows, self.rows * 2),
            bytes=min(bytes_, self.bytes * 2),
            requests=min(requests, self.requests + 1),
            quiet=0,
        )

    def within(self, bytes_: int) -> Pace:
        """After the server said that more than this is too large, which will not change: it is the most from now on."""
        rows, most, requests = self.most
        return replace(self, bytes=min(self.bytes, bytes_), most=(rows, min(most, bytes_), requests), quiet=0)
