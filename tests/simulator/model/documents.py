"""What is indexed of a partition, and which of its documents could not be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from instep.document_state.entries import entry_schema
from instep.domain.jobs import JobPart
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome
from instep.ledger.failures import FailureRecord
from tests.simulator.model.tables import Generation, Tables

if TYPE_CHECKING:
    import pyarrow as pa


def record(tables: Tables, part: JobPart, job_id: str, outcomes: Sequence[SliceOutcome]) -> None:
    """Manifest rows and failures. What was written or removed has no failure any more."""
    outcomes = [each.storable() for each in outcomes]
    manifest = tables.documents.setdefault(part.instance, {})
    key = part.ref, part.generation
    failed = tables.failures.setdefault(key, {})
    for outcome in outcomes:
        for removed in outcome.removed:
            manifest.pop(removed, None)
            failed.pop(removed, None)
    for outcome in outcomes:
        failing = {each.document_id for each in outcome.failures}
        for entry in outcome.entries:
            manifest[entry.document_id] = entry
            if entry.document_id not in failing:
                failed.pop(entry.document_id, None)
    record_failures(tables, key, job_id, (each for outcome in outcomes for each in outcome.failures))


def record_failures(tables: Tables, key: Generation, job_id: str, failures: Iterable[Failure]) -> None:
    now, known = tables.now(), tables.failures.setdefault(key, {})
    ref, generation = key
    # One call is one attempt, however often it names a document.
    for each in {failure.document_id: failure for failure in (some.storable() for some in failures)}.values():
        before = known.get(each.document_id)
        known[each.document_id] = FailureRecord(
            ref=ref,
            document_id=each.document_id,
            uri=each.uri,
            version=each.version,
            stage=each.stage,
            reason=each.reason,
            attempts=before.attempts + 1 if before else 1,
            job_id=job_id,
            failed_at=now,
            generation=generation,
        )


def forget_unmet(tables: Tables, key: Generation, job_id: str) -> None:
    """Failures that this job, which has read everything, has not met."""
    known = tables.failures.get(key, {})
    tables.failures[key] = {name: each for name, each in known.items() if each.job_id == job_id}


def forget_unserved(tables: Tables, part: JobPart) -> None:
    """Drop the manifest of an instance that a failed part began and that is not served."""
    served = tables.checkpoints.get((part.ref, part.generation))
    if part.fresh and (served is None or served.instance != part.instance):
        tables.documents.pop(part.instance, None)


def manifest(tables: Tables, instance: str) -> dict[str, ManifestEntry]:
    return {entry.uri: entry for entry in tables.documents.get(instance, {}).values()}


def versions(tables: Tables, instance: str) -> dict[str, tuple[int, str]]:
    return {entry.uri: (entry.size, entry.version) for entry in tables.documents.get(instance, {}).values()}


def columns(tables: Tables, instance: str, names: Sequence[str], uris: Collection[str] | None = None) -> pa.Table:
    import pyarrow as pa

    found = [each for each in manifest(tables, instance).values() if uris is None or each.uri in uris]
    found.sort(key=lambda each: each.document_id)
    schema = entry_schema(names)
    made = [pa.array([getattr(each, field.name) for each in found], field.type) for field in schema]
    return pa.Table.from_arrays(made, schema=schema)


def sampled(tables: Tables, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
    entries = tables.documents.get(instance, {})
    known = sorted(entries)
    places = sorted({bisect_left(known, each) for each in ids})
    return [entries[known[place]] for place in places if place < len(known)]


def totals(tables: Tables, instance: str) -> tuple[int, int, int]:
    entries = tables.documents.get(instance, {}).values()
    return len(entries), sum(entry.chunks for entry in entries), sum(entry.size for entry in entries)


def oversized(
    tables: Tables, instance: str, size: int, chunks: int | None, limit: int
) -> tuple[int, list[ManifestEntry]]:
    entries = tables.documents.get(instance, {}).values()
    found = [each for each in entries if each.size > size or (chunks is not None and each.chunks > chunks)]
    return len(found), sorted(found, key=lambda each: (-each.size, each.document_id))[:limit]


def failed_versions(tables: Tables, key: Generation) -> dict[str, str]:
    return {each.uri: each.version for each in tables.failures.get(key, {}).values()}


def failures(tables: Tables, ref: PartitionRef | None, limit: int) -> list[FailureRecord]:
    keys = [each for each in tables.failures if ref is None or each[0] == ref]
    found = [each for key in keys for each in tables.failures[key].values()]
    found.sort(key=lambda each: (-each.failed_at, str(each.ref), each.generation, each.document_id))
    return found[:limit]
