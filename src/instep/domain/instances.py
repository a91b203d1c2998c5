"""Instances: builds of partitions, each with a UUID of its own that is never used again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from operator import attrgetter

import msgspec
from msgspec import Struct

from instep.domain.counts import COUNT_FIELDS, Counts


class InstanceState(StrEnum):
    MISSING = "Missing"
    BUILDING = "Building"
    LIVE = "Live"
    REFRESHING = "Refreshing"
    TAINTED = "Tainted"
    EXPIRED = "Expired"
    FAILED = "Failed"


INSTANCE_TRANSITIONS: Mapping[InstanceState, frozenset[InstanceState]] = {
    InstanceState.MISSING: frozenset({InstanceState.BUILDING}),
    InstanceState.BUILDING: frozenset({InstanceState.LIVE, InstanceState.FAILED}),
    InstanceState.LIVE: frozenset({InstanceState.REFRESHING, InstanceState.TAINTED, InstanceState.EXPIRED}),
    InstanceState.REFRESHING: frozenset({InstanceState.LIVE}),
    InstanceState.TAINTED: frozenset(),
    InstanceState.EXPIRED: frozenset(),
    InstanceState.FAILED: frozenset(),
}


# Asking an enumeration for a member takes longer than all that is done with it where a long log is replayed.
_BUILDING, _LIVE, _REFRESHING = InstanceState.BUILDING, InstanceState.LIVE, InstanceState.REFRESHING


class Reason(StrEnum):
    """The reason why an instance was made."""

    FIRST = "first build"
    TAINT = "taint"
    EXPIRY = "expiry"
    REBUILD = "rebuild"
    FAILURE = "failure"
    FINGERPRINT = "fingerprint"
    GENERATION = "generation"
    IMPORTED = "imported"


def first_reason(generation: str) -> Reason:
    """The reason why the first instance of a generation is made."""
    return Reason.GENERATION if generation else Reason.FIRST


_packed = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_values = attrgetter(*COUNT_FIELDS)


def tally_of(counts: Counts) -> bytes:
    """Counts as an instance keeps them: in a quarter of the room, and most are never asked for."""
    return _packed(_values(counts))


class Instance(Struct, frozen=True, gc=False, array_like=True):
    """An instance: one build of a partition, and all that is known of how it was made.

    Of the instances of a partition's generation one is canonical: the one that is Live, or is to be. The others
    were *left* when a taint, an expiry, a failure or a new build moved the pointer on (`ended_at`); they never
    change again, until they are collected. `sequence` is the event that made it.

    `floor` and `target` are the window that was built or refreshed last, and `counts` those of the job that did;
    `watermark` is up to when it is complete. `job` built it, `refreshed_by` is the last of the jobs that refreshed
    it, or does so now. `waits` are the derivative wants whose partitions its job waits for. `why` says how it was
    left, in words.
    """

    uuid: str
    ref: str
    generation: str
    sequence: int
    previous: str | None
    reason: Reason
    state: InstanceState
    created_at: int
    by: str = ""
    job: str | None = None
    started_at: int | None = None
    live_at: int | None = None
    floor: int = 0
    target: int | None = None
    watermark: int | None = None
    fingerprint: Mapping[str, str] | None = None
    revision: str = ""
    inputs: tuple[str, ...] = ()
    physical: str | None = None
    tally: bytes | None = None
    refreshed_by: str | None = None
    refreshes: int = 0
    waits: tuple[str, ...] = ()
    error: str | None = None
    ended_at: int | None = None
    why: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The key that one instance is canonical for: partition and generation."""
        return self.ref, self.generation

    @property
    def counts(self) -> Counts | None:
        return None if self.tally is None else Counts(*_unpacked(self.tally))

    @property
    def left(self) -> bool:
        """Whether it is not canonical any more."""
        return self.ended_at is not None

    @property
    def usable(self) -> bool:
        """Whether it is complete up to its watermark, whatever is being added to it."""
        return self.state is _LIVE or self.state is _REFRESHING

    @property
    def worked_on_by(self) -> str | None:
        """The job that builds or refreshes it now."""
        if self.state is _BUILDING:
            return self.job
        return self.refreshed_by if self.state is _REFRESHING else None

    def state_at(self, time: int) -> InstanceState | None:
        """The state at a time; None before it was made. A refresh shows only while it is under way."""
        if time < self.created_at:
            return None
        if self.ended_at is not None and time >= self.ended_at:
            return self.state
        if self.live_at is not None and time >= self.live_at:
            return self.state if self.ended_at is None else InstanceState.LIVE
        started = self.started_at is not None and time >= self.started_at
        return InstanceState.BUILDING if started else InstanceState.MISSING
