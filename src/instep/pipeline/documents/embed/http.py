"""Vectors from an endpoint, by OpenAI's protocol or another."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from instep.domain.fingerprint import digest
from instep.domain.texts import cleaned, without
from instep.errors import InstepError, Transient, UserError
from instep.pipeline.documents.embed.embedder import PROBE, EmbedRejected, as_list
from instep.pipeline.documents.embed.meter import Meter, Paid
from instep.pipeline.documents.embed.protocols import EmbeddingProtocol, OpenAIProtocol, Request, requests
from instep.pipeline.documents.embed.slots import slot
from instep.pipeline.documents.embed.vector_formats import most_bytes, vector_of
from instep.servers.calls import tries
from instep.servers.http import Answer, TooLarge, ask, headers

if TYPE_CHECKING:
    import httpx

    from instep.pipeline.documents.embed.embedder import Texts, Vectors

#: The endpoint, the key or the model is wrong: no other text would fare better. So it is where we are sent elsewhere.
_MISCONFIGURED = frozenset({401, 402, 403, 404, 405})
#: Never waits longer than this because an endpoint says so, in seconds.
_LONGEST_WAIT = 60.0
#: How long a look at an endpoint may take, and how large its answer is at most.
_LOOK_SECONDS = 5.0
_LOOK_BYTES = 1_000_000
#: At so many answers of 500 it is looked whether another text is embedded.
_SUSPICIOUS = 3


class _Unavailable(Exception):
    """Worth another try; `after` is what the endpoint asked us to wait, in seconds."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class _Failed(_Unavailable):
    """An answer of 500, or one that lacks vectors: the endpoint is broken, or it is one that says so of a text that is
    too long (llama.cpp).
    """


class _NoAnswer(Exception):
    """No answer came in time. Not retried here: that would take minutes without a message."""


@dataclass(frozen=True)
class HttpEmbedder:
    """Asks `url` for vectors by its protocol, `batch` texts at a time, or as few as the protocol allows.

    The URL's query, if it has one, is sent with each request; the key is a bearer token, or in `api_key_header` as it
    is. Tries again with growing pauses on outages, 5xx and 429 (`Retry-After` is honoured); then raises `Transient`,
    and at once when there is no whole answer within `timeout` seconds. A refusal of the texts (other 4xx, or 500 while
    another text is embedded) or an answer that does not fit raises `EmbedRejected`, a wrong key or address or vectors
    of another length `UserError`.
    `requests_per_minute` holds for this process, `requests_at_once` for all processes of this machine. `prompt` stands
    before each text. `shorten`: the endpoint is asked for vectors of this length.
    """

    url: str
    model: str
    dimensions: int
    prompt: str = ""
    shorten: bool = False
    api_key: str | None = field(default=None, repr=False)
    api_key_header: str | None = None
    batch: int = 64
    requests_per_minute: int | None = None
    requests_at_once: int | None = None
    timeout: float = 60.0
    attempts: int = 6
    first_wait: float = 0.5
    protocol: EmbeddingProtocol = field(default_factory=OpenAIProtocol)
    meter: Meter = field(default_factory=Meter, compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """The model as its host knows it: the same name elsewhere may be another model."""
        place = self.url.split("?")[0].rstrip("/")
        prompt = [self.prompt] if self.prompt else []
        return digest([self.protocol.name, place, self.model, self.dimensions, *self.protocol.kind, *prompt])

    @property
    def cached(self) -> bool:
        return True

    def portions(self, texts: Texts) -> Iterable[int]:
        return map(len, self._requests(texts))

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np

        parts = [self._batch(each) for each in self._requests(texts)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dimensions), np.float32)

    def _requests(self, texts: Texts) -> Iterator[Sequence[str]]:
        return requests(self.protocol, [self.prompt + each for each in as_list(texts)], self.batch)

    def _batch(self, texts: Sequence[str]) -> Vectors:
        try:
            for attempt in tries(
                _retry_hook, attempts=self.attempts, first_wait=self.first_wait, longest_wait=_LONGEST_WAIT
            ):
                with attempt:
                    try:
                        return self._request(texts)
                    except _Failed:
                        if attempt.num < _SUSPICIOUS or not self._embeds_another():
                            raise
                    try:
                        return self._request(texts)  # The outage may just be over.
                    except _Failed as error:
                        raise EmbedRejected(f"the embedder refused it: {error}") from None
        except _Unavailable as error:
            raise Transient(f"{self._place} is out of reach: {error}") from None
        except _NoAnswer:
            raise Transient(f"{self._place} is out of reach: no whole answer within {self.timeout:.0f} s") from None
        raise AssertionError("a retry ends with an answer or an error")

    def _embeds_another(self) -> bool:
        """Whether the endpoint embeds a harmless text at this moment."""
        try:
            self._request([PROBE])
        except (InstepError, _Unavailable, _NoAnswer):
            return False
        return True

    @property
    def _place(self) -> str:
        """The endpoint as text for people, without users, passwords and options that its address may have."""
        address = urlsplit(self.url)
        return f"the embedder at {address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"

    def outage(self) -> str | None:
        """The reason why nothing would be embedded now: nobody answers. Asks for no vector, and not for long."""
        client, _ = _connection(self)
        import httpx

        try:
            ask(client, "GET", self.protocol.path, seconds=_LOOK_SECONDS, most=_LOOK_BYTES)
        except (TimeoutError, httpx.TimeoutException):
            return f"{self._place} is out of reach: no answer within {_LOOK_SECONDS:.0f} s"
        except httpx.ConnectError as error:
            return f"{self._place} is out of reach: {type(error).__name__}"
        except (TooLarge, httpx.HTTPError, httpx.InvalidURL):  # It is there, or a run says what is wrong.
            return None
        return None

    def metered(self, meter: Meter) -> HttpEmbedder:
        """A copy that counts on this meter what it is billed for."""
        return replace(self, meter=meter)

    def _request(self, texts: Sequence[str]) -> Vectors:
        with self.meter.request(texts) as paid:
            return self._asked(texts, paid)

    def _asked(self, texts: Sequence[str], paid: Paid) -> Vectors:
        client, turns = _connection(self)
        import httpx

        body = self.protocol.body(Request(self.model, texts, self.dimensions if self.shorten else None))
        turns.wait()
        try:
            with slot(self.url, self.requests_at_once):
                most = most_bytes(texts, self.dimensions)
                response = ask(client, "POST", self.protocol.path, seconds=self.timeout, most=most, json=body)
        except (TimeoutError, httpx.TimeoutException):
            raise _NoAnswer from None
        except TooLarge as error:
            raise _Unavailable(str(error)) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError):
            paid.nothing()
            raise _no_request() from None
        except httpx.RequestError as error:
            if isinstance(error, httpx.ConnectError):
                paid.nothing()
            raise _Unavailable(type(error).__name__) from None
        if not response.is_success:
            paid.nothing()
        status = response.status
        if response.is_passing:
            kind = _Failed if status == 500 else _Unavailable
            raise kind(f"it answered {status}: {self._complaint(response)}", _retry_after(response))
        if status in _MISCONFIGURED or 300 <= status < 400:
            raise UserError(
                f"the embedder refuses to work ({status}): {self._complaint(response)}",
                hint="Check `url`, `model` and `api_key` under `embed`.",
            )
        if not response.is_success:
            raise EmbedRejected(f"the embedder refused it ({status}): {self._complaint(response)}")
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            raise _Unavailable("its answer is not JSON") from None
        paid.tokens(len(texts), self.protocol.billed_tokens(answer))
        return self._vectors(answer, len(texts))

    def _vectors(self, answer: Any, count: int) -> Vectors:
        """Vectors in the order of the texts, by `index` if the answer has it."""
        import numpy as np

        items = self.protocol.items(answer)
        if not isinstance(items, list) or len(items) != count:
            found = len(items) if isinstance(items, list) else 0
            said = self._hidden(self._said(answer))
            raise _Failed(f"it gave {found} vectors for {count} texts{f': {said}' if said else ''}")
        vectors = np.zeros((count, self.dimensions), np.float32)
        seen: set[int] = set()
        for position, item in enumerate(items):
            index = item.get("index", position) if isinstance(item, dict) else -1
            if type(index) is not int or not 0 <= index < count or index in seen:
                raise _Failed("its answer does not say which vector is of which text")
            seen.add(index)
            vectors[index] = vector_of(item.get("embedding"), self.dimensions)
        return vectors

    def _complaint(self, response: Answer) -> str:
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            return self._hidden(response.text)
        return self._hidden(self._said(answer) or response.text)

    def _said(self, answer: Any) -> str:
        """The reason that an answer names, in the words of its protocol; none if it names none."""
        return self.protocol.complaint(answer) if isinstance(answer, dict) else ""

    def _hidden(self, text: str) -> str:
        return cleaned(without(text, self.api_key))


class _Turns:
    """Spaces requests evenly: at most `per_minute` in a minute."""

    def __init__(self, per_minute: int | None) -> None:
        self._pause = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        if not self._pause:
            return
        with self._lock:
            now = time.monotonic()
            mine = max(now, self._next)
            self._next = mine + self._pause
        time.sleep(mine - now)


#: One client (connections are kept open) and one rate per endpoint in a process.
_CONNECTIONS: dict[tuple[Any, ...], tuple[httpx.Client, _Turns]] = {}
_LOCK = threading.Lock()


def _forget() -> None:
    """Forget, in a forked process, connections that are its parent's, and a lock that may be held for ever."""
    global _LOCK  # noqa: PLW0603
    _LOCK = threading.Lock()
    _CONNECTIONS.clear()


os.register_at_fork(after_in_child=_forget)


def _connection(embedder: HttpEmbedder) -> tuple[httpx.Client, _Turns]:
    about = (embedder.url, embedder.api_key, embedder.api_key_header, embedder.requests_per_minute, embedder.timeout)
    with _LOCK:
        if about not in _CONNECTIONS:
            _CONNECTIONS[about] = client_of(embedder, embedder.timeout), _Turns(embedder.requests_per_minute)
        return _CONNECTIONS[about]


def client_of(embedder: HttpEmbedder, timeout: float) -> httpx.Client:
    """A client for paths below the embedder's URL, with its query and its key."""
    try:
        import httpx
    except ImportError:
        raise UserError("an HTTP embedder needs httpx", hint="Run: pip install 'instep[openai]'") from None
    base, _, query = embedder.url.partition("?")
    made = headers(embedder.api_key, embedder.api_key_header)
    try:
        return httpx.Client(base_url=base, params=query, headers=made, timeout=timeout)
    except (UnicodeError, httpx.InvalidURL):
        raise _no_request() from None


def _no_request() -> UserError:
    """The error for an invalid request, in our words: the library's own may repeat the key."""
    return UserError(
        "no request can be made of the embedder's `url` and `api_key`",
        hint="Check both under `embed`: the key may have a line break at its end, or a letter that no key has.",
    )


def _retry_hook(error: Exception) -> bool | float:
    """Stamina's hook: whether to try again, and after how many seconds if the endpoint said so."""
    if not isinstance(error, _Unavailable):
        return False
    return True if error.after is None else error.after


def _retry_after(response: Answer) -> float | None:
    """Seconds from `Retry-After`, a number or a date; None if it is missing or makes no sense."""
    text = response.headers.get("retry-after")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(seconds, 0.0), _LONGEST_WAIT)


def close_connections() -> None:
    """Close what this process has open to endpoints; the next request opens it again."""
    with _LOCK:
        for client, _ in _CONNECTIONS.values():
            client.close()
        _CONNECTIONS.clear()
