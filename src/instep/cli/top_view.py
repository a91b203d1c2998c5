"""Screen of `instep top`: tables of jobs, workers and failures for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from instep.cli.jobs import percent_text
from instep.cli.workers import place_text, task_text
from instep.domain.jobs import JobState
from instep.domain.texts import amount
from instep.telemetry.texts import (
    ago_text,
    id_text,
    left_text,
    rate_text,
    ref_text,
    refs_text,
    state_text,
    visible,
)

if TYPE_CHECKING:
    from instep.answers.jobs import Job, Worker
    from instep.answers.overview import Failure, Overview

_STYLES = {
    JobState.RUNNING: "cyan",
    JobState.COMPLETED: "green",
    JobState.COMPLETED_WITH_ERRORS: "yellow",
    JobState.STOPPED: "yellow",
    JobState.FAILED: "red",
}
_BAR = 20
#: A screen has so much room for workers.
_WORKERS = 12


def screen(name: str, seen: Overview, *, trouble: str | None = None) -> RenderableType:
    """`trouble`: why it is not seen how things stand now."""
    return Group(*_parts(name, seen, trouble))


def _parts(name: str, seen: Overview, trouble: str | None) -> Iterator[RenderableType]:
    running = sum(not job.state.ended for job in seen.jobs)
    at = time.strftime("%H:%M:%S", time.localtime(seen.seen_at / 1_000))
    yield Text(f"{visible(name)}  {at}  {amount(running, 'job')} under way, {amount(len(seen.workers), 'worker')}")
    if trouble:
        yield Text(visible(trouble), style="red")
    yield Text()
    if seen.jobs:
        yield _jobs(seen.jobs)
        yield from (
            Text(f"Job {id_text(job.id)} waits for a worker. Start one: instep worker")
            for job in seen.jobs
            if job.waits_for_workers
        )
    else:
        yield Text("No jobs: nothing has run yet.")
    if seen.workers:
        yield Text()
        yield _workers(seen.workers[:_WORKERS])
        if len(seen.workers) > _WORKERS:
            yield Text(f"and {len(seen.workers) - _WORKERS:,} more, see `instep workers`")
    if seen.failures:
        yield Text()
        yield _failures(seen.failures, seen.seen_at)


def _jobs(jobs: tuple[Job, ...]) -> Table:
    table = _table("job", "state", "entities", "", "done", "rate", "left", "failed", right=(4, 5, 6, 7), narrow=(2, 3))
    table.columns[3].max_width = _BAR
    for job in jobs:
        share = share_of(job)
        table.add_row(
            id_text(job.id),
            Text(state_text(job.state), style=_STYLES.get(job.state, "")),
            _cut(refs_text(job.refs, job.generation) or "-"),
            "" if share is None else ProgressBar(total=1.0, completed=share),
            percent_text(job) or (f"{job.done:,}" if job.done else ""),
            "" if job.units_per_second is None else f"{rate_text(job.units_per_second)}/s",
            "" if job.seconds_left is None else left_text(job.seconds_left),
            Text(f"{job.counts.failed:,}" if job.counts.failed else "", style="red"),
        )
    return table


def share_of(job: Job) -> float | None:
    """Share that is done: of the units where they were counted, else of the slices."""
    if job.units:
        return min(1.0, job.done / job.units)
    slices = job.slices.total
    return (slices - job.slices.PENDING - job.slices.PROCESSING) / slices if slices else None


def _workers(workers: tuple[Worker, ...]) -> Table:
    table = _table("worker", "where", "heartbeat", "works on", "slices", right=(4,), narrow=(1, 3))
    for each in workers:
        beat = Text(ago_text(each.heartbeat_at, each.seen_at) or "", style="" if each.pulse == "steady" else "yellow")
        table.add_row(id_text(each.id), _cut(place_text(each)), beat, _cut(task_text(each)), f"{each.slices:,}")
    return table


def _failures(failures: tuple[Failure, ...], now: int) -> Table:
    table = _table("failed", "of", "at", "why", "last", narrow=(0, 1, 3))
    for each in failures:
        cells = (each.uri, ref_text(each.ref, each.generation), each.stage, each.reason)
        table.add_row(*map(_cut, cells), ago_text(each.failed_at, now))
    return table


def _table(*names: str, right: tuple[int, ...] = (), narrow: tuple[int, ...]) -> Table:
    """Each row is a line. Where there is no room, columns that may be `narrow` give way."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place in right else "left", no_wrap=place not in narrow)
    return table


def _cut(text: str) -> Text:
    return Text(visible(text), no_wrap=True, overflow="ellipsis")
