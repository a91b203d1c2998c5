"""Checkpoints: which instance is served of each generation of a partition, and how far it has come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, bindparam, delete, func, insert, select, update

from instep.domain.jobs import JobPart
from instep.domain.refs import PartitionRef
from instep.ledger import documents
from instep.ledger.tables import checkpoints
from instep.ledger.transaction import Store, Transaction, reads, writes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Durable progress of a partition's generation: which instance is served, made how, complete up to when."""

    ref: PartitionRef
    instance: str
    sequence: int
    physical: str
    fingerprint: Mapping[str, str]
    buckets: int
    watermark: int
    job_id: str
    updated_at: int
    generation: str = ""


class Checkpoints(Store):
    """The checkpoints: one for each generation of a partition that is served."""

    @reads
    def get(self, tx: Transaction, ref: PartitionRef, generation: str = "") -> Checkpoint | None:
        return checkpoint(tx, ref, generation)

    @reads
    def of_partition(self, tx: Transaction, ref: PartitionRef) -> list[Checkpoint]:
        """The checkpoints of all generations, by their names."""
        return of_partition(tx, ref)

    @reads
    def of_entity(self, tx: Transaction, entity: str) -> list[Checkpoint]:
        """The checkpoints of all partitions of an entity, by their names, and of all generations."""
        rows = tx.connection.execute(select(checkpoints).where(is_of(checkpoints.c.ref, entity)))
        return sorted(map(_checkpoint, rows), key=lambda each: (each.ref, each.generation))

    @reads
    def entities(self, tx: Transaction) -> set[str]:
        """The entities of which something is served."""
        refs = tx.connection.scalars(select(checkpoints.c.ref).distinct())
        return {PartitionRef.parse(each).entity for each in refs}

    @writes
    def describe(self, tx: Transaction, known: Checkpoint, fingerprint: Mapping[str, str]) -> None:
        """Record what its instance is made of and where, as far as that is known better by now. Nothing happens if
        another instance is served by now.
        """
        here = (*_of(known.ref, known.generation), checkpoints.c.instance == known.instance)
        made = json.dumps(dict(fingerprint), sort_keys=True)
        tx.connection.execute(update(checkpoints).where(*here).values(fingerprint=made))


_CHECKPOINT: Final = select(checkpoints).where(
    checkpoints.c.ref == bindparam("b_ref"), checkpoints.c.generation == bindparam("b_generation")
)


def lock(tx: Transaction, known: Checkpoint) -> bool:
    """Lock a checkpoint as it is known; False if another job is served by now."""
    here = (*_of(known.ref, known.generation), checkpoints.c.job_id == known.job_id)
    found = select(checkpoints.c.instance).where(*here).with_for_update()
    return tx.connection.scalar(found) == known.instance


def checkpoint(tx: Transaction, ref: PartitionRef, generation: str) -> Checkpoint | None:
    row = tx.connection.execute(_CHECKPOINT, {"b_ref": str(ref), "b_generation": generation}).one_or_none()
    return None if row is None else _checkpoint(row)


def of_partition(tx: Transaction, ref: PartitionRef) -> list[Checkpoint]:
    of_it = select(checkpoints).where(checkpoints.c.ref == str(ref)).order_by(checkpoints.c.generation)
    return [_checkpoint(row) for row in tx.connection.execute(of_it)]


def is_of(ref: ColumnElement[str], entity: str) -> ColumnElement[bool]:
    """Whether a reference is of the entity. Not LIKE, which ignores case in SQLite, nor a range, whose order is the
    database's collation.
    """
    return func.substr(ref, 1, len(entity) + 1) == f"{entity}@"


def move(tx: Transaction, part: JobPart, job_id: str, *, sequence: int, watermark: int) -> None:
    """Serve the part's instance from now on; the manifest of the one it replaces is dropped."""
    replaced = _served(tx, part)
    if replaced is not None and replaced != part.instance:
        documents.drop(tx, replaced)
    tx.connection.execute(delete(checkpoints).where(*_of(part.ref, part.generation)))
    tx.connection.execute(
        insert(checkpoints).values(
            ref=str(part.ref),
            generation=part.generation,
            instance=part.instance,
            sequence=sequence,
            physical=part.physical,
            fingerprint=json.dumps(dict(part.fingerprint), sort_keys=True),
            buckets=part.buckets,
            watermark=watermark,
            job_id=job_id,
            updated_at=tx.now(),
        )
    )


def drop_unserved(tx: Transaction, part: JobPart) -> None:
    """A build failed: its manifest goes, unless that very instance is served."""
    if part.fresh and part.instance != _served(tx, part):
        documents.drop(tx, part.instance)


def _of(ref: PartitionRef, generation: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return checkpoints.c.ref == str(ref), checkpoints.c.generation == generation


def _served(tx: Transaction, part: JobPart) -> str | None:
    """The instance that is served of the part's generation."""
    return tx.connection.scalar(select(checkpoints.c.instance).where(*_of(part.ref, part.generation)))


def _checkpoint(row: Row[Any]) -> Checkpoint:
    return Checkpoint(
        ref=PartitionRef.parse(row.ref),
        instance=row.instance,
        sequence=row.sequence,
        physical=row.physical,
        fingerprint=json.loads(row.fingerprint),
        buckets=row.buckets,
        watermark=row.watermark,
        job_id=row.job_id,
        updated_at=row.updated_at,
        generation=row.generation,
    )
