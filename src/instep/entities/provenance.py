"""Provenance of a row in a target: instance, job, wants and inputs that led to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from instep.domain.instances import Instance
from instep.domain.jobs import Job, JobPart
from instep.domain.refs import PartitionRef
from instep.domain.wants import Want
from instep.domain.waves import SKIPPED
from instep.ledger.failures import FailureFilter
from instep.ledger.ledger import Ledger

#: Number of a partition's newest wants that are searched for those that an instance satisfied.
_WANTS = 1_000


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a job: changes after `floor` (0: everything) up to `target`, in milliseconds."""

    floor: int
    target: int


@dataclass(frozen=True, slots=True)
class Background:
    """Context of an instance: wants that it satisfied, and its inputs, including those that its jobs waited for: UUIDs,
    and the instances.
    """

    instance: Instance | None
    wants: tuple[Want, ...]
    inputs: tuple[tuple[str, Instance | None], ...]


def background(ledger: Ledger, ref: PartitionRef, uuid: str, part: JobPart | None) -> Background:
    instance = ledger.instances.get(uuid)
    inputs = instance.inputs if instance else part.inputs if part else ()
    return Background(
        instance,
        tuple(each for each in ledger.wants.newest(ref=ref, limit=_WANTS) if uuid in each.instances),
        tuple((each, ledger.instances.get(each)) for each in inputs),
    )


def forgotten_at(ledger: Ledger, ref: PartitionRef) -> int | None:
    """The time at which the newest of a partition's forgotten jobs ended."""
    found = ledger.retention.of(ref)
    return found.at if found else None


def why_failed(ledger: Ledger, refs: Collection[PartitionRef], ids: Collection[str]) -> str | None:
    """The reason why one with such an id failed or was left out on purpose; None if none has."""
    for each in ledger.failures.page(only=FailureFilter(refs, documents=ids), limit=1):
        return f"it is left out: {each.reason}" if each.stage == SKIPPED else f"it failed ({each.stage}): {each.reason}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance(ABC):
    """A row and its origin. None means not known (any more): collected, or older than the log.

    `job`, `part` and `window` are those that wrote the row, which may be a refresh after the instance was built.
    `forgotten`: jobs of the partition that ended at that time or before are, but for those that are still needed.
    `version` is that of its table, if that keeps versions, at which the index is as the table was.
    """

    target: str
    physical: str
    job: Job | None
    part: JobPart | None
    window: Window | None
    behind: Background
    forgotten: int | None = None
    version: int | None = None

    @property
    @abstractmethod
    def origin(self) -> tuple[str, str]:
        """Partition and instance named in the row itself."""

    @abstractmethod
    def row_dict(self) -> dict[str, Any]:
        """The row, and what it was made from."""
