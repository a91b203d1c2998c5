"""Middleware before every route: access, bounded bodies, security headers, and no error that says too much.

Reads are open where only this machine can ask; what changes state needs the token everywhere. A page of another site
that the user's browser has open can ask too, so the names that the server answers to are checked (DNS rebinding), and
a request that a page made must be one of ours (`Origin`).
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from instep.api.problems import answer

#: The path of agents (`instep mcp`). Its tools look at who asks themselves.
AGENTS: Final = "/mcp"
#: Paths of data. All others are files of the page: static, and the same for all users.
_GUARDED: Final = ("/api", "/ws", "/metrics", AGENTS)
#: Of readers' tokens.
_SEARCHES: Final = frozenset({"/api/search", "/api/values", "/api/why"})
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

#: A browser cannot give a WebSocket a header: it offers this and the token behind it as a subprotocol.
TOKEN_PROTOCOL: Final = "instep.token."  # noqa: S105 - what stands before a token


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is not answered, as an HTTP status."""

    status: int
    why: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a request that decide. `offered` are the subprotocols of a WebSocket."""

    method: str
    path: str
    host: str | None
    origin: str | None
    authorization: str | None
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """`loopback`: only this machine reaches the server. `readers`: other tokens, which only ask searches, and the
    principals that each stands for.
    """

    token: str = field(repr=False)
    loopback: bool
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def refusal(self, asked: Asked) -> Refusal | None:
        """The reason why it is refused, or None."""
        name = host_name(asked.host)
        if not name:
            return Refusal(400, "the request names no host that could be understood")
        if self.loopback and name not in _LOOPBACK:
            return Refusal(421, "this server answers to 127.0.0.1, localhost and [::1] only")
        if asked.origin is not None and urlsplit_host(asked.origin) != (asked.host or "").lower():
            return Refusal(403, "pages of other sites may not ask this server")
        if self._needs_token(asked) and not (self._has_token(asked) or self._searches(asked)):
            return Refusal(401, "this needs the token of the server", "Send it as `Authorization: Bearer TOKEN`.")
        return None

    def _needs_token(self, asked: Asked) -> bool:
        if asked.method not in _READS or asked.path == AGENTS:
            return True
        return not self.loopback and is_guarded(asked.path)

    def principals(self, authorization: str | None) -> tuple[str, ...]:
        """The principals of a reader's token; none of any other."""
        given = _bearer(authorization)
        found = [each for token, each in self.readers.items() if given and _same(given, token)]
        return found[0] if found else ()

    def _searches(self, asked: Asked) -> bool:
        """Whether it is a question that a reader's token may ask, with one."""
        open_to_readers = asked.path == AGENTS or (asked.method in _READS and asked.path in _SEARCHES)
        return open_to_readers and bool(self.principals(asked.authorization))

    def _has_token(self, asked: Asked) -> bool:
        candidates = [_bearer(asked.authorization)]
        candidates += [each.removeprefix(TOKEN_PROTOCOL) for each in asked.offered if each.startswith(TOKEN_PROTOCOL)]
        return any(_same(each, self.token) for each in candidates)


def _bearer(authorization: str | None) -> str:
    scheme, _, given = (authorization or "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def is_guarded(path: str) -> bool:
    """Whether it is data, and not one of the page's files."""
    return any(path == each or path.startswith(f"{each}/") for each in _GUARDED)


def host_name(host: str | None) -> str | None:
    """`localhost` of `LocalHost:8321`; None for what is no host."""
    try:
        return urlsplit(f"//{host or ''}").hostname
    except ValueError:
        return None


def urlsplit_host(origin: str) -> str:
    """Host and port of an `Origin`; empty for none, such as `null`."""
    return origin.partition("://")[2].lower()


#: Bytes of a request's body at most.
MAX_BODY: Final = 1 << 20

_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
#: How a WebSocket is closed that may not be opened: policy violation.
_REFUSED: Final = 1008

_log = logging.getLogger("instep.api")


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._access.refusal(_asked(scope, headers))
        if scope["type"] == "websocket":
            if refusal is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": _REFUSED, "reason": refusal.why})
            return
        outgoing = _Outgoing(scope, send)
        if refusal is not None:
            response = answer(refusal.status, refusal.why, hint=refusal.hint)
            if refusal.status == 401:
                response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, outgoing)
        elif _length(headers) > MAX_BODY:
            await too_large()(scope, receive, outgoing)
        else:
            await self._handled(scope, _Incoming(receive), outgoing)

    async def _handled(self, scope: Scope, incoming: _Incoming, outgoing: _Outgoing) -> None:
        try:
            await self._app(scope, incoming, outgoing)
        except Exception as error:
            # The message itself is not shown: other libraries may put secrets into theirs.
            debug = error if os.environ.get("INSTEP_DEBUG") else None
            _log.error("unexpected %s at %s %s", type(error).__name__, scope["method"], scope["path"], exc_info=debug)
            if outgoing.started:
                raise
            await answer(500, f"unexpected {type(error).__name__}")(scope, incoming, outgoing)


class _Incoming:
    """Counts the body of a request that says no length, or a wrong one."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > MAX_BODY:
            raise HTTPException(413, TOO_LARGE)
        return message


class _Outgoing:
    """Adds the security headers."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._fresh = is_guarded(scope["path"])
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            # The page's files are asked for again each time, and are not sent again while they are the same.
            headers.setdefault("cache-control", "no-store" if self._fresh else "no-cache")
        await self._send(message)


TOO_LARGE: Final = f"the body of a request is at most {MAX_BODY:,} bytes"


def too_large() -> ASGIApp:
    return answer(413, TOO_LARGE)


def _length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdecimal() else 0


def _asked(scope: Scope, headers: Headers) -> Asked:
    offered = headers.get("sec-websocket-protocol", "")
    return Asked(
        method=scope.get("method", "GET"),
        path=scope["path"],
        host=headers.get("host"),
        origin=headers.get("origin"),
        authorization=headers.get("authorization"),
        offered=tuple(each.strip() for each in offered.split(",")),
    )
