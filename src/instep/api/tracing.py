"""Trace context of requests (`traceparent`): the work of a request belongs to its client's trace."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from instep.api.server import Server
from instep.telemetry import traces
from instep.telemetry.context import received, within


class Traced:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        said = {"traceparent": headers.get("traceparent", ""), "tracestate": ",".join(headers.getlist("tracestate"))}
        with within(received(said)):
            await self._app(scope, receive, send)


def mount(app: FastAPI, _server: Server) -> None:
    traces.enabled()  # An error in the settings of traces shows now, not at the first request.
    app.add_middleware(Traced)
