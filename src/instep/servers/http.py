"""Requests by HTTP: the key they carry, and answers that are read to their end, within a time and up to a size."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from instep.servers.calls import within

if TYPE_CHECKING:
    import httpx

#: 4xx that say nothing about what was asked: time-out, conflict, too early, too many requests.
_PASSING: Final = frozenset({408, 409, 425, 429})


def headers(api_key: str | None, name: str | None = None) -> dict[str, str]:
    """Headers with a key: as a bearer token, or as it is in the header of this name."""
    # An encoding of answers of which no few bytes become gigabytes.
    made = {"Accept-Encoding": "gzip"}
    if api_key:
        made |= {name: api_key} if name else {"Authorization": f"Bearer {api_key}"}
    return made


class TooLarge(Exception):
    """An answer that is larger than any that was asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request; what a caller had written into a file of its own is not in `body`."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_passing(self) -> bool:
        """Whether the same request may fare better later."""
        return self.status in _PASSING or self.status >= 500

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Raises `ValueError` if it is none, `RecursionError` if it is too deep."""
        return json.loads(self.body)


def ask(
    client: httpx.Client,
    method: str,
    url: str,
    *,
    seconds: float,
    most: int,
    into: IO[bytes] | None = None,
    **options: Any,
) -> Answer:
    """Send a request, and read all of its answer: into a file, if there is one and the answer is a success. Raises
    `TimeoutError` when that takes longer, `TooLarge` when it has more than `most` bytes, and the errors of httpx.
    """
    end = time.monotonic() + seconds

    def asked() -> Answer:
        with client.stream(method, url, **options) as response:
            body, size = bytearray(), 0
            for some in response.iter_bytes():
                size += len(some)
                if size > most:
                    raise TooLarge(f"its answer has more than {most:,} bytes")
                if time.monotonic() > end:  # Nobody waits for it any more.
                    raise TimeoutError
                if into is not None and response.is_success:
                    into.write(some)
                else:
                    body += some
        return Answer(response.status_code, response.headers, bytes(body))

    return within(seconds, asked)
