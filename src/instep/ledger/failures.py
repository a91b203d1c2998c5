"""Failures: documents that are not in the index, why, and at which of their versions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, func, insert, or_, select

from instep.domain.jobs import JobPart
from instep.domain.manifest import fields_of
from instep.domain.refs import PartitionRef
from instep.domain.state import Key
from instep.domain.waves import SKIPPED, Failure, SliceOutcome
from instep.ledger.paging import beyond, on
from instep.ledger.tables import failures
from instep.ledger.transaction import Store, Transaction, batches, reads, writes

#: Up to so many known failures of a partition are simply read; of more, only those that are asked for.
_FEW: Final = 1_000

_SOME_FAILURES = (
    select(failures.c.document_id, failures.c.attempts)
    .where(failures.c.ref == bindparam("b_ref"), failures.c.generation == bindparam("b_generation"))
    .limit(_FEW)
)


class FailureRecord(NamedTuple):
    ref: PartitionRef
    document_id: str
    uri: str
    version: str
    stage: str
    reason: str
    attempts: int
    job_id: str
    failed_at: int
    generation: str = ""


class FailurePlace(NamedTuple):
    """The place of a failure in the order of all, for paging."""

    failed_at: int
    ref: str
    generation: str
    document_id: str


class FailureGroup(NamedTuple):
    """Failures of a partition at one stage for one reason: how many, and the newest."""

    ref: PartitionRef
    generation: str
    stage: str
    reason: str
    number: int
    failed_at: int


class FailureFilter(NamedTuple):
    """The failures that are meant: of these partitions, last met by this job, at this stage, for this reason, of one of
    these documents (by id); None for all.
    """

    refs: Collection[PartitionRef] | None = None
    job: str | None = None
    stage: str | None = None
    reason: str | None = None
    documents: Collection[str] | None = None


ALL_FAILURES: Final = FailureFilter()

_FAILURE = [failures.c[name] for name in FailureRecord._fields]


class Failures(Store):
    """Documents that failed, and those that are left out: one row each per generation, while it is so."""

    @reads
    def versions(self, tx: Transaction, ref: PartitionRef, generation: str = "") -> dict[str, str]:
        """URI → version at which the document last failed."""
        rows = tx.connection.execute(select(failures.c.uri, failures.c.version).where(*_failed(str(ref), generation)))
        return {row.uri: row.version for row in rows}

    @reads
    def newest(self, tx: Transaction, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        """Read failures of all generations, newest first."""
        columns = [failures.c[name] for name in FailureRecord._fields]
        in_order = (failures.c.failed_at.desc(), failures.c.ref, failures.c.generation, failures.c.document_id)
        newest = select(*columns).order_by(*in_order).limit(limit)
        if ref is not None:
            newest = newest.where(failures.c.ref == str(ref))
        return [FailureRecord(PartitionRef.parse(row[0]), *row[1:]) for row in tx.connection.execute(newest)]

    @reads
    def page(
        self,
        tx: Transaction,
        *,
        only: FailureFilter = ALL_FAILURES,
        after: FailurePlace | None = None,
        limit: int = 100,
    ) -> list[FailureRecord]:
        """Read a page of failures of all generations, newest first."""
        tie = (failures.c.ref, failures.c.generation, failures.c.document_id)
        page = _only(select(*_FAILURE).order_by(failures.c.failed_at.desc(), *tie).limit(limit), only)
        if after is not None:
            same = and_(failures.c.failed_at == after.failed_at, beyond(tie, after[1:]))
            page = page.where(or_(failures.c.failed_at < after.failed_at, same))
        return [FailureRecord(PartitionRef.parse(row[0]), *row[1:]) for row in tx.connection.execute(page)]

    @reads
    def groups(
        self, tx: Transaction, *, only: FailureFilter = ALL_FAILURES, offset: int = 0, limit: int = 100
    ) -> list[FailureGroup]:
        """Failures with the same stage and reason in one partition, together: the largest groups first."""
        key = (failures.c.ref, failures.c.generation, failures.c.stage, failures.c.reason)
        number = func.count().label("number")
        found = _only(select(*key, number, func.max(failures.c.failed_at)), only)
        page = found.group_by(*key).order_by(number.desc(), *key).offset(offset).limit(limit)
        return [FailureGroup(PartitionRef.parse(row[0]), *row[1:]) for row in tx.connection.execute(page)]

    @reads
    def count(self, tx: Transaction, ref: PartitionRef, generation: str = "", *, skipped: bool = False) -> int:
        """Count the failed documents; or those stored with them that are to be left out (`SKIPPED`)."""
        counted = failures.c.stage == SKIPPED if skipped else failures.c.stage != SKIPPED
        number = select(func.count()).select_from(failures).where(*_failed(str(ref), generation), counted)
        return int(tx.connection.scalar(number) or 0)

    @writes
    def dismiss(
        self, tx: Transaction, uris: Collection[str], *, only: FailureFilter = ALL_FAILURES
    ) -> list[FailureRecord]:
        """Forget failures of documents with these URIs, in all generations; `*` at the end of one stands for whatever
        follows. Returns them.
        """
        names, begins = frozenset(uris), tuple({each[:-1] for each in uris if each.endswith("*")})
        named: list[ColumnElement[bool]] = [failures.c.uri.in_(some) for some in batches(sorted(names))]
        named += [failures.c.uri.startswith(each, autoescape=True) for each in begins]
        rows = [row for each in named for row in tx.connection.execute(_only(select(*_FAILURE), only).where(each))]
        # Not all databases tell letters apart by their case; and some rows are meant twice.
        found = [*dict.fromkeys(row for row in rows if row.uri in names or row.uri.startswith(begins))]
        for key in sorted({(row.ref, row.generation) for row in found}):
            for some in batches(row.document_id for row in found if (row.ref, row.generation) == key):
                tx.connection.execute(delete(failures).where(*_failed(*key), failures.c.document_id.in_(some)))
        return [FailureRecord(PartitionRef.parse(row[0]), *row[1:]) for row in found]


def _only(found: Select[Any], only: FailureFilter) -> Select[Any]:
    found = on(found, failures.c.ref, only.refs)
    if only.documents is not None:
        found = found.where(failures.c.document_id.in_(only.documents))
    wanted = ((failures.c.job_id, only.job), (failures.c.stage, only.stage), (failures.c.reason, only.reason))
    return found.where(*(column == value for column, value in wanted if value is not None))


def write(tx: Transaction, key: Key, job_id: str, outcomes: Sequence[SliceOutcome]) -> None:
    """Record the failures of slices: a document written or removed has none any more; a failed one has one more
    attempt.
    """
    failed: dict[str, Failure] = {each.document_id: each for outcome in outcomes for each in outcome.failures}
    few = tx.connection.execute(_SOME_FAILURES, dict(zip(("b_ref", "b_generation"), key, strict=True))).all()
    if not (few or failed):  # As a rule.
        return
    cured: set[str] = set()
    for outcome in outcomes:
        # The entry of a document that failed says what is left of its older version.
        there = {*fields_of(outcome.entries)["document_id"]} - {each.document_id for each in outcome.failures}
        cured.update(there, outcome.removed)
    known = _attempts(tx, key, few, cured | failed.keys())
    for some in batches(sorted(known)):
        tx.connection.execute(delete(failures).where(*_failed(*key), failures.c.document_id.in_(some)))
    if failed:
        ref, generation = key
        common = {"ref": ref, "generation": generation, "job_id": job_id, "failed_at": tx.now()}
        before = {each: 0 if each in cured else known.get(each, 0) for each in failed}
        rows = [each._asdict() | common | {"attempts": before[each.document_id] + 1} for each in failed.values()]
        tx.connection.execute(insert(failures), rows)


def forget_unmet(tx: Transaction, part: JobPart, job_id: str) -> None:
    """Delete failures that a job which read everything did not meet: their documents are gone from the source."""
    others = (*_failed(str(part.ref), part.generation), failures.c.job_id != job_id)
    tx.connection.execute(delete(failures).where(*others))


def _failed(ref: str, generation: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return failures.c.ref == ref, failures.c.generation == generation


def _attempts(tx: Transaction, key: Key, few: Sequence[Any], ids: Iterable[str]) -> dict[str, int]:
    """The attempts of those of these documents that failed before. `few`: the first of all that failed."""
    wanted = set(ids)
    if len(few) < _FEW:
        return {row.document_id: row.attempts for row in few if row.document_id in wanted}
    found: dict[str, int] = {}
    for some in batches(sorted(wanted)):
        query = select(failures.c.document_id, failures.c.attempts)
        rows = tx.connection.execute(query.where(*_failed(*key), failures.c.document_id.in_(some)))
        found.update((row.document_id, row.attempts) for row in rows)
    return found
