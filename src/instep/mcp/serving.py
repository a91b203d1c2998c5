"""Serve the tools of agents on standard input and output, or over HTTP behind the same guard as the API."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from instep.api.application import readers_of
from instep.api.middleware import AGENTS, MAX_BODY, Access, Guard
from instep.app import Instep
from instep.mcp.tools import Caller, create_server

#: The guard in front looks at hosts and origins already.
_GUARDED: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def _of_a_client_that_stayed(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))


# The SDK logs a traceback for each client that goes away in the middle of its request.
logging.getLogger("mcp.server.streamable_http").addFilter(_of_a_client_that_stayed)


def serve_stdio(instep: Instep, *, principals: Sequence[str] = (), changes: bool = False) -> None:
    """Answer the process that started this one, until it closes standard input. With `principals`, as a reader."""
    caller = Caller(tuple(principals), reader=bool(principals))
    create_server(instep, lambda _: caller, changes=changes).run("stdio")


def create_mcp_app(instep: Instep, *, token: str, loopback: bool, changes: bool = False) -> ASGIApp:
    """The application at `/mcp`. Each request needs `token`, or that of a reader, which stands for its principals."""
    access = Access(token, loopback, readers_of(instep.project))

    def caller(headers: Mapping[str, str] | None) -> Caller:
        principals = access.principals((headers or {}).get("authorization"))
        return Caller(principals, reader=bool(principals))

    app = create_server(instep, caller, changes=changes).streamable_http_app(
        streamable_http_path=AGENTS,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        transport_security=_GUARDED,
    )
    return Guard(app, access)
