"""`instep mcp`: the server for agents, by the Model Context Protocol."""

from __future__ import annotations

import secrets
import sys
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from instep.cli import serve
from instep.cli.options import AsOption, JsonOption, ProjectOption
from instep.cli.output import Output
from instep.errors import UserError

_HOST: Final = "127.0.0.1"


def mcp(
    as_: AsOption = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let agents ask for partitions, too.", show_default=False)
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Serve HTTP here; 0 is any port that is free. By default standard input and output.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="With --port: where to listen.")] = _HOST,
    token_file: serve.TokenFileOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let agents search the project, by the Model Context Protocol.

    They can also ask where passages come from.

    They only read unless --allow-changes is given. A client starts it and talks with it on standard input and output;
    with --port it serves HTTP at /mcp instead, and each request needs the token.

    With --as an agent is a reader: it finds what this person may read, and is told nothing else of the project. Over
    HTTP a reader's token of the project file does that.

    \b
    Examples:
      instep mcp --project docs
      instep mcp --as alice --as group:ops
      instep mcp --port 8322 --token-file token.txt
    """
    from instep.app import load

    if find_spec("mcp") is None:
        raise UserError("agents need the package mcp", hint="pip install 'instep[mcp]'")
    serve.demand_libraries()
    from instep.mcp.serving import create_mcp_app, serve_stdio

    instep = load(project)
    if port is None:
        if token_file or host != _HOST:
            raise UserError("--host and --token-file are for HTTP", hint="Add --port.")
        serve_stdio(instep, principals=as_ or (), changes=allow_changes)
        return
    if as_:
        raise UserError(
            "--as is for standard input and output", hint="Over HTTP give each reader a token: `api: {tokens: …}`."
        )
    given = serve.given_token(token_file)
    token = given or secrets.token_urlsafe(24)
    listening = serve.listen(host, port)
    address = f"{serve.address_of(host, listening.getsockname()[1])}/mcp"
    out = Output(as_json=as_json)
    shown = {"name": instep.project.name, "address": address, "token": None if given else token}
    with_token = "" if given else f" with the token {token}"
    out.result(shown, lambda: out.line(f"{instep.project.name} is served to agents at {address}{with_token}"))
    sys.stdout.flush()
    app = create_mcp_app(instep, token=token, loopback=serve.is_loopback(host), changes=allow_changes)
    serve.run_server(app, listening)
    out.note("stopped")
