"""What a plan asks of an entity's source, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from instep.domain.instances import Instance
from instep.domain.jobs import Job, SlicePlan
from instep.domain.losses import NO_LOSS, Loss
from instep.domain.settings import JobSettings
from instep.ledger.ledger import Checkpoint, Ledger


class Kind(StrEnum):
    """What a run would do with a partition."""

    NOTHING = "nothing"
    FIRST_BUILD = "first build"
    REFRESH = "refresh"
    REBUILD = "rebuild"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """`full_refresh`: build a new instance whatever changed. `allow_deletes`: past the guard. `generation`: the one to
    bring up to date; None for that which is promoted. `watermark`: up to when (ms); None for now. `repair`: only make
    the target hold what is recorded. `reroute`: build a new instance where the number of buckets has changed.
    `allow_empty`: what was indexed may become empty, because its source is.
    """

    full_refresh: bool = False
    retry_failures: bool = False
    allow_deletes: bool = False
    generation: str | None = None
    watermark: int | None = None
    repair: bool = False
    reroute: bool = False
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is known before the source is looked at. `kind` and `why` are what follows from the ledger alone; `asked()`
    says whether somebody wants it to be tried, whatever is known, and `settings()` what they say of the job. `current`
    is the canonical instance, `unfinished` a job that has not ended. `listing` is told how much has been found;
    `indexes` says which physical indexes of an entity are needed, asked once for all partitions that are planned
    together.
    """

    ledger: Ledger
    options: PlanOptions
    generation: str
    kind: Kind
    why: Sequence[str]
    checkpoint: Checkpoint | None
    current: Instance | None
    unfinished: Job | None
    asked: Callable[[], bool]
    settings: Callable[[], JobSettings]
    listing: Callable[[int], None] | None
    indexes: Callable[[str], set[str]]

    def allows_empty(self) -> bool:
        """Whether a person has said that an empty source is right, by an option or by a want."""
        return self.options.allow_empty or self.settings().allow_empty


class Planned(NamedTuple):
    """One change, for who wants all of them explained."""

    action: str
    what: str
    why: str


class Refusal(NamedTuple):
    """Why a run would not do what is to be done, and the option by which a person says that it is right."""

    why: str
    option: str = "--allow-deletes"
    look: str = ""

    @property
    def hint(self) -> str:
        return f"{self.look}If that is right, run again with {self.option}."

    def __str__(self) -> str:
        return f"{self.why} ({self.option})"


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be done, and why.

    `counts` are for people, by what becomes of the units (each a `unit`); `state` is all that the plan rests on, for
    its digest. `blocked` says why a run would refuse (the delete guard); `held_back` why it does nothing though
    something is to be built: it would fail as it did before. `target` is the watermark (ms) that the slices reach, if
    they have one. `lost` is what nobody has asked to lose. `left` is about how many units are there for jobs after
    this one, if it does not take all. `warnings` are of rows that a run does not see.
    """

    kind: Kind
    why: Sequence[str]
    unit: str
    slices: Sequence[SlicePlan] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    changes: Sequence[Planned] = ()
    state: Sequence[str] = ()
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    blocked: Refusal | None = None
    held_back: str | None = None
    target: int | None = None
    lost: Loss = NO_LOSS
    left: int = 0
