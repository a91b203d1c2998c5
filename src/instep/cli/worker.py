"""`instep worker`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import (
    AllowDeletesOption,
    EntitiesArgument,
    EveryOption,
    JsonOption,
    MetricsOption,
    ProjectOption,
    QuietOption,
    WatchOption,
)
from instep.cli.signals import terminate_like_ctrl_c
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.telemetry.progress import Progress


def worker(
    entities: EntitiesArgument = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is left to do.", show_default=False)
    ] = False,
    watch: WatchOption = False,
    every: EveryOption = 2.0,
    allow_deletes: AllowDeletesOption = False,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="auto, inline or spark; default: the project's.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="NUMBER",
            min=1,
            max=64,
            help="So many work at once in this process; a cluster has its own. By default one for each core.",
            show_default=False,
        ),
    ] = None,
    metrics: MetricsOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Help with the jobs that any server planned.

    It serves until Ctrl-C or SIGTERM, which stop it cleanly (exit code 0): its slices go back, and other
    servers go on with them. It recovers what dead workers left behind. It plans only with --watch: else
    `instep run` does, on any server. Prints a line for each thing that happens; with --json a line of JSON.

    \b
    Examples:
      instep worker
      instep worker Document --engine spark
      instep worker --until-idle --json
      instep worker --watch --every 5
      instep worker --metrics 127.0.0.1:9464
    """
    if watch and until_idle:
        raise UserError("--watch goes on for ever, and --until-idle does not", hint="Leave one of them out.")
    serve(
        entities,
        project,
        watch=every if watch else None,
        until_idle=until_idle,
        allow_deletes=allow_deletes,
        engine=engine,
        threads=threads,
        metrics=metrics,
        progress=watching(as_json=as_json, quiet=quiet),
    )


def serve(
    entities: list[str] | None,
    project: Path | None,
    *,
    watch: float | None,
    allow_deletes: bool,
    engine: str | None,
    metrics: str | None,
    progress: Progress,
    until_idle: bool = False,
    threads: int | None = None,
) -> None:
    from instep.app import load

    try:
        with terminate_like_ctrl_c():
            load(project).worker(
                entities,
                until_idle=until_idle,
                watch=watch,
                allow_deletes=allow_deletes,
                engine=engine,
                threads=threads,
                metrics=metrics,
                progress=progress,
            )
    except KeyboardInterrupt:
        # To be told to stop is how a server ends.
        progress.say("worker", "stopped; what it held went back, for others to go on with")


def watching(*, as_json: bool, quiet: bool) -> Progress:
    from instep.cli.log_progress import JsonLogProgress, LogProgress
    from instep.telemetry.progress import Silent

    if as_json:
        return JsonLogProgress(sys.stdout)
    return Silent() if quiet else LogProgress(sys.stderr)
