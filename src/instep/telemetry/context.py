"""Context of the current work: its trace, and fields for log lines and spans.

Both belong to the thread that works. Between processes the trace goes through the ledger and the bus, with wants, jobs
and requests, in the W3C format: the `traceparent`, and after a space the `tracestate` if there is one. Processes that
export no traces pass it on too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final

Fact = str | int

_PARENT = r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
#: The longest tracestate that has to be passed on; a longer one is dropped.
_STATE = r"[!-~](?:[ -~]{0,510}[!-~])?"
_TRACEPARENT = re.compile(rf"{_PARENT}((?: {_STATE})?)")
#: The longest text of both together.
LONGEST: Final = 55 + 1 + 512


@dataclass(frozen=True, slots=True)
class WorkContext:
    """`traceparent` includes the tracestate. `facts` are further fields of log lines and spans: the job, the instance,
    the wave.
    """

    traceparent: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def trace_id(self) -> str:
        """Empty outside of any trace."""
        return self.traceparent[3:35]


_CURRENT: ContextVar[WorkContext] = ContextVar("instep_context", default=WorkContext())  # noqa: B039 - it is frozen


def current_context() -> WorkContext:
    return _CURRENT.get()


@contextmanager
def in_context(context: WorkContext) -> Iterator[None]:
    """Work in this context: for threads that work on behalf of another."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def context_fields(**facts: Fact) -> AbstractContextManager[None]:
    """Add fields to the context of the work inside."""
    context = current_context()
    return in_context(replace(context, facts={**context.facts, **facts}))


def in_trace(traceparent: str) -> AbstractContextManager[None]:
    """Put the work inside into this trace, if it is valid; else into none."""
    return in_context(replace(current_context(), traceparent=traceparent if is_traceparent(traceparent) else ""))


def is_traceparent(text: str) -> bool:
    """Whether it names a trace, with or without a tracestate. It may come from anywhere."""
    return _TRACEPARENT.fullmatch(text) is not None


def received(headers: Mapping[str, str]) -> str:
    """The trace in headers with names in lower case, for `within`. Empty without a valid one: no request fails for
    that.
    """
    parent, state = (headers.get(name, "").strip() for name in ("traceparent", "tracestate"))
    if not is_traceparent(parent) or " " in parent:
        return ""
    whole = f"{parent} {state}"
    return whole if is_traceparent(whole) else parent


def sent() -> dict[str, str]:
    """The trace of this thread as headers; none outside of any."""
    parent, _, state = current_context().traceparent.partition(" ")
    return {name: value for name, value in (("traceparent", parent), ("tracestate", state)) if value}


def job_traceparent(job_id: str, made_in: str) -> str:
    """The span of a job, the same in all processes that work on it: `made_in` is the trace of the request, if any.

    It follows from the job's id, so that no process has to live from its beginning to its end.
    """
    digest = hashlib.sha256(job_id.encode()).hexdigest()
    known = _TRACEPARENT.fullmatch(made_in)
    trace, flags, state = (known[1], known[3], known[4]) if known else (digest[16:48], "01", "")
    return f"00-{trace}-{digest[:16]}-{flags}{state}"
