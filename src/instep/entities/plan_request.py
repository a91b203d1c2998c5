"""The request that planning makes to an entity's source, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from instep.domain.instances import Instance
from instep.domain.jobs import Job, SlicePlan
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.seen import Seen
from instep.domain.settings import JobSettings
from instep.domain.topic_offsets import Offsets
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger


class Kind(StrEnum):
    """The action of a run on a partition."""

    NOTHING = "nothing"
    FIRST_BUILD = "first build"
    REFRESH = "refresh"
    REBUILD = "rebuild"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a plan. `full_refresh`: build a new instance whatever changed. `allow_deletes`: ignore the delete
    guard. `generation`: the one to bring up to date; None for the promoted one. `watermark`: up to this time (ms); None
    for now. `repair`: only make the target hold what is recorded. `reroute`: build a new instance if the number of
    buckets has changed. `allow_empty`: the index may become empty, because its source is. `paths`: look at these local
    paths alone, where that is enough to tell what has changed there. `until`: of a topic, nothing from these offsets
    on. `full_listing`: list all of the source, whatever else would tell what has changed.
    """

    full_refresh: bool = False
    retry_failures: bool = False
    allow_deletes: bool = False
    generation: str | None = None
    watermark: int | None = None
    repair: bool = False
    reroute: bool = False
    allow_empty: bool = False
    paths: frozenset[str] | None = None
    until: Offsets | None = None
    full_listing: bool = False


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Known before the source is read. `kind` and `why` follow from the ledger alone; `asked()` says whether a user or
    a want asks to try it anyway, and `settings()` their settings for the job. `current` is the canonical instance,
    `unfinished` a job that has not ended. `listing` is called with the number found so far; `indexes` gives the
    physical indexes of an entity that are needed, queried once for all partitions planned together.
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
        """Whether a user has allowed an empty source, by an option or by a want."""
        return self.options.allow_empty or self.settings().allow_empty


class Since(NamedTuple):
    """Slices of what has changed since an instance was brought up to date, and what is known of its source then, if
    that is to be known from now on.
    """

    slices: Sequence[SlicePlan]
    seen: Seen | None = None


UNCHANGED: Final = Since(())


class Planned(NamedTuple):
    """One change, for a plan that explains all of them."""

    action: str
    what: str
    why: str


class Refusal(NamedTuple):
    """The reason why a run refuses a change, and the option by which a user allows it."""

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
    """The work to do, and why.

    `counts` are for display, by outcome of the units (each a `unit`); `state` is everything the plan is based on, for
    its digest. `blocked` says why a run would refuse (the delete guard); `held_back` why it does nothing though a build
    is due: it would fail as before. `target` is the watermark (ms) that the slices reach, if they have one. `lost` are
    losses that no user asked for. `left` is roughly the number of units left for later jobs. `warnings` are about rows
    that a run does not see, and files that are lost. `compared` says where a large source was, and why. `seen` is
    what is known of a table when the run has ended, `confirmed` the state in which the index was found to be up to
    date; `until` what of a topic was there at the look.
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
    compared: str | None = None
    seen: Seen | None = None
    confirmed: Seen | None = None
    until: Offsets | None = None
    #: Whether some documents alone were looked at: nothing is said of the others.
    partial: bool = False
    #: Whether it was listed as it was some time ago: nothing is said of what has changed since.
    of_past: bool = False
