"""Provenance: from a row in a target to everything that is known of how it came there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from instep.domain import events
from instep.domain.identity import IdentityError, canonical_uri, document_id
from instep.domain.instances import Instance
from instep.domain.jobs import Job, JobPart
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.wants import Want
from instep.errors import Transient, UserError
from instep.ledger.port import Ledger
from instep.service.documents.setup import DocumentSetup
from instep.service.generations import physical_of
from instep.service.instances import instance_dict
from instep.targets.port import StoredRow

#: Among how many wants of a partition, the newest, those are looked up that an instance satisfied.
_WANTS = 1_000
_EVENTS = 1_000
_NEVER = 2**63


@dataclass(frozen=True, slots=True)
class Window:
    """What a job brought into the index: changes after `floor` (0: everything) up to `target`."""

    floor: int
    target: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """A row and where it comes from. What is None is not known (any more): it was collected, or is older than the log.

    `job`, `part` and `window` are those that wrote the row, which may be a refresh after the instance was built;
    `document` is what is recorded of its document now. `inputs` are what the instance is made from, also what its jobs
    had to wait for: UUIDs, and the instances.
    """

    row: StoredRow
    target: str
    physical: str
    instance: Instance | None
    job: Job | None
    part: JobPart | None
    window: Window | None
    document: ManifestEntry | None
    wants: tuple[Want, ...]
    inputs: tuple[tuple[str, Instance | None], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "row": asdict(self.row),
            "target": self.target,
            "physical": self.physical,
            "instance": instance_dict(self.instance) if self.instance else None,
            "job": _job_dict(self.job, self.part) if self.job and self.part else None,
            "window": asdict(self.window) if self.window else None,
            "document": self.document._asdict() if self.document else None,
            "wants": [_want_dict(each) for each in self.wants],
            "inputs": [{"uuid": uuid, "instance": instance_dict(each) if each else None} for uuid, each in self.inputs],
        }


def _want_dict(want: Want) -> dict[str, Any]:
    return {
        "id": want.id,
        "refs": list(want.refs),
        "state": str(want.state),
        "by": want.by,
        "needed": want.needed,
        "created_at": want.created_at,
        "ended_at": want.ended_at,
    }


def _job_dict(job: Job, part: JobPart) -> dict[str, Any]:
    status = job.part(part.ref)
    return {
        "id": job.id,
        "state": str(status.state or job.state),
        "created_at": job.created_at,
        "finished_at": status.finished_at,
        "counts": status.counts.as_dict(),
        "fingerprint": dict(part.fingerprint),
        "revision": part.revision,
    }


def why(
    setups: Sequence[DocumentSetup], ledger: Ledger, target: str, id: str, *, generation: str | None = None
) -> Provenance:
    """Where a row comes from that is served, of a generation or of the promoted one. `target` names an entity, or a
    target with all its entities; `id` is a chunk_id, a document_id or a source URI. Raises `UserError` when there is no
    such row.
    """
    found = [each for each in setups if target in (each.alias, each.ref.entity, each.target_name)]
    if not found:
        names = dict.fromkeys(name for each in setups for name in (each.target_name, each.alias))
        raise UserError(f"no target and no entity is named {target!r}", hint=f"Declared: {', '.join(names)}.")
    wanted = _row_id(id)
    built, away = False, None
    for setup in found:
        try:
            physical = physical_of(setup, ledger, generation)
            row = setup.target.row(physical, wanted) if physical is not None else None
        except Transient as error:
            away = error  # Another target may have the same row.
            continue
        built = built or physical is not None
        if row is not None and physical is not None:
            return _provenance(ledger, row, setup.target_name, physical)
    if away is not None:
        raise away
    if not built:
        raise UserError(f"nothing is served of {target} yet", hint="Run: instep run")
    raise UserError(
        f"{target} has no row of {id!r}",
        hint="Give a chunk_id, a document_id or a source URI, as `instep search --json` shows them.",
    )


def _row_id(text: str) -> str:
    """The document_id for a URI; else the text itself."""
    if "://" not in text:
        return text
    try:
        return document_id(canonical_uri(text))
    except IdentityError as error:
        raise UserError(str(error), hint="Give it as `instep search --json` shows it.") from None


def _provenance(ledger: Ledger, row: StoredRow, target: str, physical: str) -> Provenance:
    ref = PartitionRef.parse(row.ref)
    instance = ledger.instance(row.instance)
    job, part = _job_of(ledger, ref, row)
    inputs = instance.inputs if instance else part.inputs if part else ()
    return Provenance(
        row=row,
        target=target,
        physical=physical,
        instance=instance,
        job=job,
        part=part,
        window=_window(ledger, job, instance) if job and instance else None,
        document=ledger.document(row.instance, row.document_id),
        wants=tuple(each for each in ledger.wants(ref=ref, limit=_WANTS) if row.instance in each.instances),
        inputs=tuple((each, ledger.instance(each)) for each in inputs),
    )


def _job_of(ledger: Ledger, ref: PartitionRef, row: StoredRow) -> tuple[Job | None, JobPart | None]:
    found = ledger.part_of_epoch(ref, row.version)
    # The next part of another instance: the one that wrote the row is not in the ledger any more.
    if found is None or found[1].instance != row.instance:
        return None, None
    job_id, part = found
    job = ledger.job(job_id)
    return (job, part) if job else (None, None)


def _window(ledger: Ledger, job: Job, instance: Instance) -> Window | None:
    if job.id == (instance.refreshed_by or instance.job) and instance.target is not None:
        return Window(instance.floor, instance.target)
    # The instance tells of its last refresh only; the one before is told by the log.
    for event in _events_during(ledger, job):
        match event:
            case events.InstanceBuilding() | events.InstanceRefreshing():
                if (event.job, event.instance) == (job.id, instance.uuid):
                    return Window(event.floor, event.target)
    return None


def _events_during(ledger: Ledger, job: Job) -> Iterator[events.Event | events.Unreadable]:
    """What was appended while a job ran: the times of events never go back, so that the first is found quickly."""
    after = _events_before(ledger, job.created_at)
    while rows := ledger.events(after=after, limit=_EVENTS):
        for each in events.read(rows):
            if job.finished_at is not None and each.at > job.finished_at:
                return
            yield each.event
        after = rows[-1][0]


def _events_before(ledger: Ledger, time: int) -> int:
    """How many events are older."""

    def at(sequence: int) -> int:
        found = ledger.events(after=sequence - 1, limit=1)
        return found[0][1] if found else _NEVER

    last = 1
    while at(last) < time:
        last *= 2
    return bisect_left(range(1, last + 1), time, key=at)
