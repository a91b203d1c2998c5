"""`instep serve`: the server of page and HTTP API."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LIBRARIES: Final = ("fastapi", "prometheus_client", "uvicorn", "websockets")
_VARIABLE: Final = "INSTEP_TOKEN"
#: Seconds that requests in work have after a signal to stop.
_GRACE: Final = 5

TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="PATH",
        help="File with the token; by default that in INSTEP_TOKEN, or one that is made for this run.",
        show_default=False,
    ),
]


def serve(
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="ADDRESS", help="Address to listen on; if it is not loopback, reads need the token too."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0 is any that is free.")
    ] = 8321,
    token_file: TokenFileOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the project: a page that shows it, and an HTTP API.

    It serves until Ctrl-C or SIGTERM. Requests that change something need the token, which is printed with the
    address if it was made for this run.

    \b
    Examples:
      instep serve
      instep serve --port 9000 --project docs
      INSTEP_TOKEN=... instep serve --host 0.0.0.0
      instep serve --port 0 --json
    """
    from instep.app import load

    demand_libraries()
    from instep.api.application import create_app

    instep = load(project)
    given = given_token(token_file)
    token = given or secrets.token_urlsafe(24)
    listening = listen(host, port)
    out, address = Output(as_json=as_json), address_of(host, listening.getsockname()[1])
    link = f"{address}/" if given else f"{address}/#token={token}"
    shown = {"name": instep.project.name, "address": address, "token": None if given else token}
    out.result(shown, lambda: out.line(f"{instep.project.name} is served at {link}"))
    sys.stdout.flush()
    path = ["--project", str(project)] if project is not None else []
    worker = [sys.executable, "-m", "instep", "worker", *path]
    run_server(create_app(instep, token=token, loopback=is_loopback(host), worker=worker), listening)
    out.note("stopped")


def demand_libraries() -> None:
    missing = [each for each in _LIBRARIES if find_spec(each) is None]
    if missing:
        raise UserError(f"serving needs {', '.join(missing)}", hint="pip install 'instep[serve]'")


def given_token(file: Path | None) -> str | None:
    """The token from a file or the environment. Raises `UserError` for one that could be guessed, or that no header
    holds.
    """
    from instep.project.api import token_fault

    if file is not None:
        where = str(file)
        try:
            token = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError("the token cannot be read", where=where, hint=str(error)) from error
    elif _VARIABLE in os.environ:
        where, token = _VARIABLE, os.environ[_VARIABLE].strip()
    else:
        return None
    if fault := token_fault(token):
        raise UserError(
            f"a token {fault}",
            where=where,
            hint="Make one with: openssl rand -hex 24",
        )
    return token


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Bind the port here, so that a port in use is one clear error, and a free one is known before it is served."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()  # A client that reads the address may ask at once, and is answered when the server is ready.
    except OSError as error:
        listening.close()
        raise _cannot_listen(host, port, error) from error
    return listening


def _cannot_listen(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"it cannot listen on {host} port {port}: {error.strerror or error}",
        hint="Name another with --host or --port; --port 0 takes any that is free.",
    )


def address_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until a signal. Requests in hand are answered, then what runs beside them is ended."""
    import uvicorn

    from instep.api.connections import Connection, websocket_options

    config = uvicorn.Config(
        app,
        http=Connection,
        access_log=False,
        log_level="warning",
        server_header=False,
        **websocket_options(),
        timeout_graceful_shutdown=_GRACE,
    )
    try:
        with terminate_like_ctrl_c():  # It gives a signal again when it has ended.
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # The usual end of a server.
    finally:
        listening.close()
