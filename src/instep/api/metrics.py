"""`/metrics` for Prometheus: gauges made from ledger, bus and queues at a request, at most every few seconds.

Workers serve their own counters (`instep worker --metrics`).

Labels are names that the project declares, and states: never ids.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from instep import __version__
from instep.answers.jobs import Pulse, Worker, worker_answers
from instep.answers.queues import QueueStatus
from instep.api.dependencies import Server
from instep.app import Instep
from instep.container import Container
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import GLOBAL
from instep.domain.status import StatusKey
from instep.domain.wants import WantState
from instep.errors import InstepError
from instep.ledger.figures import EntityFigures, Figures
from instep.project import DocumentEntity, Project
from instep.requests.dead_letters import letters
from instep.telemetry.prometheus import new_registry

#: For how long what was read is shown again. Queues are counted in databases that have other things to do.
LEDGER_SECONDS: Final = 5.0
BUS_SECONDS: Final = 15.0
QUEUE_SECONDS: Final = 30.0

T = TypeVar("T")
Values = Iterable[tuple[tuple[str, ...], float]]


def mount(app: FastAPI, server: Server) -> None:
    """Serve them. Must come before what takes all paths that are left."""
    registry = registry_of(server.instep)

    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/metrics", metrics, include_in_schema=False)


def registry_of(instep: Instep) -> CollectorRegistry:
    registry = new_registry()
    registry.register(ProjectCollector(instep))
    return registry


@dataclass
class Kept(Generic[T]):
    """A cache of the last read for so many seconds; None when it could not be read. Requests wait for one read."""

    read: Callable[[], T]
    seconds: float
    monotonic: Callable[[], float] = time.monotonic
    _value: T | None = None
    _until: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self) -> T | None:
        with self._lock:
            now = self.monotonic()
            if self._until is None or now >= self._until:
                try:
                    self._value = self.read()
                except InstepError:
                    self._value = None
                self._until = self.monotonic() + self.seconds
            return self._value


@dataclass(frozen=True, slots=True)
class LedgerSample:
    """`letters`: dead letters of each entity."""

    figures: Figures
    workers: tuple[Worker, ...]
    letters: Mapping[str, int]


def sample_ledger(project: Project) -> LedgerSample:
    container = Container(project)
    with closing(container.ledger(read_only=True)) as ledger:
        dead = Counter(each.ref.entity for each in letters(ledger))
        return LedgerSample(ledger.figures(), tuple(worker_answers(ledger, timing=container.timing)), dead)


def sample_bus(project: Project) -> bool:
    """True if it can be read; raises what keeps it from that."""
    container = Container(project)
    with closing(container), closing(container.ledger(read_only=True)) as ledger:
        container.bus(ledger).status.under(str(StatusKey(GLOBAL, None)))
        return True


class ProjectCollector(Collector):
    """Gauges of a project. A part that could not be read is missing, and `instep_up` says so: unknown is not zero."""

    def __init__(self, instep: Instep) -> None:
        self._project = project = instep.project
        self._ledger = Kept(partial(sample_ledger, project), LEDGER_SECONDS)
        self._bus = Kept(partial(sample_bus, project), BUS_SECONDS)
        self._queues = {name: Kept(partial(_queue_status, instep, name), QUEUE_SECONDS) for name in project.queues}

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Describe no metric: so registering reads nothing."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        ledger, bus = self._ledger.get(), self._bus.get()
        queues = {name: kept.get() for name, kept in self._queues.items()}
        yield _gauge(
            "info", "Version of Instep, and the project.", {"version": __version__, "project": self._project.name}
        )
        up = {"ledger": ledger, "bus": bus, **{f"queue {name}": status for name, status in queues.items()}}
        yield _gauges(
            "up",
            "1 if this part could be read, otherwise 0.",
            ["part"],
            [((part,), found is not None) for part, found in up.items()],
        )
        if ledger is not None:
            yield from _of_ledger(ledger, list(self._project.entities))
            yield from _of_readers(ledger.figures, self._project)
        if self._queues:
            yield from _of_queues({name: status for name, status in queues.items() if status is not None})


def _of_ledger(sample: LedgerSample, declared: list[str]) -> Iterator[GaugeMetricFamily]:
    figures = sample.figures
    yield _gauges(
        "jobs",
        "Jobs that have not ended.",
        ["state"],
        [((str(state),), figures.jobs.get(state, 0)) for state in JobState if not state.ended],
    )
    yield _gauges(
        "wants",
        "Wants that are open.",
        ["state"],
        [((str(state),), figures.wants.get(state, 0)) for state in WantState if not state.ended],
    )
    yield _gauges(
        "workers",
        "Registered workers, by what their last heartbeat says.",
        ["pulse"],
        [((str(pulse),), sum(each.pulse is pulse for each in sample.workers)) for pulse in Pulse],
    )
    silent = max((each.seen_at - each.heartbeat_at for each in sample.workers), default=None)
    yield _gauges(
        "heartbeat_age_seconds",
        "Seconds since the last heartbeat of the worker that has been silent for longest.",
        [],
        [] if silent is None else [((), silent / 1000)],
    )
    dead = [((entity,), sample.letters.get(entity, 0)) for entity in declared]
    yield _gauges("dead_letters", "Requests of messages and schedules that were given up.", ["entity"], dead)
    yield from _of_entities({name: figures.entities.get(name, EntityFigures()) for name in declared}, figures.now)


def _of_entities(entities: Mapping[str, EntityFigures], now: int) -> Iterator[GaugeMetricFamily]:
    def each(value: Callable[[EntityFigures], float | None]) -> Values:
        return [((name,), found) for name, of in entities.items() if (found := value(of)) is not None]

    def since(time: int | None) -> float | None:
        return None if time is None else (now - time) / 1000

    one = ["entity"]
    yield _gauges(
        "slices",
        "Slices of jobs that have not ended.",
        [*one, "state"],
        [((name, str(state)), of.slices.get(state, 0)) for name, of in entities.items() for state in SliceState],
    )
    outcomes = ("written", "skipped", "deleted", "failed")
    yield _gauges(
        "job_units",
        "Documents or rows done in jobs that have not ended.",
        [*one, "outcome"],
        [((name, each), getattr(of.counts, each)) for name, of in entities.items() for each in outcomes],
    )
    yield _gauges("job_units_planned", "Documents or rows planned in these jobs.", one, each(lambda of: of.units))
    yield _gauges("job_rows", "Rows (chunks) written by these jobs.", one, each(lambda of: of.counts.rows_written))
    yield _gauges("job_read_bytes", "Bytes read by these jobs.", one, each(lambda of: of.counts.bytes_read))
    yield _gauges("slice_attempts", "Failed attempts at slices of these jobs.", one, each(lambda of: of.attempts))
    yield _gauges("failures", "Entries of the failure list.", one, each(lambda of: of.failures))
    yield _gauges("partitions", "Partitions with a checkpoint.", one, each(lambda of: of.partitions))
    yield _gauges(
        "lag_seconds",
        "Seconds since the time up to which the partition that is furthest behind is known to be complete.",
        one,
        each(lambda of: since(of.watermark)),
    )
    yield _gauges("leases", "Leases held.", one, each(lambda of: of.leases))
    yield _gauges(
        "lease_age_seconds", "Seconds since the oldest lease was taken.", one, each(lambda of: since(of.oldest_lease))
    )
    yield _gauges(
        "lease_left_seconds",
        "Seconds until the first lease expires, if it is not renewed; negative if it has expired.",
        one,
        each(lambda of: None if of.first_expiry is None else (of.first_expiry - now) / 1000),
    )


def _of_readers(figures: Figures, project: Project) -> Iterator[GaugeMetricFamily]:
    """The delay until those can no longer find a document whom it no longer names.

    One that was given up with its slice keeps the readers it had, though the watermark passes it. Of what could not be
    listed nothing is known: that is without end.
    """
    named = [name for name, each in project.entities.items() if isinstance(each, DocumentEntity) and each.readers]
    found = {name: figures.entities.get(name, EntityFigures()) for name in named}
    marks = {name: each.watermark for name, each in found.items() if each.watermark is not None}
    unread = {name: each.oldest_given_up for name, each in found.items() if each.oldest_given_up is not None}
    yield _gauges(
        "readers_lag_seconds",
        "Seconds since the time up to which the index is known to have the current readers of all documents.",
        ["entity"],
        [
            ((name,), math.inf if found[name].unlisted else (figures.now - min(mark, unread.get(name, mark))) / 1000)
            for name, mark in marks.items()
        ],
    )


def _queue_status(instep: Instep, name: str) -> QueueStatus:
    with instep.queue(name) as queue:
        return queue.status()


def _of_queues(queues: Mapping[str, QueueStatus]) -> Iterator[GaugeMetricFamily]:
    keys: list[tuple[tuple[str, ...], float]] = []
    oldest: list[tuple[tuple[str, ...], float]] = []
    for name, status in queues.items():
        held = {"leased": status.leased, "retrying": status.retrying, "parked": status.parked}
        keys += [((name, state), count.keys) for state, count in held.items()]
        if status.offered is not None:
            keys.append(((name, "offered"), status.offered))
        if status.oldest_at is not None:
            oldest.append(((name,), status.now / 1000 - status.oldest_at.timestamp()))
    yield _gauges("queue_keys", "Keys of pending queues.", ["queue", "state"], keys)
    yield _gauges(
        "queue_oldest_seconds", "Seconds since the event of the oldest key that is offered.", ["queue"], oldest
    )


def _gauges(name: str, text: str, labels: list[str], values: Values) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"instep_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric(list(key), float(value))
    return family


def _gauge(name: str, text: str, labels: Mapping[str, str]) -> GaugeMetricFamily:
    return _gauges(name, text, list(labels), [(tuple(labels.values()), 1)])
