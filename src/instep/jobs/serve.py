"""Serve entities: work on their jobs, and start jobs for wants and for changes of their sources, until interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from instep.domain.refs import PartitionRef
from instep.domain.wants import Want
from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.jobs.entity_workers import EntityWorkers, of_one_entity
from instep.jobs.idleness import ALONE, Idleness, Place
from instep.jobs.job_starter import JobStarter
from instep.jobs.restart_pauses import RestartPauses
from instep.jobs.setup_cache import SetupCache
from instep.jobs.source_poller import SourcePoller
from instep.jobs.want_scheduler import WantScheduler
from instep.jobs.worker import Worker
from instep.planning.context import Context
from instep.planning.planner import Planner
from instep.telemetry import traces

#: Longest pause of a worker that watches sources, in seconds: files that have changed wait no longer.
LOOK_AT_EVENTS: Final = 0.5


def serve(
    setups: Sequence[EntitySetup],
    context: Context,
    *,
    until_idle: bool = False,
    watch: float | None = None,
    options: PlanOptions | None = None,
    anew: Callable[[], Sequence[EntitySetup]] | None = None,
    refs: Callable[[], Collection[PartitionRef]] | None = None,
    place: Place = ALONE,
    takes: Callable[[Want], bool] = lambda _: True,
    also: Callable[[], bool] = lambda: False,
) -> None:
    """Run a worker for these entities: take part in any job on them, and start jobs for wants, until interrupted (or
    idle). `watch`: poll the sources too, every so many seconds, with `options`. `anew` makes the setups again from time
    to time; `refs`: the partitions that it is for by then, if that changes. `place`: among the other workers of this
    process; `takes`: the wants that it starts jobs for; `also`: what else it starts when it has nothing to do.
    """
    traces.enabled()  # Reports now, not in the middle of work, if spans cannot be exported.
    latest = SetupCache(setups, anew, partial(context.progress.say, "worker"), refs)
    planner = Planner(latest, context, options or PlanOptions(), {})
    pauses = RestartPauses(context)
    starters: list[JobStarter] = [WantScheduler(planner, pauses, takes=takes, leaves=place.leaves)]
    poller = None if watch is None else SourcePoller(planner, watch, pauses)
    if poller is not None:
        starters.append(poller)
    worker = Worker(planner.setups, context, "worker")
    try:
        names = ", ".join(dict.fromkeys(setup.ref.entity for setup in setups))  # One has many namespaces.
        context.progress.say("worker", f"{worker.id[:8]} is ready for jobs on {names}")

        def begin() -> bool:
            latest.grow()
            return also() or any(each.begin(worker.membership) for each in starters)

        worker.serve(
            begin,
            until_idle=until_idle,
            longest=None if watch is None else min(watch, LOOK_AT_EVENTS),
            place=place,
        )
    finally:
        if poller is not None:
            poller.close()
        worker.end()


def serve_each_entity(
    setups: Sequence[EntitySetup],
    context: Context,
    *,
    setups_of: Callable[[Iterable[PartitionRef]], Sequence[EntitySetup]],
    open_ended: Collection[str] = (),
    until_idle: bool = False,
    watch: float | None = None,
    options: PlanOptions | None = None,
    anew: Callable[[], Sequence[EntitySetup]] | None = None,
) -> None:
    """Serve with a worker (a thread) for each entity that a want names alone, so that none waits behind another's work.
    With one entity there is nothing to keep apart. `open_ended`: the entities whose wants are served in namespaces that
    are not declared, too.
    """
    by_entity: dict[str, list[PartitionRef]] = {}
    for each in setups:
        by_entity.setdefault(each.ref.entity, []).append(each.ref)
    if len(by_entity) < 2 and not open_ended:
        serve(setups, context, until_idle=until_idle, watch=watch, options=options, anew=anew)
        return
    idleness = Idleness([_MAIN]) if until_idle else None

    def one(refs: Callable[[], Sequence[PartitionRef]], apart: Context, stopping: threading.Event, name: str) -> None:
        def make() -> Sequence[EntitySetup]:
            return setups_of(refs())

        serve(
            make(),
            apart,
            until_idle=until_idle,
            options=options,
            anew=make,
            refs=refs,
            place=Place(name, idleness, stopping=stopping),
            takes=of_one_entity,
        )

    with EntityWorkers(by_entity, open_ended, context, one, idleness) as workers:
        serve(
            setups,
            context,
            until_idle=until_idle,
            watch=watch,
            options=options,
            anew=anew,
            place=Place(_MAIN, idleness, workers.has),
            takes=lambda want: not of_one_entity(want),
            also=workers.begin,
        )


#: The name of the worker that helps with all jobs, beside those of the entities. No entity has it.
_MAIN: Final = ""
