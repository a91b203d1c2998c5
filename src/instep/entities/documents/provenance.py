"""Provenance of a chunk: its epoch identifies the job that wrote it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from instep.domain import events
from instep.domain.identity import IdentityError, canonical_uri, document_id
from instep.domain.instances import Instance
from instep.domain.jobs import Job, JobPart
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.provenance import Provenance, Window, background, forgotten_at, why_failed
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.sources.document_source import NamingSource
from instep.sources.files import FilesSource
from instep.targets.document_target import StoredRow

#: The ids that a row can be asked for by.
ROW_HINT = "Give a chunk_id, a document_id or a source URI, as `instep search --json` shows them, or a file's path."

_EVENTS = 1_000
_NEVER = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentProvenance(Provenance):
    """Provenance of a chunk. `document` is the current record of its document."""

    row: StoredRow
    document: ManifestEntry | None

    @property
    def origin(self) -> tuple[str, str]:
        return self.row.ref, self.row.instance

    def row_dict(self) -> dict[str, Any]:
        return {"row": asdict(self.row), "document": self.document._asdict() if self.document else None}


def trace(setup: DocumentAdapters, ledger: Ledger, physical: str, text: str) -> DocumentProvenance | None:
    """See `EntitySetup.trace`: `text` is a chunk_id, a document_id, a source URI or a file's path."""
    found = (setup.target.row(physical, each) for each in dict.fromkeys(_row_ids(setup, text)))
    row = next((each for each in found if each is not None), None)
    if row is None:
        return None
    ref = PartitionRef.parse(row.ref)
    job, part = _job_of(ledger, ref, row)
    behind = background(ledger, ref, row.instance, part)
    return DocumentProvenance(
        row=row,
        target=setup.target_name,
        physical=physical,
        job=job,
        part=part,
        window=_window(ledger, job, part, behind.instance) if job and part and behind.instance else None,
        behind=behind,
        forgotten=None if job else forgotten_at(ledger, ref),
        document=ledger.documents.get(row.instance, row.document_id),
        version=_table_version(ledger, ref, row),
    )


def _table_version(ledger: Ledger, ref: PartitionRef, row: StoredRow) -> int | None:
    served = next((each for each in ledger.checkpoints.of_partition(ref) if each.instance == row.instance), None)
    seen = ledger.seen.get(served) if served else None
    return seen.version.number if seen and seen.version else None


def why_absent(setup: DocumentAdapters, ledger: Ledger, text: str) -> str | None:
    """See `EntitySetup.why_absent`: of documents with readers nothing is told."""
    if setup.readers is not None:
        return None
    ids = set(_row_ids(setup, text))
    if (failed := why_failed(ledger, [setup.ref], ids)) is not None:
        return failed
    for served in ledger.checkpoints.of_entity(setup.ref.entity):
        if any(ledger.documents.of_ids(served.instance, sorted(ids)).values()):
            return "it has been read, and has no text to be found by"
    return setup.source.why_not_indexed(text) if isinstance(setup.source, FilesSource) else None


def _row_ids(setup: DocumentAdapters, text: str) -> Iterator[str]:
    """The document_id for a URI; else the text itself, or the ids of documents that the source knows by that name."""
    if "://" not in text:
        yield text
    else:
        try:
            yield document_id(canonical_uri(text))
        except IdentityError as error:
            raise UserError(str(error), hint="Give it as `instep search --json` shows it.") from None
    for name in setup.source.names(text) if isinstance(setup.source, NamingSource) else ():
        with suppress(IdentityError):  # The root of all files has no id.
            yield document_id(canonical_uri(name))


def _job_of(ledger: Ledger, ref: PartitionRef, row: StoredRow) -> tuple[Job | None, JobPart | None]:
    found = ledger.parts.of_epoch(ref, row.version)
    # The next part belongs to another instance: the one that wrote the row is no longer in the ledger.
    if found is None or found[1].instance != row.instance:
        return None, None
    job_id, part = found
    job = ledger.jobs.get(job_id)
    return (job, part) if job else (None, None)


def _window(ledger: Ledger, job: Job, part: JobPart, instance: Instance) -> Window | None:
    if job.id == (instance.refreshed_by or instance.job) and instance.target is not None:
        return Window(instance.floor, instance.target)
    # The instance has its last refresh only; earlier ones are in the event log.
    for event in _events_during(ledger, job):
        match event:
            case events.InstanceBuilding() | events.InstanceRefreshing():
                if (event.job, event.instance) == (job.id, instance.uuid):
                    return Window(event.floor, event.target)
    # The event was forgotten. A build reads everything; from when on a refresh did, nothing else says.
    return Window(0, job.created_at if part.target is None else part.target) if part.fresh else None


def _events_during(ledger: Ledger, job: Job) -> Iterator[events.Event | events.Unreadable]:
    """Events appended while a job ran. Their times never decrease, so the first one is found by bisection."""
    after = _events_before(ledger, job.created_at)
    while rows := ledger.events.rows(after=after, limit=_EVENTS):
        for each in events.read(rows):
            if job.finished_at is not None and each.at > job.finished_at:
                return
            yield each.event
        after = rows[-1][0]


def _events_before(ledger: Ledger, time: int) -> int:
    """Number of events older than `time`."""

    def at(sequence: int) -> int:
        found = ledger.events.rows(after=sequence - 1, limit=1)
        return found[0][1] if found else _NEVER

    last = 1
    while at(last) < time:
        last *= 2
    return bisect_left(range(1, last + 1), time, key=at)
