"""Where a piece of work belongs: in which trace, and what it is about.

Both go with the thread that works. Between processes the trace goes through the ledger, with wants and jobs, in the
form of W3C's `traceparent`; it is passed on by processes that trace nothing themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

Fact = str | int

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Place:
    """`facts` are what log lines and spans say besides: the job, the instance, the wave."""

    traceparent: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def trace_id(self) -> str:
        """Empty outside of any trace."""
        return self.traceparent[3:35]


_PLACE: ContextVar[Place] = ContextVar("instep_place", default=Place())  # noqa: B039 - it is frozen


def here() -> Place:
    return _PLACE.get()


@contextmanager
def at(place: Place) -> Iterator[None]:
    """Work there: for threads that work on behalf of another."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


def about(**facts: Fact) -> AbstractContextManager[None]:
    """What is done inside is about these too."""
    place = here()
    return at(replace(place, facts={**place.facts, **facts}))


def within(traceparent: str) -> AbstractContextManager[None]:
    """What is done inside belongs to this trace, if it is one; else to none."""
    return at(replace(here(), traceparent=traceparent if is_traceparent(traceparent) else ""))


def is_traceparent(text: str) -> bool:
    """Whether it names a trace. It may come from anywhere."""
    return _TRACEPARENT.fullmatch(text) is not None


def job_traceparent(job_id: str, made_in: str) -> str:
    """The span of a job, as all processes that work on it name it: `made_in` is where it was asked for, if in a trace.

    It follows from the job's id, so that nobody has to be alive from its beginning to its end.
    """
    digest = hashlib.sha256(job_id.encode()).hexdigest()
    known = _TRACEPARENT.fullmatch(made_in)
    trace, flags = (known[1], known[3]) if known else (digest[16:48], "01")
    return f"00-{trace}-{digest[:16]}-{flags}"
