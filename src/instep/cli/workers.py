"""`instep workers`, and `instep worker`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import (
    AllowDeletesOption,
    EngineOption,
    EntitiesArgument,
    EveryOption,
    JsonOption,
    MetricsOption,
    ProjectOption,
    QuietOption,
    WatchOption,
)
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.errors import UserError
from instep.telemetry.texts import ago_text, id_text, refs_text

if TYPE_CHECKING:
    from instep.answers.jobs import Worker
    from instep.telemetry.progress import Progress


def workers(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List the workers, and what each works on.

    A worker is `instep worker` or an `instep run` under way. One that is silent for 5 minutes loses its slices to
    others; until then it is listed, and said to be late.

    \b
    Examples:
      instep workers
      instep workers --json
    """
    from instep.app import load

    found = load(project).workers()
    out = Output(as_json=as_json)
    out.result(found, lambda: _show(out, found))


def _show(out: Output, found: Sequence[Worker]) -> None:
    if not found:
        out.line("No worker is registered. Start one: instep worker")
        return
    rows = [
        [
            id_text(each.id),
            place_text(each),
            ago_text(each.heartbeat_at, each.seen_at),
            task_text(each),
            each.slices,
            ago_text(each.busy_since, each.seen_at),
        ]
        for each in found
    ]
    # Six narrow columns: they fit in a terminal of 80, unless hosts have long names.
    out.table(None, ["worker", "where", "heartbeat", "works on", "slices", "since"], rows)
    for each in found:
        if each.pulse != "steady":
            out.line(late_text(each))


def task_text(worker: Worker) -> str:
    """The activity of a worker. Without a slice in work, a worker in a job finishes it, or waits for the others."""
    if worker.refs:
        return refs_text(worker.refs)
    return f"job {id_text(worker.jobs[0])}" if worker.jobs else "idle"


def place_text(worker: Worker) -> str:
    """Host and process id."""
    return f"{worker.host}:{worker.pid}"


def late_text(worker: Worker) -> str:
    """The meaning of a late heartbeat."""
    who = f"Worker {id_text(worker.id)}"
    if worker.pulse == "stale":
        return f"{who} is considered dead: the next sweep of any worker frees its slices."
    return f"{who} is late: paused, cut off or dead. At 5 min it loses its slices."


def worker(
    entities: EntitiesArgument = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is left to do.", show_default=False)
    ] = False,
    watch: WatchOption = False,
    every: EveryOption = 2.0,
    allow_deletes: AllowDeletesOption = False,
    engine: EngineOption = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="NUMBER",
            min=1,
            max=64,
            help="Threads that work in this process; a cluster has its own. By default one for each core.",
            show_default=False,
        ),
    ] = None,
    metrics: MetricsOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Work on wants, and help with the jobs of other servers.

    It starts jobs for wants (of `instep want`, messages on NATS, and the `schedule` of entities), each entity apart
    from the others, and takes part in jobs that runs and other workers have planned. With --watch it follows the
    sources, too. It serves until Ctrl-C or SIGTERM, which stop it cleanly (exit code 0): its slices go back, and
    other servers go on with them. It recovers what dead workers left behind. Prints a line for each thing that
    happens; with --json a line of JSON.

    \b
    Examples:
      instep worker
      instep worker Document --engine spark
      instep worker --until-idle --json
      instep worker --watch --every 5
      instep worker --metrics 127.0.0.1:9464
    """
    if watch and until_idle:
        raise UserError("--watch never ends, and --until-idle does", hint="Leave one of them out.")
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
        progress.say("worker", "stopped; other workers can go on with its slices")


def watching(*, as_json: bool, quiet: bool) -> Progress:
    from instep.cli.log_progress import JsonLogProgress, LogProgress
    from instep.telemetry.progress import Silent

    if as_json:
        return JsonLogProgress(sys.stdout)
    return Silent() if quiet else LogProgress(sys.stderr)
