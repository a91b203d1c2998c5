"""Status of partitions: the index that is served, its size and freshness, and problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from instep.answers.answer import Answer, Ref, ScopeText
from instep.answers.jobs import Counts
from instep.bus.bus import StatusEntry, StatusKeys
from instep.domain import status
from instep.domain.fingerprint import TARGET, change_text, changed_parts
from instep.domain.jobs import Job, JobState, PartStatus, error_of, state_of
from instep.domain.refs import RefError, Scope
from instep.domain.status import IndexState, StatusKey
from instep.domain.texts import amount, cleaned, hidden
from instep.entities.instances import ending
from instep.entities.ownership import restored, vanished
from instep.entities.setup import EntitySetup, Size
from instep.errors import InstepError
from instep.jobs.restart_pauses import stays_stopped
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger


class LatestJob(Answer):
    id: str
    state: JobState
    created_at: int
    finished_at: int | None
    error: str | None
    counts: Counts
    slices: dict[str, int]


class Partition(Answer):
    """Status of a partition, in the generation that is served. `documents` is null for a table, `rows` (of the target)
    when they cannot be read.
    """

    ref: Ref
    generation: str
    promoted: bool
    state: IndexState
    documents: int | None
    rows: int | None
    bytes: int
    failures: int
    skipped: int
    instance: str | None
    physical: str | None
    watermark: int | None
    job: LatestJob | None
    notes: tuple[str, ...]


#: How often a status is read when each time another build is promoted meanwhile.
_LOOKS: Final = 5


def entity_status(setup: EntitySetup, ledger: Ledger, generation: str | None = None) -> Partition:
    """The status of a generation; by default of the promoted one.

    When another build was promoted while it was read, what it says is of a build that may be gone: it is read again.
    """
    for _ in range(_LOOKS):
        found = _status(setup, ledger, generation)
        now = ledger.checkpoints.get(setup.ref, found.generation)
        if found.instance == (now.instance if now else None):
            break
    return found


def _status(setup: EntitySetup, ledger: Ledger, generation: str | None) -> Partition:
    promoted = ledger.partitions.promoted(setup.ref)
    generation = (promoted or "") if generation is None else generation
    checkpoint = ledger.checkpoints.get(setup.ref, generation)
    job = ledger.jobs.latest(setup.ref, generation)
    part = job.part(setup.ref) if job else None
    failures = ledger.failures.count(setup.ref, generation)
    skipped = ledger.failures.count(setup.ref, generation, skipped=True)
    notes: list[str] = []
    rows: int | None = 0
    size = Size(0, 0, 0)
    known = True
    made_of, unknown = _fingerprint(setup)
    if checkpoint:
        size = setup.size(ledger, checkpoint)
        changed = [] if made_of is None else _changed(setup, ledger, checkpoint, notes)
        rows = None if TARGET in changed else _rows(setup, checkpoint, size.rows, ledger, notes)
        if promoted == generation and rows is not None and not (job and not job.state.ended):
            known = _is_served(setup, checkpoint, ledger, notes)
            notes += _restored(setup, checkpoint, job)
        if changed:
            option = "" if promoted == generation else f" with --generation {generation or repr(generation)}"
            notes.append(_rebuilt_because(setup, checkpoint, changed, option))
        notes += _left(ledger, setup, generation, checkpoint.instance)
        if setup.scanned and (late := ledger.seen.late(checkpoint)) is not None:
            when = f"{datetime.fromtimestamp(late.at / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
            notes.append(f"{late}, seen and read {when}; rows that come later than `watermark_lag`: instep reconcile")
    if problem := setup.source_problem() or unknown:
        notes.append(f"the next run will fail: {hidden(str(problem))}")
    if problem := ledger.losses.listing_problem(setup.ref):
        notes.append(f"not all of the source could be read, and what could not be read is not deleted: {problem}")
    notes += _other_jobs(setup, ledger, generation, promoted)
    if failures:
        notes.append(f"{amount(failures, setup.unit)} failed; see `instep failures`")
    if skipped:
        notes.append(f"{amount(skipped, setup.unit)} skipped as too large; see `instep failures`")
    error = error_of(job, part) if job and part else None
    if job and job.state is JobState.STOPPED and job.stopped_by_people:
        notes.append(stays_stopped(job))
    elif error:
        notes.append(f"last job: {error}")
    return Partition(
        ref=setup.ref,
        generation=generation,
        state=_state(checkpoint, state_of(job, part) if job and part else None, rows if known else None),
        documents=size.units,
        rows=rows,
        bytes=size.bytes,
        failures=failures,
        skipped=skipped,
        instance=checkpoint.instance if checkpoint else None,
        physical=checkpoint.physical if checkpoint else None,
        watermark=checkpoint.watermark if checkpoint else None,
        job=_latest(job, part) if job and part else None,
        promoted=promoted == generation,
        notes=tuple(notes),
    )


def _fingerprint(setup: EntitySetup) -> tuple[Mapping[str, str] | None, str | None]:
    """The fingerprint, or why it cannot be told."""
    try:
        return setup.fingerprint, None
    except InstepError as error:
        return None, cleaned(str(error))


def _changed(setup: EntitySetup, ledger: Ledger, checkpoint: Checkpoint, notes: list[str]) -> list[str]:
    """See `EntitySetup.changed_since_built`; a place that cannot be read is told, and may be the same."""
    try:
        return setup.changed_since_built(ledger, checkpoint)
    except InstepError as error:
        notes.append(f"target {setup.target_name!r} cannot be read: {error}")
        return [each for each in changed_parts(setup.fingerprint, checkpoint.fingerprint) if each != TARGET]


def _rebuilt_because(setup: EntitySetup, checkpoint: Checkpoint, changed: Sequence[str], option: str) -> str:
    others = [each for each in changed if each != TARGET]
    if TARGET not in changed:
        return f"{', '.join(others)} changed since; the next run{option} rebuilds"
    moved = change_text(TARGET, setup.fingerprint, checkpoint.fingerprint)
    return f"{', '.join([moved, *(f'{each} changed' for each in others)])}; the next run{option} builds it there"


def _latest(job: Job, part: PartStatus) -> LatestJob:
    return LatestJob(
        id=job.id,
        state=state_of(job, part),
        created_at=job.created_at,
        finished_at=part.finished_at,
        error=error_of(job, part),
        counts=Counts.model_validate(part.counts),
        slices={str(state): number for state, number in part.slices.items()},
    )


def _left(ledger: Ledger, setup: EntitySetup, generation: str, uuid: str) -> list[str]:
    """The reason why the served instance is no longer canonical, such as a taint; it is served until there is a better
    one.
    """
    served, current = ledger.instances.get(uuid), ledger.instances.canonical(setup.ref, generation)
    if served is None or current is None or not served.left or current.usable:
        return []
    how = "is being rebuilt" if current.worked_on_by else "is to be rebuilt"
    return [f"the served index {how} ({ending(served)})"]


def _other_jobs(setup: EntitySetup, ledger: Ledger, generation: str, promoted: str | None) -> list[str]:
    """Other generations that are built."""
    names = [each.generation for each in ledger.checkpoints.of_partition(setup.ref) if each.generation != generation]
    shown = [f"{name or repr(name)}{' (promoted)' if name == promoted else ''}" for name in names]
    return [f"other generations are built: {', '.join(shown)}"] if shown else []


def _state(checkpoint: Checkpoint | None, last: JobState | None, rows: int | None) -> IndexState:
    """`last` is how far the latest job is with this partition."""
    if rows is None:
        return IndexState.UNKNOWN
    working = last is not None and (not last.ended or last is JobState.STOPPED)
    if checkpoint is None:
        if working:
            return IndexState.BACKFILLING
        return IndexState.ERROR if last is JobState.FAILED else IndexState.NOT_INDEXED
    if working:
        return IndexState.INDEXING
    return IndexState.ERROR if last is JobState.FAILED else IndexState.INDEXED


def _restored(setup: EntitySetup, checkpoint: Checkpoint, job: Job | None) -> list[str]:
    try:
        told = restored(setup, checkpoint, job)
    except InstepError:
        return []  # It is said of the rows.
    if told is None:
        return []
    label = setup.ref.label
    mend = f"instep diff {label} --repair" if setup.unit == "document" else f"instep run {label} --full-refresh"
    return [f"{told}; the next run that looks at it repairs it, or: {mend}"]


def _is_served(setup: EntitySetup, checkpoint: Checkpoint, ledger: Ledger, notes: list[str]) -> bool:
    """Whether who reads by the alias gets what the ledger says."""
    try:
        served = setup.target.served(setup.alias)
    except InstepError as error:
        notes.append(f"what readers get is not known: {error}")
        return False
    others = ledger.checkpoints.of_partition(setup.ref) if served and served != checkpoint.physical else []
    if moved := next((each for each in others if each.physical == served), None):
        # First the alias is moved, then the ledger records it.
        notes.append(
            f"{moved.generation or 'the generation without a name'} is being promoted, or the next run ends that"
        )
        return True
    if served != checkpoint.physical:
        what = f"alias {setup.alias!r} serves {served or 'nothing'}, the ledger recorded {checkpoint.physical}"
        notes.append(f"{what}: run with --full-refresh" if served else f"{what}: the next run makes it again")
    return served == checkpoint.physical


def _rows(
    setup: EntitySetup, checkpoint: Checkpoint, recorded: int | None, ledger: Ledger, notes: list[str]
) -> int | None:
    """Rows in the target; an unreadable count is unknown, never zero."""
    try:
        if not setup.target.exists(checkpoint.physical):
            notes.append(str(vanished(setup, checkpoint.physical, ledger)))
            return None
        rows = setup.target.rows(checkpoint.physical)
    except InstepError as error:
        notes.append(f"target {setup.target_name!r} cannot be read: {error}")
        return None
    if recorded is not None and rows != recorded:
        mend = "see `instep diff`" if setup.unit == "document" else "run with --full-refresh"
        notes.append(f"the target holds {rows:,} rows, the ledger recorded {recorded:,}: {mend}")
    return rows


class NamespaceStatus(Answer):
    namespace: ScopeText
    state: IndexState
    entities: dict[str, IndexState]


class Matrix(Answer):
    """States of entities in namespaces. The state of several together is the worst of them."""

    state: IndexState
    entities: dict[str, IndexState]
    namespaces: tuple[NamespaceStatus, ...]
    notes: tuple[str, ...]


def status_matrix(
    keys: Callable[[], StatusKeys], entities: Sequence[str], namespaces: Sequence[Scope], *, only: bool
) -> Matrix:
    """The states of these namespaces and, unless `only` they are asked for, of all that have keys of these entities.

    What cannot be read is Unknown: also all of it, when the bus is away.
    """
    prefix = str(StatusKey(namespaces[0], None)) if only and len(namespaces) == 1 else "status"
    try:
        listed = keys().under(prefix)
    except InstepError as error:
        return _answer(status.Matrix.unread(namespaces, entities, cleaned(str(error))))
    scopes = namespaces if only else sorted({*namespaces, *_namespaces(listed, entities)})
    return _answer(status.Matrix.of(listed, scopes, entities))


def _namespaces(listed: Iterable[StatusEntry], entities: Sequence[str]) -> set[Scope]:
    """Namespaces with a key of one of these entities, or with one of the old format. Thousands are listed: each
    namespace is parsed once.
    """
    wanted, found = set(entities), set()
    for each in listed:
        prefix, _, last = each.key.rpartition(".")
        found.add(prefix if last in wanted else each.key if last.isdigit() else "")
    scopes = set()
    for prefix in found:
        _, _, dotted = prefix.partition(".")
        try:
            scopes.add(Scope.parse(dotted.replace(".", "/")))
        except RefError:
            continue
    return {scope for scope in scopes if not scope.is_global}


def _answer(found: status.Matrix) -> Matrix:
    return Matrix(
        state=found.whole,
        entities={entity: found.of_entity(entity) for entity in found.entities},
        namespaces=tuple(
            NamespaceStatus(
                namespace=scope, state=found.of_scope(scope), entities=dict(zip(found.entities, row, strict=True))
            )
            for scope, row in found.rows.items()
        ),
        notes=found.notes,
    )
