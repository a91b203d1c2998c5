"""Answers by HTTP that are read to their end, within a time and up to a size."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from instep.servers.calls import within

if TYPE_CHECKING:
    import httpx

#: An encoding of answers of which no few bytes become gigabytes.
HEADERS: Final = {"Accept-Encoding": "gzip"}


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
