"""Counters as Prometheus has them, and a small server for them beside a worker.

with counted("127.0.0.1:9464", print) as counters:
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from instep.domain.counts import Counts
from instep.errors import UserError
from instep.telemetry.progress import Counters, Uncounted

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: The longest silence in the middle of a request.
REQUEST_SECONDS: Final = 10.0

#: Waves aim at about ten seconds.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


def new_registry() -> CollectorRegistry:
    """A registry of this process alone, which no library shares. Raises `UserError` when the extra is not installed."""
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector
    except ModuleNotFoundError as error:
        raise UserError(
            f"metrics need {error.name}, which is not installed", hint="pip install 'instep[serve]'"
        ) from error
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    return registry


class PrometheusCounters:
    """Implements `Counters`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Histogram

        by_entity = ["entity"]
        self._units = Counter(
            "instep_units",
            "Documents or rows whose slices this process has finished, by outcome.",
            [*by_entity, "outcome"],
            registry=registry,
        )
        self._rows = Counter(
            "instep_rows",
            "Rows (chunks) of targets, by change: written, kept or deleted.",
            [*by_entity, "change"],
            registry=registry,
        )
        self._bytes = Counter("instep_read_bytes", "Bytes read from sources.", by_entity, registry=registry)
        self._slices = Counter("instep_finished_slices", "Slices finished.", by_entity, registry=registry)
        self._waves = Histogram(
            "instep_wave_seconds",
            "Duration of waves, from claim to ledger.",
            by_entity,
            registry=registry,
            buckets=_SECONDS,
        )
        self._steps = Histogram(
            "instep_wave_step_seconds",
            "Duration of the steps of waves.",
            [*by_entity, "step"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._tokens = Counter("instep_embedding_tokens", "Tokens billed for embedding.", by_entity, registry=registry)
        self._cost = Counter(
            "instep_embedding_cost", "Cost of embedding, in the currency of `price`.", by_entity, registry=registry
        )
        self._refused = Counter(
            "instep_refused_writes",
            "Writes refused because another worker had taken over, and waves given up for that reason.",
            by_entity,
            registry=registry,
        )
        self._retries = Counter(
            "instep_retries", "Waves, commits and slices that were tried again.", by_entity, registry=registry
        )

    def done(self, entity: str, slices: int, counts: Counts) -> None:
        self._slices.labels(entity).inc(slices)
        for outcome in ("written", "skipped", "deleted", "failed"):
            self._units.labels(entity, outcome).inc(getattr(counts, outcome))
        for change in ("written", "kept", "deleted"):
            self._rows.labels(entity, change).inc(getattr(counts, f"rows_{change}"))
        self._bytes.labels(entity).inc(counts.bytes_read)
        # So that the first refusal, and the first retry, is an increase and not a new series.
        self._refused.labels(entity)
        self._retries.labels(entity)

    def wave(self, entity: str, seconds: float) -> None:
        self._waves.labels(entity).observe(seconds)

    def step(self, entity: str, step: str, seconds: float) -> None:
        self._steps.labels(entity, step).observe(seconds)

    def paid(self, entity: str, tokens: int, cost: float) -> None:
        self._tokens.labels(entity).inc(tokens)
        self._cost.labels(entity).inc(cost)

    def refused(self, entity: str) -> None:
        self._refused.labels(entity).inc()

    def retried(self, entity: str) -> None:
        self._retries.labels(entity).inc()


@contextmanager
def counted(address: str | None, say: Callable[[str], None]) -> Iterator[Counters]:
    """Serve counters at `HOST:PORT` (port 0: a free one) while the work goes on, and say where; without an address
    nothing is counted.
    """
    if address is None:
        yield Uncounted()
        return
    host, port = _place_of(address)
    registry = new_registry()
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
        # Each connection has a thread: silent ones must not hold them all.
        server.RequestHandlerClass.timeout = REQUEST_SECONDS  # type: ignore[attr-defined]  # of every StreamRequestHandler
    except OSError as error:
        raise UserError(
            f"metrics cannot be served at {address}: {error.strerror or error}", hint="Name another port, or 0 for any."
        ) from error
    try:
        say(f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics")
        yield PrometheusCounters(registry)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _place_of(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UserError(f"{address!r} is not an address for metrics", hint="It is HOST:PORT, such as 127.0.0.1:9464.")
    return host.removeprefix("[").removesuffix("]"), int(port)
