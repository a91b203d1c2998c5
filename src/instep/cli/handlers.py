"""`instep serve-handlers`."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.options import EntityOption, JsonOption, MetricsOption, ProjectOption, QuietOption
from instep.cli.signals import terminate_like_ctrl_c
from instep.cli.worker import watching


def serve_handlers(
    entities: EntityOption = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no request can be taken.", show_default=False)
    ] = False,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="auto, inline or spark; default: the project's.")
    ] = None,
    metrics: MetricsOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Do what `instep dispatch`, or another program, asks for over the bus.

    Each entity has a handler, none waits for another, and any number of servers may serve the same ones. It serves
    until Ctrl-C or SIGTERM, which stop it cleanly (exit code 0): the requests in work go back, for other servers. What
    fails is tried again, and is a dead letter in the end: see `instep letters`. Prints a line for each thing that
    happens; with --json a line of JSON.

    \b
    Examples:
      instep serve-handlers
      instep serve-handlers --entity User --entity MergeRequest
      instep serve-handlers --until-idle --json
    """
    from instep.app import load

    progress = watching(as_json=as_json, quiet=quiet)
    try:
        with terminate_like_ctrl_c():
            load(project).serve_handlers(
                entities, until_idle=until_idle, engine=engine, progress=progress, metrics=metrics
            )
    except KeyboardInterrupt:
        # To be told to stop is how a server ends.
        progress.say("handlers", "stopped; the requests in work went back, for others to take")
