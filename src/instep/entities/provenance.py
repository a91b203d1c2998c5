"""Provenance of a row in a target: instance, job, wants and inputs that led to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.instances import Instance
from instep.domain.jobs import Job, JobPart
from instep.domain.refs import PartitionRef
from instep.domain.wants import Want
from instep.entities.setup import EntitySetup
from instep.errors import Missing, Transient, UserError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance(ABC):
    """A row and its origin. None means not known (any more): collected, or older than the log.

    `job`, `part` and `window` are those that wrote the row, which may be a refresh after the instance was built.
    """

    target: str
    physical: str
    job: Job | None
    part: JobPart | None
    window: Window | None
    behind: Background

    @property
    def instance(self) -> Instance | None:
        return self.behind.instance

    @property
    def wants(self) -> tuple[Want, ...]:
        return self.behind.wants

    @property
    def inputs(self) -> tuple[tuple[str, Instance | None], ...]:
        return self.behind.inputs

    @property
    @abstractmethod
    def origin(self) -> tuple[str, str]:
        """Partition and instance named in the row itself."""

    @abstractmethod
    def row_dict(self) -> dict[str, Any]:
        """The row, and what it was made from."""


def why(
    setups: Sequence[EntitySetup], ledger: Ledger, target: str, id: str, *, generation: str | None = None
) -> Provenance:
    """Provenance of a served row, of a generation or of the promoted one. `setups` has one of each entity, in any
    partition. `target` names an entity, or a target with all its documents; `id` is the entity's name of the row
    (`EntitySetup.trace`). Raises `UserError` when there is no such row.
    """
    found = [
        each
        for each in setups
        if target in (each.alias, each.ref.entity) or (target == each.target_name and not each.scanned)
    ]
    if not found:
        raise _unknown(setups, target)
    built, away = False, None
    for setup in found:
        try:
            for physical in _read(setup, ledger, generation):
                built = True
                row = setup.trace(ledger, physical, id)
                if row is not None:
                    return row
        except Transient as error:
            away = error  # Another target may have the same row.
    if away is not None:
        raise away
    if not built:
        raise UserError(f"nothing is served of {target} yet", hint="Run: instep run")
    raise Missing(f"{target} has no row of {id!r}", hint=found[0].row_hint)


def _read(setup: EntitySetup, ledger: Ledger, generation: str | None) -> list[str]:
    """The physical indexes to read: that of the alias, or those of the checkpoints of a requested generation."""
    if generation is None:
        served = setup.target.served(setup.alias)
        return [served] if served else []
    checkpoints = ledger.checkpoints.of_entity(setup.ref.entity)
    return sorted({each.physical for each in checkpoints if each.generation == generation})


def _unknown(setups: Sequence[EntitySetup], target: str) -> UserError:
    entities = list(dict.fromkeys(each.alias for each in setups))
    if any(target == each.target_name for each in setups):
        return UserError(f"rows of tables in {target} are known by their entity", hint=f"One of {', '.join(entities)}.")
    names = dict.fromkeys(name for each in setups for name in (each.target_name, each.alias))
    return Missing(f"no target and no entity is named {target!r}", hint=f"Declared: {', '.join(names)}.")
