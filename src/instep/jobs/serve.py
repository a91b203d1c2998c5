"""Serve entities: work on their jobs, and start jobs for wants and for changes of their sources, until interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.jobs.backoff import Backoff
from instep.jobs.job_starter import JobStarter
from instep.jobs.setup_cache import SetupCache
from instep.jobs.source_poller import SourcePoller
from instep.jobs.want_scheduler import WantScheduler
from instep.jobs.worker import Worker
from instep.planning.context import Context
from instep.planning.planner import Planner
from instep.telemetry import traces


def serve(
    setups: Sequence[EntitySetup],
    context: Context,
    *,
    until_idle: bool = False,
    watch: float | None = None,
    options: PlanOptions | None = None,
    anew: Callable[[], Sequence[EntitySetup]] | None = None,
) -> None:
    """Run a worker for these entities: take part in any job on them, and start jobs for wants, until interrupted (or
    idle). `watch`: poll the sources too, every so many seconds, with `options`. `anew` makes the setups again from time
    to time.
    """
    traces.enabled()  # Reports now, not in the middle of work, if spans cannot be exported.
    latest = SetupCache(setups, anew, partial(context.progress.say, "worker"))
    planner = Planner(latest, context, options or PlanOptions(), {})
    resting = Backoff(context)
    starters: list[JobStarter] = [WantScheduler(planner, resting)]
    if watch is not None:
        starters.append(SourcePoller(planner, watch, resting))
    worker = Worker(planner.setups, context, "worker")
    try:
        names = ", ".join(setup.ref.entity for setup in setups)
        context.progress.say("worker", f"{worker.id[:8]} is ready for jobs on {names}")
        worker.serve(
            lambda: any(each.begin(worker.membership) for each in starters), until_idle=until_idle, longest=watch
        )
    finally:
        worker.end()
