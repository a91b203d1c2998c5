"""Connection to a Qdrant server: its client, retries, and the meaning of its errors."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from instep.deadline import Greeting, within
from instep.errors import Transient, UserError
from instep.targets.qdrant.collections import Missing, TooLarge
from instep.targets.server_retry import tries

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

T = TypeVar("T")

#: Seconds of one request.
_TIMEOUT = 120

_GREETING = Greeting()

_TOO_MANY = 429
_SERVER_ERROR = 500
_REQUEST_TOO_LARGE = 413
_NOT_THERE = 404
_EXISTS = 409
_REFUSED = (401, 403)


class Exists(UserError):
    """A collection or an alias of this name is there."""


class _Unavailable(Exception):
    """Worth another try."""


@dataclass(frozen=True)
class Connection:
    """What goes wrong on it never shows the key."""

    url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        address = urlsplit(self.url)
        return f"{address.scheme}://{address.hostname or ''}:{address.port or 6333}"

    def open(self) -> QdrantClient:
        return _client(self.url, self.api_key, os.getpid())

    def call(self, ask: Callable[[QdrantClient], T]) -> T:
        """Again while the server is out of reach or overloaded; what it refuses it is not asked twice."""
        try:
            _GREETING.demand(self, lambda: self.open().info())
        except TimeoutError as error:
            raise Transient(f"{self.shown}: {error}") from None
        try:
            for attempt in tries(_Unavailable):
                with attempt, self._understood():
                    return within(2 * _TIMEOUT, lambda: ask(self.open()))
        except _Unavailable as error:
            raise Transient(f"{self.shown}: {error}") from None
        raise AssertionError("a retry ends with an answer or an error")

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            yield
        except TimeoutError as error:
            _GREETING.forget(self)
            raise _Unavailable(str(error)) from None
        except ResourceExhaustedResponse as error:
            raise _Unavailable(f"it is overloaded: {self._hushed(error)}") from None
        except ResponseHandlingException as error:
            raise _Unavailable(f"it cannot be reached: {self._hushed(error.source)}") from None
        except UnexpectedResponse as error:
            raise self._meant(int(error.status_code or 0), self._hushed(_reason(error))) from None

    def _meant(self, status: int, reason: str) -> Exception:
        if status == _REQUEST_TOO_LARGE or "larger than allowed" in reason:
            return TooLarge(f"{self.shown}: {reason}")
        if "no space left" in reason.lower():
            return UserError("no space left for the index", where=self.shown, hint="Free some space, then run again.")
        if status == _TOO_MANY or status >= _SERVER_ERROR:
            return _Unavailable(f"it answered {status}: {reason}")
        if status in _REFUSED:
            return UserError(f"Qdrant refuses: {reason}", where=self.shown, hint="Check the target's api_key.")
        if status == _NOT_THERE:
            return Missing(f"there is no such index: {reason}", where=self.shown, hint="Build it with: instep run")
        kind = Exists if status == _EXISTS or "already exists" in reason else UserError
        return kind(f"Qdrant refused: {reason}", where=self.shown)

    def _hushed(self, said: object) -> str:
        text = str(said).strip() or type(said).__name__
        return text.replace(self.api_key, "***") if self.api_key else text


@cache
def _client(url: str, api_key: str | None, process: int) -> QdrantClient:
    """Kept: it keeps connections, which are no good to a fork (`process`)."""
    try:
        from qdrant_client import QdrantClient
    except ImportError:
        raise UserError("Qdrant needs qdrant-client", hint="pip install 'instep[qdrant]'") from None
    with warnings.catch_warnings():
        # That a key travels in clear text is for the project's documentation to say, not for every command.
        warnings.simplefilter("ignore", UserWarning)
        return QdrantClient(url=url, api_key=api_key, timeout=_TIMEOUT, check_compatibility=False)


def _reason(error: Any) -> str:
    """What the server says, without what surrounds it."""
    try:
        said = error.structured()["status"]["error"]
    except (ValueError, KeyError, TypeError):
        said = error.content.decode(errors="replace")[:300] or error.reason_phrase
    return str(said)
