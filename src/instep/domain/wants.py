"""Wants: standing requests that partitions be fresh, and how their states follow from instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from instep.domain.instances import Instance, InstanceState
from instep.domain.settings import JobSettings


class WantState(StrEnum):
    IDLE = "Idle"
    BUILDING = "Building"
    UPSTREAM_BUILDING = "UpstreamBuilding"
    SUCCESSFUL = "Successful"
    FAILED = "Failed"
    UPSTREAM_FAILED = "UpstreamFailed"
    CANCELED = "Canceled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({WantState.SUCCESSFUL, WantState.FAILED, WantState.UPSTREAM_FAILED, WantState.CANCELED})

#: An open want may become whatever its instances are now: they can be replaced at any time. Only what waits for
#: others can fail because of them; what fails was being built, or could not be planned. A dead letter, which has
#: failed, is canceled when it is requeued or dropped.
WANT_TRANSITIONS: Mapping[WantState, frozenset[WantState]] = {
    WantState.IDLE: frozenset(
        {
            WantState.BUILDING,
            WantState.UPSTREAM_BUILDING,
            WantState.SUCCESSFUL,
            WantState.FAILED,
            WantState.CANCELED,
        }
    ),
    WantState.BUILDING: frozenset(
        {
            WantState.IDLE,
            WantState.UPSTREAM_BUILDING,
            WantState.SUCCESSFUL,
            WantState.FAILED,
            WantState.CANCELED,
        }
    ),
    WantState.UPSTREAM_BUILDING: frozenset(
        {
            WantState.IDLE,
            WantState.BUILDING,
            WantState.SUCCESSFUL,
            WantState.FAILED,
            WantState.UPSTREAM_FAILED,
            WantState.CANCELED,
        }
    ),
    WantState.SUCCESSFUL: frozenset(),
    WantState.FAILED: frozenset({WantState.CANCELED}),
    WantState.UPSTREAM_FAILED: frozenset({WantState.CANCELED}),
    WantState.CANCELED: frozenset(),
}


# The replay of a long log asks for these very often, and asking an enumeration takes as long as all the rest.
_LIVE, _REFRESHING, _BUILDING = InstanceState.LIVE, InstanceState.REFRESHING, InstanceState.BUILDING
_SUCCESSFUL, _IDLE, _IN_WORK = WantState.SUCCESSFUL, WantState.IDLE, WantState.BUILDING
_GIVEN_UP = frozenset({WantState.FAILED, WantState.UPSTREAM_FAILED})


#: Who asks when an entity's `schedule` does.
SCHEDULE: Final = "schedule"

#: No pause is longer: a time plus this is one that every ledger can store.
_YEAR: Final = 366 * 24 * 3_600_000


class Retries(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The attempts of a want. After the n-th failed attempt the n-th pause (in ms) is made, then always the last."""

    max_attempts: Annotated[int, Meta(ge=1)] = 5
    backoff: Annotated[tuple[Annotated[int, Meta(ge=0, le=_YEAR)], ...], Meta(min_length=1)] = (10_000, 60_000, 300_000)

    def pause(self, attempt: int) -> int:
        return self.backoff[min(attempt, len(self.backoff)) - 1]


class Want(Struct, frozen=True, gc=False, array_like=True):
    """A wish that partitions (`refs`, of one generation) be there, as of a watermark if it names one.

    `needed` is the least watermark that satisfies it, None when any does. A derivative want was made by a job
    (`derivative_of`) that missed these partitions; the instances in `blocks` wait for it. `upstream` are the wants that
    it waits for itself, or the one that it failed by; `instances` those that it succeeded by, in the order of `refs`.
    `traceparent` is the trace in which it was asked for, `settings` what is said of the job that brings it.

    `retries` is how often it is tried; without it, the first failure ends it. `attempts` have failed, the last one for
    the reason `error`; `not_before` is when the pause after that is over.
    """

    id: str
    refs: tuple[str, ...]
    generation: str
    state: WantState
    created_at: int
    needed: int | None = None
    fresh_within: int | None = None
    as_of: int | None = None
    by: str = ""
    derivative_of: str | None = None
    blocks: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    ended_at: int | None = None
    error: str | None = None
    traceparent: str = ""
    settings: JobSettings | None = None
    retries: Retries | None = None
    attempts: int = 0
    not_before: int | None = None

    @property
    def due(self) -> int | None:
        """The time from which a job may be made for it: a look at the source then can satisfy it, and no pause is made.
        None: now.
        """
        return self.needed if self.not_before is None else max(self.not_before, self.needed or 0)

    @property
    def given_up(self) -> bool:
        """Whether it is a dead letter: it had several attempts, and failed for good."""
        return self.retries is not None and self.state in _GIVEN_UP

    def can_begin(self, now: int) -> bool:
        """Whether a job should be made for it: it is in no job, and due now (ms)."""
        return self.state is _IDLE and (self.due is None or self.due <= now)

    def rests(self, at: int) -> bool:
        """Whether it pauses after a failed attempt: another failure then belongs to no attempt of its own."""
        return self.not_before is not None and at < self.not_before

    def failed(self, state: WantState, at: int, error: str, upstream: tuple[str, ...] = ()) -> Want:
        """It after a failed attempt: waiting for the next one, or ended in this state if that was the last."""
        attempts = self.attempts + 1
        if self.retries is None or attempts >= self.retries.max_attempts:
            return replace(self, state=state, ended_at=at, error=error, upstream=upstream, attempts=attempts)
        pause = self.retries.pause(attempts)
        return replace(self, state=_IDLE, error=error, upstream=(), attempts=attempts, not_before=at + pause)

    def satisfied_by(self, instance: Instance | None) -> bool:
        return state_of(self.needed, [instance])[0] is _SUCCESSFUL


def watermark_needed(created_at: int, fresh_within: int | None, as_of: int | None) -> int | None:
    """The least watermark that satisfies a want; None when any does."""
    if fresh_within is None:
        return as_of
    fresh = created_at - fresh_within
    return fresh if as_of is None else max(fresh, as_of)


def state_of(needed: int | None, canonical: Sequence[Instance | None]) -> tuple[WantState, tuple[str, ...]]:
    """The state of an open want, and the wants it waits for, given the watermark that it needs and the canonical
    instances of its refs. By these rules alone, the first that fits:

    * Successful when all instances satisfy it: they are Live, as of the watermark that it needs. One that is
      Refreshing and is as fresh as that already does too: it is usable, and of several partitions that are refreshed
      often there might never be a moment in which none is.
    * UpstreamBuilding when one that does not satisfy it waits for other wants.
    * Building when one that does not satisfy it is Building or Refreshing.
    * Idle otherwise: something is to be started.

    How a want fails is for the fold to say: it takes an event.
    """
    satisfied, in_work = True, False
    waits: tuple[str, ...] = ()
    for instance in canonical:
        if instance is None:
            satisfied = False
            continue
        state, watermark = instance.state, instance.watermark
        if (state is _LIVE or state is _REFRESHING) and (needed is None or (watermark or 0) >= needed):
            continue
        satisfied = False
        if instance.waits:
            waits = tuple(dict.fromkeys((*waits, *instance.waits)))
        in_work = in_work or state is _BUILDING or state is _REFRESHING
    if satisfied:
        return _SUCCESSFUL, ()
    if waits:
        return WantState.UPSTREAM_BUILDING, waits
    return (_IN_WORK if in_work else _IDLE), ()
