"""What a worker has in hand of one part of a job, and what it has to say about one partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from instep.domain.jobs import JobPart
from instep.entities.setup import EntitySetup
from instep.jobs.wave import WaveRunner
from instep.ledger.ledger import Lease


@dataclass
class PartContext:
    """A part: its lease, whether all that it is made from is there, and the runner of its waves once one was needed.

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
    """What a worker did for one partition."""

    engine: str | None = None
    notes: list[str] = field(default_factory=list)
