"""A server of OpenSearch: its client, what is asked again, and what its errors mean."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from instep.deadline import Greeting, within
from instep.errors import InstepError, Transient, UserError
from instep.targets.server_retry import tries

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from opensearchpy.exceptions import TransportError

#: Seconds of one request.
TIMEOUT = 120

_TOO_MANY = 429
_SERVER_ERROR = 500
_REQUEST_TOO_LARGE = 413
_NOT_THERE = 404
_TAKEN = 409
_REFUSED = (401, 403)

_NO_ANSWER = f"no answer within {TIMEOUT} s"
_GREETING = Greeting()

#: Connections kept to a server: more than one task has in flight.
_POOL = 32


class TooLarge(InstepError):
    """A request has more bytes than the server takes: in parts it may do with them."""


class Missing(UserError):
    """There is no such index, document or alias."""


class Taken(UserError):
    """What was to be made is there, or newer."""


class Unavailable(Exception):
    """Worth another try."""


@dataclass(frozen=True)
class Connection:
    """What goes wrong on it never shows a secret."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        address = urlsplit(self.url)
        port = address.port or (443 if address.scheme == "https" else 9200)
        return f"{address.scheme}://{address.hostname or ''}:{port}"

    def ask(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Again while the server is out of reach or overloaded; what it refuses it is not asked twice."""
        try:
            for attempt in tries(Unavailable):
                with attempt:
                    return self.once(method, path, body, params=params)
        except Unavailable as error:
            raise Transient(f"{self.shown}: {error}") from None
        raise AssertionError("a retry ends with an answer or an error")

    def once(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One try, which raises `Unavailable` when another one may do."""
        client = _client(self.url, self.user, self.password, self.api_key, os.getpid())
        try:
            _GREETING.demand(self, partial(client.transport.perform_request, "GET", "/"))
        except TimeoutError as error:
            raise Transient(f"{self.shown}: {error}") from None
        with self._understood():
            ask = partial(client.transport.perform_request, method, path, params=dict(params or {}), body=body)
            answer = within(2 * TIMEOUT, ask)
        if not isinstance(answer, dict):
            raise Unavailable(f"it answered something else than expected: {str(answer)[:100]!r}")
        return answer

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        from opensearchpy.exceptions import (
            AuthenticationException,
            AuthorizationException,
            ConnectionError,
            ConnectionTimeout,
            SerializationError,
            TransportError,
        )

        try:
            yield
        except (TimeoutError, ConnectionTimeout) as error:
            _GREETING.forget(self)
            raise Unavailable(str(error) if isinstance(error, TimeoutError) else _NO_ANSWER) from None
        except ConnectionError as error:
            raise Unavailable(f"it cannot be reached: {self._hushed(error.error)}") from None
        except SerializationError:
            raise Unavailable("its answer cannot be read") from None
        except (AuthenticationException, AuthorizationException) as error:
            raise self._meant(int(error.status_code), self._hushed(_reason(error))) from None
        except TransportError as error:
            raise self._meant(int(error.status_code), self._hushed(_reason(error))) from None

    def _meant(self, status: int, reason: str) -> Exception:
        if status == _REQUEST_TOO_LARGE:
            return TooLarge(f"{self.shown}: {reason}")
        if status == _TOO_MANY or status >= _SERVER_ERROR:
            return Unavailable(f"it answered {status}: {reason}")
        if "flood-stage" in reason or "read-only-allow-delete" in reason:
            return UserError("no space left for the index", where=self.shown, hint="Free some space, then run again.")
        if status in _REFUSED:
            hint = "Check the target's user and password, or its api_key."
            return UserError(f"the server refuses: {reason}", where=self.shown, hint=hint)
        if status == _NOT_THERE:
            return Missing(f"there is no such index: {reason}", where=self.shown, hint="Build it with: instep run")
        taken = status == _TAKEN or "already_exists" in reason
        return (Taken if taken else UserError)(f"the server refused: {reason}", where=self.shown)

    def _hushed(self, said: object) -> str:
        text = str(said).strip()
        for secret in (self.password, self.api_key):
            text = text.replace(secret, "***") if secret else text
        return text


def path(*parts: str) -> str:
    """Names as a path of a URL."""
    return "/" + "/".join(quote(each, safe="") for each in parts)


@cache
def _client(url: str, user: str | None, password: str | None, api_key: str | None, process: int) -> OpenSearch:
    """Kept: it keeps connections, which are no good to a fork (`process`)."""
    try:
        from opensearchpy import OpenSearch
    except ImportError:
        raise UserError("OpenSearch needs opensearch-py", hint="pip install 'instep[opensearch]'") from None
    # What goes wrong is Instep's to say.
    logging.getLogger("opensearch").addHandler(logging.NullHandler())
    return OpenSearch(
        [url],
        http_auth=(user, password or "") if user else None,
        headers={"Authorization": f"ApiKey {api_key}"} if api_key else None,
        timeout=TIMEOUT,
        max_retries=0,
        pool_maxsize=_POOL,
    )


def _reason(error: TransportError) -> str:
    """What the server says, without what surrounds it."""
    info = error.info
    said = info.get("error") if isinstance(info, dict) else None
    if isinstance(said, dict):
        return f"{said.get('type')}: {said.get('reason')}"
    return str(said or error.error)[:300]
