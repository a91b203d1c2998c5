"""What is indexed: checkpoints, the manifest of each instance, and the documents that failed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, bindparam, delete, func, insert, or_, select

from instep.domain.jobs import JobPart
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.state import Key
from instep.domain.waves import SKIPPED, Failure, SliceOutcome
from instep.ledger.ledger import Checkpoint, FailureRecord
from instep.ledger.tables import checkpoints, documents, failures
from instep.ledger.transaction import Transaction, batches

#: Up to so many known failures of a partition are simply read; of more, only those that are asked for.
_FEW: Final = 1_000

#: Entries that are fetched at once.
_TOGETHER: Final = 5_000

_SOME_FAILURES = (
    select(failures.c.document_id, failures.c.attempts)
    .where(failures.c.ref == bindparam("b_ref"), failures.c.generation == bindparam("b_generation"))
    .limit(_FEW)
)


# The checkpoint.


def checkpoint(tx: Transaction, ref: PartitionRef, generation: str) -> Checkpoint | None:
    row = tx.connection.execute(select(checkpoints).where(*_of(ref, generation))).one_or_none()
    return None if row is None else _checkpoint(row)


def all_checkpoints(tx: Transaction, ref: PartitionRef) -> list[Checkpoint]:
    of_it = select(checkpoints).where(checkpoints.c.ref == str(ref)).order_by(checkpoints.c.generation)
    return [_checkpoint(row) for row in tx.connection.execute(of_it)]


def entity_checkpoints(tx: Transaction, entity: str) -> list[Checkpoint]:
    rows = tx.connection.execute(select(checkpoints).where(of_entity(checkpoints.c.ref, entity)))
    return sorted(map(_checkpoint, rows), key=lambda each: (each.ref, each.generation))


def of_entity(ref: ColumnElement[str], entity: str) -> ColumnElement[bool]:
    """Whether a reference is of the entity. Not LIKE, which ignores case in SQLite, nor a range, whose order is the
    database's collation.
    """
    return func.substr(ref, 1, len(entity) + 1) == f"{entity}@"


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


def move_checkpoint(tx: Transaction, part: JobPart, job_id: str, *, sequence: int, watermark: int) -> None:
    """Serve the part's instance from now on; the manifest of the one it replaces is dropped."""
    replaced = _served(tx, part)
    if replaced is not None and replaced != part.instance:
        _drop(tx, replaced)
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


# The manifest.


def entries(tx: Transaction, instance: str) -> dict[str, ManifestEntry]:
    columns = [documents.c[name] for name in ManifestEntry._fields]
    rows = tx.connection.execute(select(*columns).where(documents.c.instance == instance))
    # Fetched one by one they take twice as long.
    return {row[1]: ManifestEntry._make(row) for some in rows.partitions(_TOGETHER) for row in some}


def versions(tx: Transaction, instance: str) -> dict[str, tuple[int, str]]:
    columns = (documents.c.uri, documents.c.size, documents.c.version)
    rows = tx.connection.execute(select(*columns).where(documents.c.instance == instance))
    return {uri: (size, version) for uri, size, version in rows.fetchall()}


def entry(tx: Transaction, instance: str, document_id: str) -> ManifestEntry | None:
    columns = [documents.c[name] for name in ManifestEntry._fields]
    one = select(*columns).where(documents.c.instance == instance, documents.c.document_id == document_id)
    row = tx.connection.execute(one).one_or_none()
    return None if row is None else ManifestEntry._make(row)


def sampled(tx: Transaction, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
    columns = [documents.c[name] for name in ManifestEntry._fields]
    found: dict[str, ManifestEntry] = {}
    for each in ids:
        following = (documents.c.instance == instance, documents.c.document_id >= each)
        first = select(*columns).where(*following).order_by(documents.c.document_id).limit(1)
        row = tx.connection.execute(first).one_or_none()
        if row is not None:
            found[row.document_id] = ManifestEntry._make(row)
    return [found[each] for each in sorted(found)]


def totals(tx: Transaction, instance: str) -> tuple[int, int, int]:
    sums = select(func.count(), func.sum(documents.c.chunks), func.sum(documents.c.size))
    count, rows, size = tx.connection.execute(sums.where(documents.c.instance == instance)).one()
    return int(count), int(rows or 0), int(size or 0)


def oversized(
    tx: Transaction, instance: str, size: int, chunks: int | None, limit: int
) -> tuple[int, list[ManifestEntry]]:
    over = [documents.c.size > size, *([documents.c.chunks > chunks] if chunks is not None else [])]
    of_it = (documents.c.instance == instance, or_(*over))
    count = int(tx.connection.scalar(select(func.count()).select_from(documents).where(*of_it)) or 0)
    if not count:
        return 0, []
    columns = [documents.c[name] for name in ManifestEntry._fields]
    largest = select(*columns).where(*of_it).order_by(documents.c.size.desc(), documents.c.document_id).limit(limit)
    return count, [ManifestEntry._make(row) for row in tx.connection.execute(largest)]


def write(tx: Transaction, instance: str, outcomes: Sequence[SliceOutcome]) -> None:
    for some in batches(each for outcome in outcomes for each in outcome.removed):
        gone = delete(documents).where(documents.c.instance == instance, documents.c.document_id.in_(some))
        tx.connection.execute(gone)
    rows = [{"instance": instance} | each._asdict() for outcome in outcomes for each in outcome.entries]
    if rows:
        tx.dialect.replace_documents(tx.connection, rows)


def drop_unserved(tx: Transaction, part: JobPart) -> None:
    """A build failed: its manifest goes, unless that very instance is served."""
    if part.fresh and part.instance != _served(tx, part):
        _drop(tx, part.instance)


def drop_partition(tx: Transaction, ref: PartitionRef) -> None:
    """Checkpoints of all generations, their manifests, and failures."""
    for each in all_checkpoints(tx, ref):
        _drop(tx, each.instance)
    for table in (checkpoints, failures):
        tx.connection.execute(delete(table).where(table.c.ref == str(ref)))


def _drop(tx: Transaction, instance: str) -> None:
    tx.connection.execute(delete(documents).where(documents.c.instance == instance))


# Failures.


def failed_versions(tx: Transaction, ref: PartitionRef, generation: str) -> dict[str, str]:
    rows = tx.connection.execute(select(failures.c.uri, failures.c.version).where(*_failed(str(ref), generation)))
    return {row.uri: row.version for row in rows}


def failure_records(tx: Transaction, ref: PartitionRef | None, limit: int) -> list[FailureRecord]:
    columns = [failures.c[name] for name in FailureRecord._fields]
    in_order = (failures.c.failed_at.desc(), failures.c.ref, failures.c.generation, failures.c.document_id)
    newest = select(*columns).order_by(*in_order).limit(limit)
    if ref is not None:
        newest = newest.where(failures.c.ref == str(ref))
    return [FailureRecord(PartitionRef.parse(row[0]), *row[1:]) for row in tx.connection.execute(newest)]


def count_failures(tx: Transaction, ref: PartitionRef, generation: str, *, skipped: bool) -> int:
    counted = failures.c.stage == SKIPPED if skipped else failures.c.stage != SKIPPED
    count = select(func.count()).select_from(failures).where(*_failed(str(ref), generation), counted)
    return int(tx.connection.scalar(count) or 0)


def write_failures(tx: Transaction, key: Key, job_id: str, outcomes: Sequence[SliceOutcome]) -> None:
    """What was written or removed has no failure any more; what failed has one more attempt."""
    cured = {each.document_id for outcome in outcomes for each in outcome.entries}
    cured.update(each for outcome in outcomes for each in outcome.removed)
    failed: dict[str, Failure] = {each.document_id: each for outcome in outcomes for each in outcome.failures}
    known = _attempts(tx, key, cured | failed.keys())
    for some in batches(sorted(known)):
        tx.connection.execute(delete(failures).where(*_failed(*key), failures.c.document_id.in_(some)))
    if failed:
        ref, generation = key
        common = {"ref": ref, "generation": generation, "job_id": job_id, "failed_at": tx.now()}
        before = {each: 0 if each in cured else known.get(each, 0) for each in failed}
        rows = [each._asdict() | common | {"attempts": before[each.document_id] + 1} for each in failed.values()]
        tx.connection.execute(insert(failures), rows)


def forget_unmet(tx: Transaction, part: JobPart, job_id: str) -> None:
    """This job has read everything: what other jobs have recorded is gone from the source."""
    others = (*_failed(str(part.ref), part.generation), failures.c.job_id != job_id)
    tx.connection.execute(delete(failures).where(*others))


def _failed(ref: str, generation: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return failures.c.ref == ref, failures.c.generation == generation


def _attempts(tx: Transaction, key: Key, ids: Iterable[str]) -> dict[str, int]:
    """Of those of these documents that have failed before."""
    wanted = set(ids)
    if not wanted:
        return {}
    few = tx.connection.execute(_SOME_FAILURES, dict(zip(("b_ref", "b_generation"), key, strict=True))).all()
    if len(few) < _FEW:
        return {row.document_id: row.attempts for row in few if row.document_id in wanted}
    found: dict[str, int] = {}
    for some in batches(sorted(wanted)):
        query = select(failures.c.document_id, failures.c.attempts)
        rows = tx.connection.execute(query.where(*_failed(*key), failures.c.document_id.in_(some)))
        found.update((row.document_id, row.attempts) for row in rows)
    return found
