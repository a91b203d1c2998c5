"""Provenance of a served row: instance, job, wants and inputs that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from instep.answers.answer import Answer
from instep.answers.instances import Instance, Window, instance_answer
from instep.answers.jobs import Counts
from instep.answers.lineage import Node
from instep.answers.readers import demand_told, keeps_readers, shows
from instep.domain.jobs import Job, JobPart, JobState
from instep.domain.storable import is_storable
from instep.domain.texts import unknown_name
from instep.domain.wants import Want, WantState
from instep.entities import provenance
from instep.entities.generations import moved_text
from instep.entities.setup import EntitySetup
from instep.errors import InstepError, Missing, Transient, UserError
from instep.ledger.ledger import Ledger

#: How often a row is looked for when each time another build is promoted meanwhile.
_LOOKS: Final = 5
#: Of what neither the target nor the ledger knows.
_UNSEEN = "no run has seen it, or it is gone from the source again"


class WrittenBy(Answer):
    """The job that wrote the row."""

    id: str
    state: JobState
    created_at: int
    finished_at: int | None
    counts: Counts
    fingerprint: dict[str, str]
    revision: str


class SatisfiedWant(Answer):
    id: str
    refs: tuple[str, ...]
    state: WantState
    by: str
    needed: int | None
    created_at: int
    ended_at: int | None


class Provenance(Answer):
    """The origin of a row. `row` has the columns that say where it comes from. For documents, `document` is the present
    record of its document; for tables, `slice` is the slice that it was in. Values that are null are not known any
    more. `forgotten`: the job is null because jobs of this partition that ended at that time or before were forgotten.
    `version`: the index is as its table was at this version (of Delta) or snapshot (of Iceberg).
    """

    row: dict[str, Any]
    document: dict[str, Any] | None = None
    slice: dict[str, Any] | None = None
    target: str
    physical: str
    instance: Instance | None
    job: WrittenBy | None
    forgotten: int | None = None
    window: Window | None
    version: int | None = None
    wants: tuple[SatisfiedWant, ...]
    inputs: tuple[Node, ...]


def provenance_answer(found: provenance.Provenance) -> Provenance:
    return Provenance(
        **found.row_dict(),
        target=found.target,
        physical=found.physical,
        instance=instance_answer(found.behind.instance) if found.behind.instance else None,
        job=_written_by(found.job, found.part) if found.job and found.part else None,
        forgotten=found.forgotten,
        window=Window.model_validate(found.window) if found.window else None,
        version=found.version,
        wants=tuple(map(_satisfied, found.behind.wants)),
        inputs=tuple(
            Node(uuid=uuid, instance=instance_answer(each) if each else None, state=each.state if each else None)
            for uuid, each in found.behind.inputs
        ),
    )


def _satisfied(want: Want) -> SatisfiedWant:
    return SatisfiedWant(
        id=want.id,
        refs=want.refs,
        state=want.state,
        by=want.by,
        needed=want.needed,
        created_at=want.created_at,
        ended_at=want.ended_at,
    )


def _written_by(job: Job, part: JobPart) -> WrittenBy:
    status = job.part(part.ref)
    return WrittenBy(
        id=job.id,
        state=status.state or job.state,
        created_at=job.created_at,
        finished_at=status.finished_at,
        counts=Counts.model_validate(status.counts),
        fingerprint=dict(part.fingerprint),
        revision=part.revision,
    )


def why(
    setups: Sequence[EntitySetup],
    ledger: Ledger,
    target: str | None,
    id: str,
    *,
    generation: str | None = None,
    principals: Sequence[str] = (),
    explain: bool = False,
) -> provenance.Provenance:
    """Provenance of a served row, of a generation or of the promoted one. `setups` has one of each entity, in any
    partition. `target` names an entity, or a target with all its documents (None: any document); `id` is the entity's
    name of the row (`EntitySetup.trace`). Raises `UserError` when there is no such row, or none that `principals` may
    read; told to `explain`, it says why there is none.
    """
    found = [
        each
        for each in setups
        if target in (each.alias, each.ref.entity) or (target in (None, each.target_name) and not each.scanned)
    ]
    if not found:
        raise _unknown(setups, target)
    for _ in range(_LOOKS):
        looked: list[tuple[EntitySetup, list[str]]] = []
        try:
            return _row(
                found,
                ledger,
                target,
                id,
                generation=generation,
                principals=principals,
                explain=explain,
                looked=looked,
            )
        except InstepError as error:
            problem = error
            if all(_read(setup, ledger, generation) == before for setup, before in looked):
                break  # Else another build was promoted, and the one that was looked at may be gone.
    raise problem


def _row(
    found: Sequence[EntitySetup],
    ledger: Ledger,
    target: str | None,
    id: str,
    *,
    generation: str | None,
    principals: Sequence[str],
    explain: bool,
    looked: list[tuple[EntitySetup, list[str]]],
) -> provenance.Provenance:
    """See `why`. Notes in `looked` which indexes it has read."""
    if not is_storable(id):
        raise Missing(f"there is no row of {id!r}: no target has such a name")
    built = False
    away: Transient | None = None
    untold: UserError | None = None
    for setup in found:
        try:
            looked.append((setup, _read(setup, ledger, generation)))
            for physical in looked[-1][1]:
                built = True
                try:
                    demand_told(setup, ledger, physical, principals, generation)
                except UserError as error:
                    untold = error  # Another entity may have the row.
                    continue
                row = setup.trace(ledger, physical, id)
                if row is not None and shows(setup, row, principals):
                    return row
        except Transient as error:
            away = error  # Another target may have the same row.
    if refused := away or untold:
        raise refused
    if not built:
        moved = next(filter(None, (moved_text(each, ledger, generation) for each in found)), None)
        raise UserError(moved or f"nothing of {target or 'the project'} is served yet", hint="Run: instep run")
    where = target or "what is served"
    missing = f"{where} has no row of {id!r}"
    if not explain or any(map(keeps_readers, found)):
        raise Missing(missing, hint=found[0].row_hint)
    absent = next(filter(None, (each.why_absent(ledger, id) for each in found)), None)
    if absent is not None:
        raise Missing(f"{missing}: {absent}")
    raise Missing(f"{missing}: {_UNSEEN}", hint=found[0].row_hint)


def _read(setup: EntitySetup, ledger: Ledger, generation: str | None) -> list[str]:
    """The physical indexes to read: that of the alias, or those of the checkpoints of a requested generation."""
    if generation is None:
        served = setup.target.served(setup.alias)
        return [served] if served else []
    checkpoints = ledger.checkpoints.of_entity(setup.ref.entity)
    return sorted({each.physical for each in checkpoints if each.generation == generation})


def _unknown(setups: Sequence[EntitySetup], target: str | None) -> UserError:
    entities = list(dict.fromkeys(each.alias for each in setups))
    if target is None:
        return UserError("no entity is of documents", hint=f"Name one: {', '.join(entities)}.")
    if any(target == each.target_name for each in setups):
        return UserError(f"rows of tables in {target} are known by their entity", hint=f"One of {', '.join(entities)}.")
    names = dict.fromkeys(name for each in setups for name in (each.target_name, each.alias))
    what, hint = unknown_name("target and no entity", target, list(names))
    return Missing(what, hint=hint)
