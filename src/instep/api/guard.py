"""Middleware before every route: access, bounded bodies, security headers, and no error that says too much."""

from __future__ import annotations

import logging
import os
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from instep.api.access import Access, Asked, is_guarded
from instep.api.problems import answer

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
