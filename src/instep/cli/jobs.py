"""`instep jobs`, and `instep job show|stop|resume|retry`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import EngineOption, JsonOption, ProjectOption, QuietOption, user_text
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.cli.workers import late_text, place_text
from instep.domain.jobs import SliceState
from instep.domain.texts import amount
from instep.telemetry.texts import (
    ago_text,
    id_text,
    left_text,
    rate_text,
    ref_text,
    refs_text,
    seconds_text,
    span_text,
    state_text,
)

if TYPE_CHECKING:
    from instep.answers.jobs import Job


def jobs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of jobs to list.")] = 20,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs on all servers, newest first.

    \b
    Examples:
      instep jobs
      instep jobs --limit 5 --json
    """
    from instep.app import load

    found = load(project).jobs(limit=limit)
    out = Output(as_json=as_json)
    out.result(found, lambda: _show(out, found))


def _show(out: Output, found: Sequence[Job]) -> None:
    if not found:
        out.line("No jobs: nothing has run yet.")
        return
    rows = [
        [
            id_text(each.id),
            state_text(each.state),
            refs_text(each.refs, each.generation) or None,
            percent_text(each),
            ago_text(each.started_at or each.created_at, each.seen_at),
            None if each.duration_seconds is None else span_text(round(each.duration_seconds * 1000)),
            len(each.workers),
        ]
        for each in found
    ]
    # Seven narrow columns: they fit in a terminal of 80.
    out.table(None, ["job", "state", "entities", "done", "started", "time", "workers"], rows)
    for each in found:
        if each.waits_for_workers:
            out.line(f"Job {id_text(each.id)} waits for a worker. Start one: instep worker")


def percent_text(job: Job) -> str | None:
    """Share of the planned documents that is done; 100 % only when the job has ended."""
    if not job.units:
        return None
    return f"{min(100 if job.state.ended else 99, job.done * 100 // job.units)}%"


_SLICES = {
    SliceState.PENDING: "waiting",
    SliceState.PROCESSING: "in work",
    SliceState.COMPLETED: "completed",
    SliceState.FAILED: "failed",
    SliceState.CANCELLED: "cancelled",
}

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, or its beginning; see `instep jobs`.", show_default=False)
]

app = typer.Typer(name="job")


@app.callback(invoke_without_command=True)
def job(context: typer.Context) -> None:
    """Show, stop, resume or retry one job."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("show")
def show(job_id: IdArgument, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Show a job: progress, workers, errors.

    Speed is that of the last five minutes.

    \b
    Examples:
      instep job show 1f0c
      instep job show 1f0c --json
    """
    from instep.app import load

    found = load(project).job(job_id)
    out = Output(as_json=as_json)
    out.result(found, lambda: _show_job(out, found))


@app.command("stop")
def stop(
    job_id: IdArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a job on all servers.

    What is finished stays; the rest can be resumed. Slices in work have 30 seconds to end. The workers
    themselves live on and take up other jobs. A job that has ended stays as it is.

    \b
    Examples:
      instep job stop 1f0c
      instep job stop 1f0c --wait
    """
    from instep.app import load

    found = load(project).stop_job(job_id, reason=f"stopped by {user_text()}", wait=wait)
    out = Output(as_json=as_json)
    out.result(found, lambda: out.line(_after_stop(found)))


@app.command("resume")
def resume(job_id: IdArgument, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Let a stopped job run again.

    Whatever worker is free takes it up. Finished slices are not done again.

    \b
    Examples:
      instep job resume 1f0c
      instep job resume 1f0c --json
    """
    from instep.app import load

    opened = load(project)
    found = opened.resume_job(job_id)
    out = Output(as_json=as_json)
    serving = any(each.kind == "worker" for each in opened.workers())

    def say() -> None:
        out.line(f"Job {id_text(found.id)} is {state_text(found.state)}: {_units(found)} done.")
        if not serving:
            out.line("No server is waiting for work. Start one: instep worker (or instep run)")

    out.result(found, say)


@app.command("retry")
def retry(
    job_id: IdArgument,
    engine: EngineOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run again what failed in a job.

    It makes a new job for the entities in which something failed, as `instep run ENTITY… --retry-failures`
    does: for the sources as they are now. Work that is already indexed is not repeated.

    \b
    Examples:
      instep job retry 1f0c
      instep job retry 1f0c --engine spark --json
    """
    from instep.app import load
    from instep.cli.run import finish

    out = Output(as_json=as_json, quiet=quiet)
    with terminate_like_ctrl_c(), out.progress() as progress:
        results = load(project).retry_job(job_id, engine=engine, progress=progress)
    if results:
        finish(out, results)
    else:
        out.result([], lambda: out.line(f"Nothing failed in job {job_id}."))


def _after_stop(job: Job) -> str:
    name = f"Job {id_text(job.id)}"
    if job.state == "STOPPED":
        return f"{name} is stopped: {_units(job)} done. Resume it: instep job resume {id_text(job.id)}"
    if job.state.ended:
        return f"{name} had ended already: {state_text(job.state)}."
    return f"{name} is stopping: slices in work have 30 seconds to end. Wait for it: instep job stop --wait"


def _units(job: Job) -> str:
    return amount(job.done, job.unit) if job.units is None else f"{job.done:,} of {amount(job.units, job.unit)}"


def _show_job(out: Output, job: Job) -> None:
    now = job.seen_at
    for name, text in (
        ("job", job.id),
        ("state", state_text(job.state)),
        ("now", job.phase.words if job.phase else None),
        ("made", f"{ago_text(job.created_at, now)} by worker {id_text(job.made_by)}"),
        ("started", ago_text(job.started_at, now)),
        ("ended", ago_text(job.finished_at, now)),
        ("time", None if job.duration_seconds is None else seconds_text(job.duration_seconds)),
        ("done", _done(job)),
        ("slices", _slices(job)),
        ("spent", None if job.spent is None else str(job.spent)),
        ("error", job.error),
        ("asked", _asked(job)),
    ):
        if text:
            out.line(f"{name:<9}{text}")
    for each in job.workers:
        what = f"{each.slices:,} in work" if each.slices else "no slices in work"
        beat = ago_text(each.heartbeat_at, each.seen_at)
        out.line(f"{'worker':<9}{id_text(each.id)} on {place_text(each)}, {what}, heartbeat {beat}")
    _show_parts(out, job)
    for part in job.parts:
        if part.error:
            out.line(f"{ref_text(part.ref, part.generation)}: {part.error}")
    for each in job.workers:
        if each.pulse != "steady":
            out.line(late_text(each))
    _show_next(out, job)


def _show_parts(out: Output, job: Job) -> None:
    rows = [
        [
            ref_text(part.ref, part.generation),
            state_text(part.state) if part.state else "open",
            part.units,
            part.counts.written,
            part.counts.skipped,
            part.counts.deleted,
            part.counts.failed,
            part.counts.rows_written,
        ]
        for part in job.parts
    ]
    if rows:
        out.table(None, ["entity", "state", "planned", "written", "same", "deleted", "failed", "rows"], rows)


def _show_next(out: Output, job: Job) -> None:
    name = id_text(job.id)
    if job.waits_for_workers:
        out.line("It waits for a worker. Start one: instep worker")
    elif job.state == "STOPPED":
        out.line(f"Resume it: instep job resume {name}")
    elif job.counts.failed or any(part.failed_slices for part in job.parts):
        again = f"; try again: instep job retry {name}" if job.state.ended else ""
        out.line(f"See what failed, and why: instep failures{again}")


def _done(job: Job) -> str | None:
    if job.units == 0:
        return None
    text = _units(job) if job.units is None else f"{_units(job)} ({percent_text(job)})"
    if job.units_per_second is None:
        return text
    left = "" if job.seconds_left is None else f", about {left_text(job.seconds_left)} left"
    return f"{text}, {rate_text(job.units_per_second)}/s{left}"


def _slices(job: Job) -> str | None:
    numbers = ((job.slices.in_state(state), name) for state, name in _SLICES.items())
    shown = [f"{number:,} {name}" for number, name in numbers if number]
    return ", ".join(shown) or None


def _asked(job: Job) -> str | None:
    """Options of the job that differ from the defaults; its entities are in the table."""
    asked = {key: value for key, value in sorted(job.configuration.items()) if value}
    if job.parts:
        asked.pop("entities", None)
    return ", ".join(key if value is True else f"{key}={_plain(value)}" for key, value in asked.items())


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
