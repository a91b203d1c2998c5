"""`instep jobs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output, ago_text, id_text, refs_text, span_text, state_text

if TYPE_CHECKING:
    from instep.answers.jobs import JobView


def jobs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most jobs to list.")] = 20,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """What runs and what ran, on all servers, newest first.

    \b
    Examples:
      instep jobs
      instep jobs --limit 5 --json
    """
    from instep.app import load

    found = load(project).jobs(limit=limit)
    out = Output(as_json=as_json)
    out.result([each.as_dict() for each in found], lambda: _show(out, found))


def _show(out: Output, found: Sequence[JobView]) -> None:
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
            None if each.duration is None else span_text(round(each.duration * 1000)),
            len(each.workers),
        ]
        for each in found
    ]
    # Seven narrow columns: they fit in a terminal of 80.
    out.table(None, ["job", "state", "entities", "done", "started", "time", "workers"], rows)
    for each in found:
        if each.waits_for_workers:
            out.line(f"Job {id_text(each.id)} waits for a worker. Start one: instep worker")


def percent_text(job: JobView) -> str | None:
    """How much of the planned documents is done; 100 % only when all are."""
    if not job.units:
        return None
    return f"{min(100, job.done * 100 // job.units)}%"


def rate_text(rate: float) -> str:
    """Units per second: `12,345`, `0.25`."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
