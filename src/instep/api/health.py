"""`/healthz` and `/readyz`, for probes: they need no token, and say nothing but whether this server works."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response

from instep.api.dependencies import Server
from instep.api.metrics import Kept
from instep.container import Container

#: For how long the ledger's last answer counts: probes come often, and from anywhere.
SECONDS: Final = 2.0


def mount(app: FastAPI, server: Server) -> None:
    """Serve them. Must come before what takes all paths that are left."""
    kept = Kept(lambda: _ask_ledger(server), SECONDS)

    def alive() -> Response:
        return PlainTextResponse("ok\n")

    def ready() -> Response:
        if kept.get():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the ledger does not answer\n", 503)

    app.add_api_route("/healthz", alive, include_in_schema=False)
    app.add_api_route("/readyz", ready, include_in_schema=False)


def _ask_ledger(server: Server) -> bool:
    with closing(Container(server.instep.project).ledger(read_only=True)) as ledger:
        ledger.jobs.newest(1)
    return True
