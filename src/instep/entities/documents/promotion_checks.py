"""Promotion checks of documents: row counts, how much would be lost, and some documents (or all of a few) read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from instep.domain.fingerprint import changed_parts
from instep.domain.identity import content_hash
from instep.domain.jobs import Job, JobPart, JobState, PartStatus
from instep.domain.manifest import ManifestEntry
from instep.domain.promotion_rules import EMPTY, NO_LOSS, Judged, Loss, Tally, nothing_written
from instep.domain.settings import allows_empty
from instep.domain.texts import amount
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.builds import side_by_side
from instep.entities.documents.quality import Build
from instep.entities.documents.sources import ANY_SIZE
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

if TYPE_CHECKING:
    import pyarrow as pa


def not_as_recorded(setup: DocumentAdapters, ledger: Ledger, instance: str, physical: str, epoch: int) -> str | None:
    """A sampled document that differs between target and ledger, as text, or None. `epoch` is that of the partition's
    lease.
    """
    entries = _entries(setup.samples, instance, ledger)
    if not entries:
        return None
    import numpy as np

    from instep.pipeline.documents.diff import chunk_digests, document_digests

    base = setup.target.fence(physical, epoch)
    found = setup.target.writer(physical, base).existing([each.document_id for each in entries])
    places = {each.document_id: place for place, each in enumerate(entries)}
    owner = np.array([places[str(each)] for each in found["document_id"].to_pylist()], np.int64)
    ids, hashes = (cast("pa.StringArray", found[name].combine_chunks()) for name in ("chunk_id", "chunk_hash"))
    digests = document_digests(chunk_digests(ids, hashes), owner, len(entries))
    counts = np.bincount(owner, minlength=len(entries))
    for entry, count, digest in zip(entries, counts.tolist(), digests.tolist(), strict=True):
        if count != entry.chunks:
            return f"the target holds {count:,} chunks of {entry.uri} where {entry.chunks:,} were recorded; not served"
        if entry.digest is not None and digest != entry.digest:
            return f"the target holds other chunks of {entry.uri} than were recorded; not served"
    return None


def _entries(samples: int, instance: str, ledger: Ledger) -> list[ManifestEntry]:
    """Sampled documents: different ones for each instance, and always the same for one."""
    documents, _, _ = ledger.documents.totals(instance)
    if documents <= samples:
        return [*ledger.documents.entries(instance).values()]
    # Ids are hashes, so the id next to any text of that form is a random sample.
    ends = [f"doc_{content_hash(f'{instance} {number}'.encode())}" for number in range(samples)]
    return ledger.documents.sampled(instance, ends)


_NOT_ALLOWED = "so many are left out only with --allow-deletes; the served index stays"
_ALL_FAILED = "every document failed; the served index stays"


def as_recorded(setup: DocumentAdapters, part: JobPart, ledger: Ledger) -> bool:
    """See `EntitySetup.as_recorded`."""
    recorded, stored = _rows(setup, ledger, part.instance, part.physical)
    return stored == recorded


def problem(setup: DocumentAdapters, part: JobPart, ledger: Ledger, job: Job, state: JobState) -> str | None:
    """See `EntitySetup.problem`."""
    recorded, stored = _rows(setup, ledger, part.instance, part.physical)
    if stored != recorded:
        return _changed(stored, recorded, served=not part.fresh)
    unlike = not_as_recorded(setup, ledger, part.instance, part.physical, part.epoch) if part.fresh else None
    if unlike or not part.fresh:
        return unlike
    checkpoint, status = ledger.checkpoints.get(part.ref, part.generation), job.part(part.ref)
    empty = allows_empty(job.configuration, str(part.ref))
    if state is JobState.FAILED:
        return "every document failed, so nothing is served" if checkpoint is None else _ALL_FAILED
    if checkpoint is None:
        counts = status.counts
        nothing = None if empty else nothing_written(0, counts.read - counts.deleted, counts.written, setup.unit)
        return nothing or (_finds_worse(setup, part, None) if stored else None)
    if stored == 0 and _holds_something(ledger, checkpoint):
        return None if empty and not status.counts.failed else EMPTY
    allowed = empty or bool(job.configuration.get("allow_deletes"))
    worse = _finds_worse(setup, part, checkpoint) if stored else None
    return worse or _replaces(setup, part, checkpoint, ledger, job, allowed=allowed)


def _finds_worse(setup: DocumentAdapters, built: Build, served: Build | None) -> str | None:
    return None if setup.demand is None else setup.demand.problem(setup, built, served)


def _replaces(
    setup: DocumentAdapters, part: JobPart, checkpoint: Checkpoint, ledger: Ledger, job: Job, *, allowed: bool
) -> str | None:
    """The reason why a build that is not empty must not replace the served index. Its allowed loss counts with later
    ones.
    """
    status = job.part(part.ref)
    verdict = _judged(setup, part, checkpoint, ledger, status)
    if not verdict.enough:
        return f"{verdict}; the served index stays"
    if allowed:
        return None
    before = ledger.losses.lately(part.ref, part.generation, window=setup.guard.window)
    found = _vanished(setup, part, checkpoint, ledger, status) or _emptied(
        setup, ledger, part.instance, checkpoint, before
    )
    if isinstance(found, str):
        return found
    if found:
        ledger.losses.count(part, found, job_id=job.id)
    return None


def _vanished(
    setup: DocumentAdapters, part: JobPart, checkpoint: Checkpoint, ledger: Ledger, status: PartStatus
) -> str | None:
    """The delete guard for documents that were listed but gone when they were read: the build skips them. A volume that
    is unmounted during the build loses nearly all of them.
    """
    documents, _, _ = ledger.documents.totals(checkpoint.instance)
    if not setup.guard.refuses(status.counts.skipped, documents):
        return None  # Without reading two manifests: no more than these can have vanished.
    lost = _missing(setup, ledger, part.generation, part.instance, checkpoint)
    if not setup.guard.refuses(lost, documents):
        return None
    return f"{lost:,} of {documents:,} documents that are served disappeared before they could be read; {_NOT_ALLOWED}"


def _emptied(
    setup: DocumentAdapters, ledger: Ledger, instance: str, served: Checkpoint, before: Loss = NO_LOSS
) -> str | Loss:
    """The delete guard for documents that still exist but are empty or shorter now: files were emptied or cut off.
    A different transform makes other chunks: then only documents without any count. Returns the loss, without the
    plan's own, if it is not too much together with the recent losses `before`.
    """
    documents, rows, _ = ledger.documents.totals(served.instance)
    built, built_rows, _ = ledger.documents.totals(instance)
    filled, _ = ledger.documents.oversized(instance, size=ANY_SIZE, chunks=0, limit=0)
    made = ledger.instances.get(instance)
    alike = made is not None and not changed_parts(made.fingerprint or {}, served.fingerprint)
    if built == filled and not (alike and built_rows < rows):
        return NO_LOSS  # Without reading two manifests.
    from instep.document_state.losses import Emptied, emptied

    lost = Emptied()
    for each in side_by_side(setup, ledger, served.instance, instance, {}):
        lost = lost.plus(emptied(each.served, each.built))
    blank = lost.blank  # The plan sees those without any bytes.
    if setup.guard.refuses(lost.documents, documents) or setup.guard.refuses(blank, documents, before.units):
        lately = f" ({before.units:,} more were lost lately)" if before.units else ""
        said = f"{lost.documents:,} of {documents:,} documents that are served are empty now{lately}"
        return f"{said}; {_NOT_ALLOWED}"
    gone = lost.chunks if alike else 0
    if setup.guard.refuses(gone, rows, before.rows):
        lately = f" ({before.rows:,} more were lost lately)" if before.rows else ""
        return f"documents that still exist would lose {gone:,} of {rows:,} chunks{lately}; {_NOT_ALLOWED}"
    return Loss(blank, gone)


def _left_out(
    setup: DocumentAdapters, ledger: Ledger, generation: str, instance: str, served: Checkpoint
) -> str | None:
    """The delete guard for served documents that another generation lacks."""
    before, _, _ = ledger.documents.totals(served.instance)
    lost = _missing(setup, ledger, generation, instance, served)
    if not setup.guard.refuses(lost, before):
        return None
    return f"{lost:,} of {before:,} documents that are served are not in it; {_NOT_ALLOWED}"


def _judged(
    setup: DocumentAdapters, part: JobPart, checkpoint: Checkpoint, ledger: Ledger, status: PartStatus
) -> Judged:
    counts = status.counts
    whole = Judged(counts.read - counts.deleted, counts.failed, needed=setup.needed)
    if whole.enough:
        return whole  # Without reading two manifests, which may be long.
    return _compared(setup, ledger, part.generation, part.instance, checkpoint)


def not_better(
    setup: DocumentAdapters,
    ledger: Ledger,
    checkpoint: Checkpoint,
    served: Checkpoint,
    epoch: int,
    *,
    allowed: bool,
    empty: bool,
) -> str | None:
    """See `EntitySetup.not_better`."""
    recorded, stored = _rows(setup, ledger, checkpoint.instance, checkpoint.physical)
    if stored != recorded:
        return _changed(stored, recorded)
    if unlike := not_as_recorded(setup, ledger, checkpoint.instance, checkpoint.physical, epoch):
        return unlike
    if stored == 0 and not empty and _holds_something(ledger, served):
        return EMPTY
    generation, instance = checkpoint.generation, checkpoint.instance
    verdict = _compared(setup, ledger, generation, instance, served)
    if not verdict.enough:
        return f"{verdict}; the served index stays"
    worse = _finds_worse(setup, checkpoint, served) if stored else None
    if worse or allowed or empty:
        return worse
    found = _left_out(setup, ledger, generation, instance, served) or _emptied(setup, ledger, instance, served)
    return found if isinstance(found, str) else None


def outdated(setup: DocumentAdapters, ledger: Ledger, checkpoint: Checkpoint, served: Checkpoint) -> str | None:
    """The reason why a build may show documents to readers who may not read them any more, or None. A document that
    failed in what is served may be served to fewer readers than are recorded of it.
    """
    if setup.readers is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    failed, known = (ledger.failures.versions(setup.ref, each.generation) for each in (served, checkpoint))
    fresh: Any = pa.array([uri for uri, version in failed.items() if known.get(uri) != version], pa.string())
    found = 0
    for each in side_by_side(setup, ledger, served.instance, checkpoint.instance, {}, ("uri", "document_hash")):
        uris, hashes = each.built["uri"], each.built["document_hash"]
        then: Any = each.served["document_hash"].take(pc.index_in(uris, value_set=each.served["uri"]))
        same: Any = pc.equal(then, hashes).fill_null(False)
        sound: Any = pc.and_(same, pc.invert(pc.is_in(uris, value_set=fresh)))
        found += uris.length() - (pc.sum(sound).as_py() or 0)
    if not found:
        return None
    return (
        f"{amount(found, 'document')} of it changed, went or failed since: it may show them to readers who may not "
        "read them any more, so bring it up to date first"
    )


def _holds_something(ledger: Ledger, served: Checkpoint) -> bool:
    _, rows, _ = ledger.documents.totals(served.instance)
    return rows > 0


def _compared(setup: DocumentAdapters, ledger: Ledger, generation: str, instance: str, served: Checkpoint) -> Judged:
    from instep.document_state.losses import tally

    failed = ledger.failures.versions(setup.ref, generation)
    found = Tally(0, 0, 0, 0, 0, 0)
    for each in side_by_side(setup, ledger, served.instance, instance, failed):
        failing = _others(each.failed, each.built)
        found = found.plus(tally(each.served, _listed(each.built, failing), failing["uri"].combine_chunks()))
    return found.judged(setup.needed)


def _missing(setup: DocumentAdapters, ledger: Ledger, generation: str, instance: str, served: Checkpoint) -> int:
    """The number of served documents that were neither built nor failed."""
    from instep.document_state.losses import missing

    failed = ledger.failures.versions(setup.ref, generation)
    found = side_by_side(setup, ledger, served.instance, instance, failed)
    return sum(missing(each.served["uri"], _listed(each.built, each.failed)["uri"]) for each in found)


def _listed(built: pa.Table, failed: pa.Table) -> pa.Table:
    """List all documents that a build has read, with their versions."""
    import pyarrow as pa

    return pa.concat_tables([built.select(["uri", "version"]), failed])


def _others(failed: pa.Table, built: pa.Table) -> pa.Table:
    """Failures of documents that are not in the build as they were before."""
    import pyarrow.compute as pc

    return failed.filter(pc.invert(pc.is_in(failed["uri"], value_set=built["uri"])))


def _rows(setup: DocumentAdapters, ledger: Ledger, instance: str, physical: str) -> tuple[int, int]:
    """The numbers of rows as recorded, and as the target counts them."""
    _, recorded, _ = ledger.documents.totals(instance)
    return recorded, setup.target.rows(physical)


def damage(setup: DocumentAdapters, ledger: Ledger, checkpoint: Checkpoint) -> str | None:
    """See `EntitySetup.damage`."""
    recorded, stored = _rows(setup, ledger, checkpoint.instance, checkpoint.physical)
    return None if stored == recorded else _changed(stored, recorded, served=True)


def _changed(stored: int, recorded: int, *, served: bool = False) -> str:
    what = "it is served as it is" if served else "not served"
    return (
        f"the target holds {stored:,} rows where {recorded:,} were recorded; {what}. "
        "Something else writes to this index, or it was changed behind Instep's back: see `instep diff`, repair it "
        "with "
        "`instep diff --repair`, or run with --full-refresh"
    )
