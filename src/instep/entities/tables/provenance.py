"""Provenance of a row of a table: its watermark, or the base of its wave, identifies the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from instep.domain.columns import Column
from instep.domain.jobs import Job, JobPart
from instep.domain.keys import Key, KeyValue, key_of, keys_in
from instep.domain.pending_queue import QueueKey
from instep.domain.planning import MAX_SLICES_PER_ENTITY
from instep.domain.refs import PartitionRef
from instep.domain.rows import RowSlice, decode_row_slice
from instep.domain.rows import Window as RowWindow
from instep.domain.table_versions import VersionWindow
from instep.entities.provenance import Provenance, Window, background, forgotten_at, why_failed
from instep.entities.tables.adapters import MICROS, TableAdapters
from instep.ledger.ledger import Ledger
from instep.targets.table_target import INSTANCE, OWN, REF, VERSION, TableSpec, spec_of

#: Number of the newest jobs in the ledger that are searched for the one that wrote a row.
_JOBS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProvenance(Provenance):
    """Provenance of a row. `key` has its key columns, `ref` and `uuid` are the partition and the instance that it
    names. `watermark` (µs) is its own, None if the entity has none. `slice` is the job's slice that contained it. The
    `versions` are those that the job read of a table that keeps them. The
    job is the first that can have written it; unless that is `certain`, a later one may have: rows come late, and files
    with rows of any watermark.
    """

    key: Mapping[str, KeyValue]
    ref: str
    uuid: str
    watermark: int | None
    slice: RowSlice | None
    certain: bool = True
    versions: VersionWindow | None = None

    @property
    def origin(self) -> tuple[str, str]:
        return self.ref, self.uuid

    def row_dict(self) -> dict[str, Any]:
        row = {
            "key": {name: _plain(value) for name, value in self.key.items()},
            "ref": self.ref,
            "instance": self.uuid,
            "watermark": self.watermark,
            "certain": self.certain,
            **({"versions": self.versions._asdict()} if self.versions else {}),
        }
        return {"row": row, "slice": _slice_dict(self.slice) if self.slice else None}


def _slice_dict(rows: RowSlice) -> dict[str, Any]:
    return {
        "index": rows.index,
        "count": rows.count,
        "columns": list(rows.cut_by),
        "from": _bound(rows.range.lower),
        "below": _bound(rows.range.upper),
    }


def _bound(bound: Key | None) -> list[Any] | None:
    return None if bound is None else [_plain(each) for each in bound.values]


def _plain(value: KeyValue) -> int | str:
    """The value in JSON."""
    match value:
        case bytes():
            return value.hex()
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
    return value


def trace(setup: TableAdapters, ledger: Ledger, physical: str, text: str) -> RowProvenance | None:
    """See `EntitySetup.trace`: `text` is the key, its columns joined by commas."""
    spec = spec_of(setup.target.specs(physical), OWN)
    columns = [Column(name, spec.type_of(name)) for name in spec.key]
    for key in keys_in(text, columns):
        row = setup.target.row(physical, key)
        if row is not None:
            return _provenance(setup, ledger, physical, spec, row)
    return None


def why_absent(setup: TableAdapters, ledger: Ledger, text: str) -> str | None:
    """See `EntitySetup.why_absent`: `text` is the key, or what failures call the row."""
    from instep.pipeline.tables.values import id_of  # Imports Arrow: only for what is not there.

    entity = setup.ref.entity
    refs = {setup.ref, *(each.ref for each in ledger.checkpoints.of_entity(entity))}
    return why_failed(ledger, refs, [id_of(entity, text)])


def _provenance(
    setup: TableAdapters, ledger: Ledger, physical: str, spec: TableSpec, row: Mapping[str, Any]
) -> RowProvenance:
    ref, uuid = PartitionRef.parse(row[REF]), str(row[INSTANCE])
    watermark = int(row[VERSION]) if setup.rows.watermark else None
    values = _by_source(setup, spec, row)
    if setup.queue:
        job, part, slices = _job_with(ledger, ref, uuid, values)
    elif setup.reads_here:
        job, part = _job_since(ledger, ref, uuid, int(row[VERSION]))
        slices = _slices(ledger, job, part) if job and part else []
    else:
        job, part = _job_of(ledger, ref, uuid, watermark)
        slices = _slices(ledger, job, part) if job and part else []
    window = slices[0].window if slices else None
    return RowProvenance(
        key={name: row[name] for name in spec.key},
        ref=str(ref),
        uuid=uuid,
        watermark=watermark,
        target=setup.target_name,
        physical=physical,
        job=job,
        part=part,
        window=_window(window, part) if window and part else None,
        slice=_slice_of(slices, values),
        certain=job is None or watermark is None or _is_certain(setup, ledger, job, part),
        behind=background(ledger, ref, uuid, part),
        versions=slices[0].versions if slices else None,
        version=_version(setup, ledger, part),
        forgotten=None if job else forgotten_at(ledger, ref),
    )


def _version(setup: TableAdapters, ledger: Ledger, part: JobPart | None) -> int | None:
    """The version of its table that the index has."""
    served = ledger.checkpoints.get(setup.ref, part.generation) if part else None
    seen = ledger.seen.get(served) if served else None
    return seen.version.number if seen and seen.version else None


def _window(window: RowWindow, part: JobPart) -> Window:
    """The window of a job, as far as there is one: all rows of new files are read, whatever their watermark."""
    reached = window.target if part.target is None else min(window.target, part.target * MICROS)
    return Window(0 if window.everything else (window.floor or 0) // MICROS, reached // MICROS)


def _is_certain(setup: TableAdapters, ledger: Ledger, job: Job, part: JobPart | None) -> bool:
    """Whether no later job has read rows with the watermarks of this one."""
    served = ledger.checkpoints.get(setup.ref, part.generation) if part else None
    if served is None or served.job_id == job.id:
        return True
    seen = ledger.seen.get(served)
    return seen is not None and seen.files is None and seen.late is None


def _job_of(
    ledger: Ledger, ref: PartitionRef, uuid: str, watermark: int | None
) -> tuple[Job, JobPart] | tuple[None, None]:
    """The job that wrote a row. Without a watermark, all rows of an instance were written by the job that built it."""
    if watermark is not None:
        found = ledger.parts.reaching(ref, uuid, -(-watermark // MICROS))
        job_id = found[0] if found else None
    else:
        instance = ledger.instances.get(uuid)
        job_id = instance.job if instance else None
    job = ledger.jobs.get(job_id) if job_id else None
    return (job, job.part(ref).part) if job else (None, None)


def _job_since(ledger: Ledger, ref: PartitionRef, uuid: str, base: int) -> tuple[Job, JobPart] | tuple[None, None]:
    """The last job that began when the index had this base, or an earlier one: rows have that of their wave."""
    found: tuple[Job, JobPart] | tuple[None, None] = (None, None)
    latest = (-1, -1)
    for job in ledger.jobs.newest(limit=_JOBS):
        for part in (each.part for each in job.parts):
            if (part.ref, part.instance) == (ref, uuid) and latest < (part.base, part.epoch) and part.base <= base:
                found, latest = (job, part), (part.base, part.epoch)
    return found


def _job_with(
    ledger: Ledger, ref: PartitionRef, uuid: str, values: Mapping[str, Any]
) -> tuple[Job, JobPart, list[RowSlice]] | tuple[None, None, list[RowSlice]]:
    """The last job with this key in a slice. Keys come from a queue in any order; slices of old jobs are not kept."""
    for job in ledger.jobs.newest(limit=_JOBS):
        part = next((each.part for each in job.parts if (each.part.ref, each.part.instance) == (ref, uuid)), None)
        slices = _slices(ledger, job, part) if part else []
        found = _slice_of(slices, values)
        if part and found and (not found.keys or _queue_key(values) in found.keys):
            return job, part, slices
    return None, None, []


def _queue_key(values: Mapping[str, Any]) -> QueueKey:
    """The row's key as its queue has it: the source may have numbers of another type."""
    (value, *_) = values.values()
    return value if isinstance(value, str) else int(value)


def _slices(ledger: Ledger, job: Job, part: JobPart) -> list[RowSlice]:
    stored = ledger.slices.of_part(job.id, part.ref, limit=MAX_SLICES_PER_ENTITY)
    return [rows for each in stored if (rows := decode_row_slice(each.payload)) is not None]


def _by_source(setup: TableAdapters, spec: TableSpec, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row by columns of the source, as far as these are known without asking it."""
    found = {source: row[name] for source, name in zip(setup.rows.key, spec.key, strict=True)}
    return found | ({setup.rows.scope: row[spec.scope]} if setup.rows.scope and spec.scope else {})


def _slice_of(slices: Sequence[RowSlice], values: Mapping[str, Any]) -> RowSlice | None:
    for each in slices:
        if not values.keys() >= set(each.cut_by):
            return None  # Cut by a column that is in no key.
        if not each.cut_by or each.range.holds(key_of(*(values[name] for name in each.cut_by))):
            return each
    return None
