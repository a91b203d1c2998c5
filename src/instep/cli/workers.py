"""`instep workers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output, ago_text, id_text, refs_text

if TYPE_CHECKING:
    from instep.answers.jobs import WorkerView


def workers(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Who is at work, where, on what, and since when.

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
    out.result([each.as_dict() for each in found], lambda: _show(out, found))


def _show(out: Output, found: Sequence[WorkerView]) -> None:
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


def task_text(worker: WorkerView) -> str:
    """Without a slice in work, a worker in a job finishes it, or waits for what the others do."""
    if worker.refs:
        return refs_text(worker.refs)
    return f"job {id_text(worker.job_ids[0])}" if worker.job_ids else "idle"


def place_text(worker: WorkerView) -> str:
    """Host and process id."""
    return f"{worker.host}:{worker.pid}"


def late_text(worker: WorkerView) -> str:
    """What a late heartbeat means."""
    who = f"Worker {id_text(worker.id)}"
    if worker.pulse == "stale":
        return f"{who} is taken for dead: the next sweep of any worker frees its slices."
    return f"{who} is late: paused, cut off or dead. At 5 min it loses its slices."
