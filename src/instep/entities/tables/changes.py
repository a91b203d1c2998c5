"""Find rows of a table that need work, by watermarks, by a queue's keys, or all; and cut them into slices."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby, pairwise

from instep.domain.columns import TypeName
from instep.domain.cuts import (
    Bin,
    KeyRange,
    KeySlice,
    balanced_cuts,
    cut_columns,
    dominant_tenant,
    even_cuts,
    few_values,
    slice_count,
)
from instep.domain.drift import drift
from instep.domain.jobs import JobPart, SlicePlan, SliceStatus
from instep.domain.keys import INT64_MAX, Key, key_of
from instep.domain.pending_queue import batches, stretches
from instep.domain.planning import rows_per_slice
from instep.domain.rows import (
    EVERYTHING,
    LAST_MOMENT,
    RowSlice,
    Selection,
    Window,
    decode_row_slice,
    encode_row_slice,
)
from instep.domain.seen import Late, Seen
from instep.domain.table_files import Files, TableFile
from instep.domain.texts import amount, duration_text
from instep.entities.generations import wanted_as_of_now
from instep.entities.plan_request import Found, Kind, PlanRequest
from instep.entities.tables.adapters import MICROS, Slicing, TableAdapters
from instep.entities.tables.change_queue import EntityQueue
from instep.entities.tables.margins import Margins
from instep.errors import UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.sources.tables.predicates import MAX_RANGES, MAX_SCOPES

_WHOLE_NUMBERS = (TypeName.INT32, TypeName.INT64)


def find_pending(setup: TableAdapters, queue: EntityQueue, request: PlanRequest) -> Found:
    """The pending keys, at most as many as one job takes."""
    if request.generation:
        raise UserError(
            f"the queue {queue.name} gives each key once, so there are no generations of what is made of it",
            where=str(setup.ref),
            hint="Rebuild it: instep run --full-refresh",
        )
    checkpoint = request.checkpoint
    pending = queue.pending(request.ledger)
    keys = pending.keys
    if not keys and checkpoint is not None:
        why = wanted_as_of_now(request, setup.ref, now=pending.until)
        return Found(Kind.REFRESH if why else Kind.NOTHING, why, "row", target=pending.until)
    setup.tables()  # Errors of the declaration are raised before anything is leased.
    more = ", and more" if pending.left else ""
    return Found(
        kind=request.kind,
        why=[*request.why, f"pending in the queue {queue.name}: {amount(len(keys), 'key')}{more}"],
        unit="row",
        slices=cut_keys(setup, keys),
        counts={"new": len(keys) - pending.retries, "retried": pending.retries},
        state=[hashlib.sha256(repr(keys).encode()).hexdigest()],
        # While keys are left, the index stays complete up to the old watermark only.
        target=(checkpoint.watermark if checkpoint else 0) if pending.left else pending.until,
        left=pending.left,
    )


def notes(queue: EntityQueue, part: JobPart, ledger: Ledger) -> list[str]:
    """Notes about keys without rows, which are no failures."""
    job = ledger.jobs.latest(part.ref)
    if job is None or not has_keys(ledger.slices.of_part(job.id, part.ref, limit=1)):
        return []
    status = job.part(part.ref)
    missing = status.units - status.counts.read
    if missing <= 0:
        return []
    return [f"{amount(missing, 'key')} of the queue {queue.name} had no row in the source, or went to other consumers"]


def cut_keys(setup: TableAdapters, keys: Sequence[int]) -> list[SlicePlan]:
    """Batches in key order, the first and the last open-ended."""
    if not keys:
        return []
    factor, key = setup.slicing.work_factor, _maker(setup)
    found = batches(keys, rows_per_slice(setup.slicing.slice_rows, factor))
    edges = [None, *(key(each[0]) for each in found[1:]), None]
    return [
        SlicePlan(
            index=index,
            bucket=0,
            lower="",
            upper="",
            units=len(each),
            work=max(1, round(len(each) * factor)),
            priority=setup.priority,
            payload=encode_row_slice(
                RowSlice(index, len(found), None, setup.rows.key, KeyRange(lower, upper), tuple(each))
            ),
        )
        for index, (each, (lower, upper)) in enumerate(zip(found, pairwise(edges), strict=True))
    ]


def has_keys(slices: Sequence[SlicePlan] | Sequence[SliceStatus]) -> bool:
    """Whether they were cut by `cut_keys`."""
    first = decode_row_slice(slices[0].payload) if slices else None
    return first is not None and bool(first.keys)


def selection(setup: TableAdapters, keys: Sequence[int]) -> Selection:
    """These rows, by key and by key range: a source may be able to use only one of the two."""
    key = _maker(setup)
    ranges = (
        KeyRange(key(first), key(last + 1) if last < INT64_MAX else None) for first, last in stretches(keys, MAX_RANGES)
    )
    return Selection(setup.ref.scope, None, setup.rows.key, tuple(ranges), tuple(map(key, keys)))


def _maker(setup: TableAdapters) -> Callable[[int], Key]:
    """A function that converts a key to the source's own type."""
    (name,) = setup.rows.key
    kind = next(each.type for each in setup.columns() if each.name == name)
    if kind.name in _WHOLE_NUMBERS:
        return key_of
    if kind.name is TypeName.DECIMAL and not kind.scale:
        return lambda value: key_of(Decimal(value))
    raise UserError(
        f"{name!r} is {kind}, and keys of a queue are whole numbers",
        where=setup.source_text,
        hint="Cast it, with `sql`.",
    )


#: A watermark that is no further ahead of the ledger's clock is not worth a warning.
_CLOCKS_DIFFER = 60_000

#: An incremental window of no more rows than so many slices have is one: looking where they are would take longer.
_SLICES_OF_A_WINDOW = 10

#: Key quantiles probed per slice.
_BINS_PER_SLICE = 40
_BINS_AT_LEAST, _BINS_AT_MOST = 4_000, 200_000


def find_rows(setup: TableAdapters, request: PlanRequest) -> Found:
    """See `EntitySetup.find`."""
    kind, checkpoint = request.kind, request.checkpoint
    if kind is Kind.RESUME:
        return Found(kind, request.why, "row")
    asked = request.options.watermark or request.ledger.now()
    # A rebuild is never older than what it replaces, whatever watermark is requested.
    anew = max(asked, checkpoint.watermark) if checkpoint else asked
    if setup.queue and kind is Kind.FIRST_BUILD and not request.options.full_refresh:
        return find_pending(setup, setup.queue, request)
    if kind is not Kind.REFRESH or checkpoint is None:
        return _whole(setup, request, kind, request.why, anew)
    if why := _why_whole(setup, request, checkpoint):
        return _whole(setup, request, Kind.REBUILD, [why], anew)
    if setup.queue:
        return _queued(setup, setup.queue, request, checkpoint, anew)
    return _reconciled(setup, request, checkpoint) or _newer(setup, request, checkpoint, asked)


def _reconciled(setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint) -> Found | None:
    """The work of a reconciliation that is due; None if none is. One that may not delete so much, or finds too much, is
    left to a person: it keeps no refresh from being made.
    """
    seen = request.ledger.seen.get(checkpoint) if setup.reconcile is not None else None
    now = request.ledger.now()
    if setup.reconcile is None or seen is None or now - (seen.reconciled or 0) < setup.reconcile:
        return None
    from instep.entities.tables.reconciling import TooMuchDiffers, find_repairs

    try:
        found = find_repairs(setup, request)
        problem = found.blocked and found.blocked.why
    except TooMuchDiffers as error:
        problem = str(error)
    seen = replace(seen, reconciled=now)
    if problem is not None:
        return _unreconciled(setup, request, checkpoint, seen, problem)
    return replace(found, kind=Kind.REFRESH, why=[f"reconciled: {each}" for each in found.why], seen=seen)


def _unreconciled(
    setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint, seen: Seen, problem: str
) -> Found:
    """An ordinary refresh, which remembers that it was tried, with a warning."""
    found = _newer(setup, request, checkpoint, request.options.watermark or request.ledger.now())
    known = replace(found.seen, reconciled=seen.reconciled) if found.seen else seen
    warning = f"warning: not reconciled: {problem}; see instep reconcile"
    target = checkpoint.watermark if found.kind is Kind.NOTHING else found.target
    kind = Kind.REFRESH if found.kind is Kind.NOTHING else found.kind
    return replace(found, kind=kind, target=target, warnings=[*found.warnings, warning], seen=known)


def _queued(
    setup: TableAdapters, queue: EntityQueue, request: PlanRequest, checkpoint: Checkpoint, asked: int
) -> Found:
    found = find_pending(setup, queue, request)
    differences = drift_of(setup, checkpoint.physical) if found.slices else []
    return _whole(setup, request, Kind.REBUILD, differences, asked) if differences else found


def _why_whole(setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint) -> str | None:
    """The reason why all rows are read again though the declaration is the same, or None."""
    if (
        setup.queue is None
        and (request.options.retry_failures or request.settings().retry_failures)
        and request.ledger.failures.count(setup.ref, request.generation)
    ):
        return "rows that failed are to be tried again"
    if not setup.target.exists(checkpoint.physical):
        return f"its index ({checkpoint.physical}) is not in target {setup.target_name!r} any more"
    if _left_behind(setup, request, checkpoint):
        return "its other namespaces are in another index now"
    if setup.queue is None and setup.rows.watermark is None and setup.source.state() is None:
        return "it has no watermark, so all rows are read"
    return None


def _newer(setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint, asked: int) -> Found:
    """Rows that have changed since the checkpoint."""
    if setup.rows.watermark is None:
        return _unchanged(setup, request, asked)
    if asked <= checkpoint.watermark:
        return Found(Kind.NOTHING, [], "row")
    if (files := setup.source.files()) is not None:
        return _in_new_files(setup, request, checkpoint, files, asked)
    seen = request.ledger.seen.get(checkpoint)
    if seen is not None and seen.files is not None:
        raise UserError(
            f"its files are known by their names, and {setup.source_text} cannot be listed from here",
            where=str(setup.ref),
            hint="Install what opens it (see docs/tables.md), or read all of it: instep run --full-refresh",
        )
    return _above_the_floor(setup, request, checkpoint, seen, asked)


def _in_new_files(
    setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint, files: Sequence[TableFile], asked: int
) -> Found:
    """All rows of files that were not read yet."""
    seen = request.ledger.seen.get(checkpoint)
    before, reconciled = (seen.files, seen.reconciled) if seen is not None else (None, None)
    known = before or Files()
    others = setup.others(request.ledger)
    new = known.new(files)
    scope = setup.ref.scope
    if not new or not setup.source.changed(setup.spark, setup.rows, scope, 0, others, known=known):
        return _unchanged(setup, request, asked)
    if differences := drift_of(setup, checkpoint.physical):
        return _whole(setup, request, Kind.REBUILD, differences, asked)
    why = [f"{amount(len(new), 'new or changed file')}"]
    if before is None:
        why = ["it is not known yet which of its files were read: all are, once"]
    selection = Selection(scope, EVERYTHING, known=known)
    warnings = [*_ahead(setup, request, read=True), *_without_namespace(setup, request, selection)]
    found = _refresh(setup, request, selection, asked, warnings)
    state = [hashlib.sha256(Files.of(new).encode()).hexdigest()]
    return replace(found, why=why, state=state, seen=Seen(files=Files.of(files), reconciled=reconciled))


def _above_the_floor(
    setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint, seen: Seen | None, asked: int
) -> Found:
    """Rows above the greatest watermark that was seen, and those that came late."""
    step, after = Margins(setup, request.ledger, asked * MICROS).next(seen, checkpoint)
    if step.window is None:
        return _unchanged(setup, request, asked)
    if differences := drift_of(setup, checkpoint.physical):
        return _whole(setup, request, Kind.REBUILD, differences, asked)
    selection = Selection(setup.ref.scope, step.window)
    warnings = [] if step.late is None else [_late_text(step.late, setup)]
    warnings += [*_ahead(setup, request), *_without_namespace(setup, request, selection)]
    found = _refresh(setup, request, selection, asked, warnings)
    return replace(found, state=[f"rows above {step.window.floor}"], seen=after)


def _refresh(
    setup: TableAdapters, request: PlanRequest, selection: Selection, asked: int, warnings: Sequence[str]
) -> Found:
    cut_by, cuts = _cut_window(setup, request, selection)
    rows = sum(each.rows for each in cuts)
    return Found(
        kind=Kind.REFRESH,
        why=[],
        unit="row",
        slices=[
            _slice_plan(
                setup,
                RowSlice(index, len(cuts), selection.window, cut_by, each.range),
                rows=each.rows,
                work=each.work(setup.slicing.work_factor) if cut_by else setup.slicing.slice_rows,
            )
            for index, each in enumerate(cuts)
        ],
        counts={"changed": rows, "retried": 0} if cut_by else {},
        target=asked,
        warnings=warnings,
    )


def _late_text(late: Late, setup: TableAdapters) -> str:
    return (
        f"warning: {late}: written after a run that had seen a later {setup.rows.watermark}. They are read now; rows "
        f"that come more than {duration_text(setup.lag)} late (`watermark_lag`) are found by instep reconcile"
    )


def _cut_window(
    setup: TableAdapters, request: PlanRequest, selection: Selection
) -> tuple[tuple[str, ...], Sequence[KeySlice]]:
    """The columns that an incremental window is cut by, and its slices; one slice, whose rows are not counted, if it is
    small or nobody knows how large it is.

    It is cut by the key alone, so all versions of a row that are in the window are in one slice, and decided in one
    commit: else an older one, of a slice that is committed later, would bring back a row that has moved away.
    """
    rows, slicing = setup.rows, setup.slicing
    whole = (), [KeySlice(KeyRange(), 0)]
    columns = cut_columns(rows.key, (rows.scope,) if rows.scope else (), dominated=False)[:1]
    kinds = {each.name: each.type for each in setup.columns()}
    if slicing.slices == 1 or not all(kinds[name].keys for name in columns):
        return whole
    asked = request.settings().slice_rows
    fewest = asked or _SLICES_OF_A_WINDOW * rows_per_slice(slicing.slice_rows, slicing.work_factor)
    about: int | None = fewest + 1
    if selection.window is not None and not selection.window.first:  # Else there was nothing: it is as a first build.
        about = setup.source.newer(setup.spark, rows, selection)
    if about is None or about <= fewest:
        return whole
    found = setup.source.histogram(setup.spark, rows, selection, columns, bins=_BINS_AT_LEAST)
    count = slice_count(found.rows, slice_rows=slicing.slice_rows, work_factor=slicing.work_factor, asked=asked)
    cuts = balanced_cuts(found.bins, min(count, slicing.slices or count))
    return (columns, _scaled(cuts, found.rows)) if len(cuts) > 1 and found.rows > fewest else whole


def _ahead(setup: TableAdapters, request: PlanRequest, *, read: bool = False) -> list[str]:
    """A warning about rows whose watermark is ahead of the clock: as when local times are taken for times in UTC.
    `read`: they are read nevertheless.
    """
    soon, name = (request.ledger.now() + _CLOCKS_DIFFER) * MICROS, setup.rows.watermark
    if name is None or not setup.source.changed(setup.spark, setup.rows, setup.ref.scope, soon):
        return []
    ahead = Selection(setup.ref.scope, Window(soon, LAST_MOMENT))
    found = setup.source.histogram(setup.spark, setup.rows, ahead, (name,), bins=1).rows
    ends = setup.source.extremes(setup.spark, setup.rows, ahead, name) if found else None
    if ends is None:
        return []
    until = str(ends[1].values[0])[:16]
    what = "an earlier one does not replace them" if read else "no run sees them before that time has come"
    return [
        f"warning: {amount(found, 'row')} with a {name} ahead of now, up to {until} UTC: {what}. A time without a zone "
        "is taken for one in UTC; `sql` can convert a local one"
    ]


def _without_namespace(setup: TableAdapters, request: PlanRequest, selection: Selection) -> list[str]:
    """A warning about rows that are in no indexed namespace. It is found out once, with the first of those declared."""
    name = setup.rows.scope
    if name is None or not setup.declared or setup.ref.scope != min(setup.declared):
        return []
    scopes = setup.indexed(request.ledger)
    if len(scopes) > MAX_SCOPES:
        return []
    others = replace(selection, others=scopes)
    found = setup.source.histogram(setup.spark, setup.rows, others, (name,), bins=1).rows
    if not found:
        return []
    ends = setup.source.extremes(setup.spark, setup.rows, others, name)
    example = f", such as {name} = {ends[0].values[0]!r}" if ends else f" (without {name})"
    return [
        f"warning: {amount(found, 'row')} in no namespace that is indexed{example}: they are not indexed. A path "
        "ends with a slash; `namespaces` declares others"
    ]


def _without_watermark(setup: TableAdapters, selection: Selection) -> list[str]:
    """A warning about rows that cost every run something. It is found out where all rows are read."""
    found = setup.source.without_watermark(setup.spark, setup.rows, selection)
    if not found:
        return []
    return [
        f"warning: {amount(found, 'row')} without {setup.rows.watermark}: every run compares all of them, and reads "
        "them when one has changed; give them one"
    ]


def _left_behind(setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint) -> bool:
    """Whether this partition keeps another index, which it would be built into, from being served."""
    if not setup.in_place or request.indexes(setup.ref.entity) <= {checkpoint.physical}:
        return False
    built = {each.physical for each in request.ledger.checkpoints.of_entity(setup.ref.entity)}
    return setup.physical(checkpoint.instance, request.generation) in built - {checkpoint.physical}


def _unchanged(setup: TableAdapters, request: PlanRequest, target: int) -> Found:
    why = wanted_as_of_now(request, setup.ref, now=target)
    return Found(Kind.REFRESH if why else Kind.NOTHING, why, "row", target=target)


def drift_of(setup: TableAdapters, physical: str) -> list[str]:
    """Differences between the stored tables and those that would be written now."""
    return [str(each) for each in drift(setup.target.specs(physical), setup.specs)]


def _whole(setup: TableAdapters, request: PlanRequest, kind: Kind, why: Sequence[str], asked: int) -> Found:
    """All rows of the table, cut into slices."""
    setup.tables()  # Errors of the declaration are raised before anything is read.
    # Rows named by a queue must not be left to a later window: there is none.
    windows = setup.rows.watermark is not None and setup.queue is None
    # Before anything is read: what comes in between is read once more.
    seen = Margins(setup, request.ledger, asked * MICROS).before_all() if windows else None
    whole_files = seen is not None and seen.files is not None
    window = Window(None, LAST_MOMENT if whole_files else asked * MICROS) if windows else None
    selection = Selection(setup.ref.scope, window)
    slicing = setup.slicing
    if size := request.settings().slice_rows:
        slicing = replace(slicing, slices=None, asked=size)
    cut_by, slices, warnings = _cut(setup, selection, slicing)
    factor, counted = slicing.work_factor, slicing.slices != 1
    plans = [
        _slice_plan(
            setup,
            RowSlice(index, len(slices), window, cut_by, each.range),
            rows=each.rows if counted else 0,
            work=each.work(factor),
        )
        for index, each in enumerate(slices)
    ]
    rows = sum(each.rows for each in slices)
    return Found(
        kind=kind,
        why=[*why, *warnings],
        unit="row",
        slices=plans,
        counts={"new": rows} if counted else {},
        state=[f"{rows} rows"],
        target=asked if window else None,
        warnings=[
            *([] if whole_files or not windows else _without_watermark(setup, selection)),
            *(_ahead(setup, request, read=whole_files) if windows else []),
            *_without_namespace(setup, request, selection),
        ],
        seen=seen,
    )


def _slice_plan(setup: TableAdapters, part: RowSlice, *, rows: int, work: int) -> SlicePlan:
    """`rows` is 0 for a slice whose rows were not counted; its work is taken as that of an average one."""
    return SlicePlan(
        index=part.index,
        bucket=0,
        # The bounds are in the payload: they can be long, and no query looks for slices by them.
        lower="",
        upper="",
        units=rows,
        work=work,
        priority=setup.priority,
        payload=encode_row_slice(part),
    )


def _cut(
    setup: TableAdapters, selection: Selection, slicing: Slicing
) -> tuple[tuple[str, ...], list[KeySlice], list[str]]:
    """The key columns, the slices, and warnings."""
    rows = setup.rows
    if slicing.slices == 1:
        return (), [KeySlice(KeyRange(), slicing.slice_rows)], []
    scope = (rows.scope,) if rows.scope else ()
    columns = cut_columns(rows.sorted_by, scope, dominated=bool(scope) and not slicing.even)
    wanted = min(max((slicing.slices or 0) * _BINS_PER_SLICE, _BINS_AT_LEAST), _BINS_AT_MOST)
    found = setup.source.histogram(setup.spark, rows, selection, columns, bins=wanted)
    count = slicing.slices or slice_count(
        found.rows, slice_rows=slicing.slice_rows, work_factor=slicing.work_factor, asked=slicing.asked
    )
    bins = list(found.bins)
    if count == 1 or not bins:
        return (), [KeySlice(KeyRange(), found.rows)], []
    if slicing.even:
        ends = setup.source.extremes(setup.spark, rows, selection, columns[-1])
        return columns[-1:], even_cuts(*ends, count, rows=found.rows) if ends else [KeySlice(KeyRange(), 0)], []
    if len(columns) > 1 and dominant_tenant(bins, len(scope), count) is None:
        columns, bins = columns[-1:], _by_last_column(bins)
    slices = balanced_cuts(bins, count)
    warning = few_values(columns, values=len(bins), rows=found.rows, slices=count)
    return (columns if len(slices) > 1 else ()), _scaled(slices, found.rows), [str(warning)] if warning else []


def _by_last_column(bins: Sequence[Bin]) -> list[Bin]:
    """The same rows in the order of the columns after the scope: no tenant is so large that it has to be cut."""
    ordered = sorted((each.key.suffix(1), each.rows) for each in bins)
    return [Bin(key, sum(rows for _, rows in group)) for key, group in groupby(ordered, key=lambda each: each[0])]


def _scaled(slices: Sequence[KeySlice], rows: int) -> list[KeySlice]:
    """Estimates scaled so that they add up to all rows, including those with nulls."""
    known = sum(each.rows for each in slices)
    return [KeySlice(each.range, round(each.rows * rows / known)) for each in slices] if known else list(slices)
