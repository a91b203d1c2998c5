"""Context of one part of a job that a worker works on, and its report about one partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instep.domain.jobs import JobPart
from instep.entities.setup import EntitySetup
from instep.ledger.leases import Lease

if TYPE_CHECKING:
    from instep.jobs.wave import WaveRunner  # Imports Arrow.


@dataclass
class PartContext:
    """One part that a worker works on: its lease, whether its upstream is ready, and its wave runner once one was
    needed.

    `fenced`: the target has seen the part's epoch, in the version that is its base. `sound`: see
    `EntitySetup.as_recorded`. `traceparent` is the job's span.
    """

    setup: EntitySetup
    part: JobPart
    lease: Lease
    fenced: bool = False
    sound: bool = False
    ready: bool = False
    runner: WaveRunner | None = None
    traceparent: str = ""


@dataclass
class Report:
    """Engine and notes of one partition, for the result."""

    engine: str | None = None
    notes: list[str] = field(default_factory=list)
