"""Spans as OpenTelemetry has them, sent by OTLP over HTTP. The only module that imports it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags, TraceState

from instep.domain.texts import cleaned
from instep.telemetry.context import Fact, current_context, in_context

#: Seconds that an export may take unless the variables say more; and at the end of a process in any case.
_TIMEOUT_SECONDS: Final = 3.0
_TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")

#: The span that is being made, when its ids are known already.
_KNOWN: ContextVar[SpanContext | None] = ContextVar("instep_known_span", default=None)


class _Ids(RandomIdGenerator):
    def generate_trace_id(self) -> int:
        known = _KNOWN.get()
        return known.trace_id if known else super().generate_trace_id()

    def generate_span_id(self) -> int:
        known = _KNOWN.get()
        return known.span_id if known else super().generate_span_id()


class _OpenSpan:
    """Implements `traces.OpenSpan`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._dropped = False

    def set(self, **facts: Fact) -> None:
        self._span.set_attributes(_attributes(facts))

    def drop(self) -> None:
        self._dropped = True

    def end(self) -> None:
        # A span that does not end is not exported.
        if not self._dropped:
            self._span.end()


class _FirstOnly(logging.Handler):
    """Logs the first export error only: an unreachable collector causes one per batch."""

    _said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._said:
            self._said = True
            sys.stderr.write(f"traces: {cleaned(record.getMessage())}\n")


class Sender:
    """One per process. What has not been sent is sent at the process's end."""

    def __init__(self) -> None:
        log = logging.getLogger("opentelemetry")
        if not log.hasHandlers():  # Else the user has configured logging.
            log.addHandler(_FirstOnly(logging.WARNING))
            log.propagate = False
        given = any(map(os.environ.get, _TIMEOUTS))
        self._exporter = OTLPSpanExporter(timeout=None if given else _TIMEOUT_SECONDS)
        self._provider = TracerProvider(resource=_resource(), id_generator=_Ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("instep", version("instep"))
        atexit.register(self._end)

    def _end(self) -> None:
        """An unreachable collector must not delay the end of a process."""
        enough = threading.Timer(_TIMEOUT_SECONDS, self._exporter.shutdown)
        enough.daemon = True
        enough.start()
        self._provider.shutdown()
        enough.cancel()

    @contextmanager
    def span(self, name: str, facts: Mapping[str, Fact]) -> Iterator[_OpenSpan]:
        place = current_context()
        span = self._tracer.start_span(name, context=_parent(place.traceparent), attributes=_attributes(facts))
        open_span = _OpenSpan(span)
        # Libraries that trace by themselves (a client of HTTP, say) find it as the current one.
        ours = trace.use_span(span, record_exception=False, set_status_on_exception=False)
        try:
            with in_context(replace(place, traceparent=_traceparent(span))), ours:
                yield open_span
        except BaseException as error:
            _fail(span, f"{type(error).__name__}: {error}")
            raise
        finally:
            open_span.end()

    def record(
        self,
        name: str,
        *,
        traceparent: str,
        parent: str,
        began: int,
        ended: int,
        error: str | None,
        facts: Mapping[str, Fact],
    ) -> None:
        token = _KNOWN.set(_context_of(traceparent))
        try:
            span = self._tracer.start_span(
                name, context=_parent(parent) or Context(), attributes=_attributes(facts), start_time=began * 1_000_000
            )
        finally:
            _KNOWN.reset(token)
        if error is not None:
            _fail(span, error)
        span.end(ended * 1_000_000)


def _fail(span: Span, why: str) -> None:
    span.set_status(Status(StatusCode.ERROR, cleaned(why)))


def _attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    return {f"instep.{name}": value for name, value in facts.items()}


def _parent(traceparent: str) -> Context | None:
    """None is the current span of this thread: callers may have one of their own."""
    if not traceparent:
        return None
    return trace.set_span_in_context(NonRecordingSpan(_context_of(traceparent)), Context())


def _context_of(traceparent: str) -> SpanContext:
    parent, _, state = traceparent.partition(" ")
    _, trace_id, span_id, flags = parent.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), TraceState.from_header([state])
    )


def _traceparent(span: Span) -> str:
    found = span.get_span_context()
    state = found.trace_state.to_header()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 0xFF:02x} {state}".rstrip()


def _resource() -> Resource:
    found = Resource.create({"service.version": version("instep"), "process.pid": os.getpid()})
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return found if named else found.merge(Resource({"service.name": "instep"}))
