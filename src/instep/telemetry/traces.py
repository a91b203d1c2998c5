"""Spans, sent where OpenTelemetry's own variables say; they cost nothing while those say nothing.

with traces.span("plan", ref=str(ref)) as span:
    plan = ...
    span.set(slices=len(plan.slices))
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol

from instep.errors import UserError
from instep.telemetry.context import Fact, current_context

if TYPE_CHECKING:
    from instep.telemetry.otlp import Sender

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class OpenSpan(Protocol):
    """A span under way."""

    def set(self, **facts: Fact) -> None:
        """Add facts that are known by now."""

    def drop(self) -> None:
        """Drop the span: nothing was to be done. Spans inside of it must be dropped too."""


class _NoSpan:
    def set(self, **facts: Fact) -> None: ...

    def drop(self) -> None: ...


_NO_SPAN = _NoSpan()


@cache
def enabled() -> bool:
    """Whether spans are sent anywhere. Raises `UserError` when they are to be and cannot."""
    asked = any(map(os.environ.get, _ENDPOINTS))
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    if not asked or off:
        return False
    protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), "http/protobuf")
    if protocol != "http/protobuf":
        raise UserError(
            f"traces are sent by OTLP over http/protobuf, not {protocol}",
            hint=f"Name such an endpoint (port 4318, usually), and leave {_PROTOCOLS[1]} out.",
        )
    _sender()
    return True


@contextmanager
def span(name: str, **facts: Fact) -> Iterator[OpenSpan]:
    """A step of the work, in the trace of this thread, or a new one. An error that leaves it is told with it."""
    if not enabled():
        yield _NO_SPAN
        return
    with _sender().span(name, {**current_context().facts, **facts}) as open_span:
        yield open_span


def record(
    name: str, *, traceparent: str, parent: str, began: int, ended: int, error: str | None, **facts: Fact
) -> None:
    """Export a finished span under an id already in use by other processes (`job_traceparent`). Times are in ms."""
    if enabled():
        _sender().record(
            name, traceparent=traceparent, parent=parent, began=began, ended=ended, error=error, facts=facts
        )


@cache
def _sender() -> Sender:
    try:
        from instep.telemetry.otlp import Sender
    except ModuleNotFoundError as error:
        raise UserError(
            f"traces are to be sent ({_ENDPOINTS[1]} is set), and {error.name} is not installed",
            hint="pip install 'instep[traces]'; or unset the variable.",
        ) from error
    return Sender()
