"""What there is of everything, in numbers: for whoever watches the ledger every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from instep.domain.counts import Counts
from instep.domain.jobs import JobState, SliceState
from instep.domain.wants import WantState


@dataclass(slots=True)
class EntityFigures:
    """Of all partitions of an entity together.

    `slices`, `units` (those planned), `counts` and `attempts` (tries that ended badly) are of jobs that have not ended.
    `leases` are held; `oldest_lease` is since when the oldest is, `first_expiry` when the first of them expires unless
    it is renewed. `watermark` is the lowest of its promoted checkpoints, None without any. `failures` are in the list,
    of all generations, without what is only left out.
    """

    slices: dict[SliceState, int] = field(default_factory=dict)
    units: int = 0
    counts: Counts = field(default_factory=Counts)
    attempts: int = 0
    leases: int = 0
    oldest_lease: int | None = None
    first_expiry: int | None = None
    partitions: int = 0
    watermark: int | None = None
    failures: int = 0

    def lease(self, since: int, expires_at: int) -> None:
        self.leases += 1
        self.oldest_lease = since if self.oldest_lease is None else min(self.oldest_lease, since)
        self.first_expiry = expires_at if self.first_expiry is None else min(self.first_expiry, expires_at)

    def checkpoint(self, watermark: int) -> None:
        self.partitions += 1
        self.watermark = watermark if self.watermark is None else min(self.watermark, watermark)


@dataclass(frozen=True, slots=True)
class Figures:
    """At one moment, `now`. `jobs` that have not ended and `wants` that are open, by their states."""

    now: int
    jobs: Mapping[JobState, int]
    wants: Mapping[WantState, int]
    entities: Mapping[str, EntityFigures]


class Figured(Protocol):
    """A part of `port.Ledger`."""

    def figures(self) -> Figures:
        """It costs what there is of slices in open jobs, of leases and of failures; nothing for history."""
