"""Find rows of a table that need work: by watermarks, files, versions, a queue's keys, or all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from instep.domain.drift import drift
from instep.domain.rows import EVERYTHING, LAST_MOMENT, RowSlice, Selection, Window
from instep.domain.seen import Seen
from instep.domain.table_files import Files, TableFile
from instep.domain.table_versions import Unfollowable
from instep.domain.texts import amount
from instep.entities.generations import wanted_as_of_now
from instep.entities.plan_request import Found, Kind, PlanRequest
from instep.entities.tables.adapters import MICROS, TableAdapters
from instep.entities.tables.change_queue import EntityQueue
from instep.entities.tables.cutting import cut_table, cut_window, slice_plan, window_slices
from instep.entities.tables.margins import Margins
from instep.entities.tables.pending_keys import find_pending
from instep.entities.tables.row_warnings import ahead, late_text, without_namespace, without_watermark
from instep.entities.tables.versions import find_followed, first_version, reading
from instep.errors import UserError
from instep.ledger.checkpoints import Checkpoint
from instep.sources.tables.lake_table import LakeTable, readable


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
    return _refreshed(setup, request, checkpoint, asked, anew)


def _refreshed(setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint, asked: int, anew: int) -> Found:
    if setup.queue:
        return _queued(setup, setup.queue, request, checkpoint, anew)
    if isinstance(setup.source, LakeTable):
        return _followed(setup, setup.source, request, checkpoint, anew)
    return _reconciled(setup, request, checkpoint) or _newer(setup, request, checkpoint, asked)


def _followed(setup: TableAdapters, lake: LakeTable, request: PlanRequest, checkpoint: Checkpoint, anew: int) -> Found:
    """The changed rows of a table that keeps its versions, or all of it."""
    now = lake.rows.version()
    seen = request.ledger.seen.get(checkpoint)
    if seen is not None and now.same(seen.version):
        return _unchanged(setup, request, anew)
    if differences := drift_of(setup, checkpoint.physical):
        return _whole(setup, request, Kind.REBUILD, differences, anew)
    try:
        return find_followed(setup, reading(setup, lake), request, checkpoint, now, asked=anew)
    except Unfollowable as why:
        return _whole(setup, request, Kind.REBUILD, [f"all rows are read: {why}"], anew)


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
    if setup.queue is not None or isinstance(setup.source, LakeTable):
        return None
    if setup.rows.watermark is None and setup.source.state() is None:
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
    """Plan all rows of files that were not read yet."""
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
    warnings = [*ahead(setup, request, read=True), *without_namespace(setup, request, selection)]
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
    warnings = [] if step.late is None else [late_text(step.late, setup)]
    warnings += [*ahead(setup, request), *without_namespace(setup, request, selection)]
    found = _refresh(setup, request, selection, asked, warnings)
    return replace(found, state=[f"rows above {step.window.floor}"], seen=after)


def _refresh(
    setup: TableAdapters, request: PlanRequest, selection: Selection, asked: int, warnings: Sequence[str]
) -> Found:
    cut_by, cuts = cut_window(setup, request, selection)
    rows = sum(each.rows for each in cuts)
    return Found(
        kind=Kind.REFRESH,
        why=[],
        unit="row",
        slices=window_slices(setup, selection, cut_by, cuts),
        counts={"changed": rows, "retried": 0} if cut_by else {},
        target=asked,
        warnings=warnings,
    )


def _deletes(setup: TableAdapters) -> bool:
    """Whether a version of a row may delete something: the row, or an edge whose end is null in it."""
    ends = {each.sources[name] for each in setup.tables() for name in (*each.start, *each.end)}
    return setup.rows.deleted is not None or not ends.issubset(setup.rows.key)


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
    """Plan all rows of the table, cut into slices."""
    setup.tables()  # Errors of the declaration are raised before anything is read.
    # Rows named by a queue must not be left to a later window: there is none.
    windows = setup.rows.watermark is not None and setup.queue is None
    # Before anything is read: what comes in between is read once more.
    seen = Margins(setup, request.ledger, asked * MICROS).before_all() if windows else None
    whole_files = seen is not None and seen.files is not None
    # Of a row that files delete, or move to another namespace, they may have an older version as well.
    outlived = whole_files and (_deletes(setup) or setup.others(request.ledger) is not None)
    window = Window(None, LAST_MOMENT if whole_files else asked * MICROS, versions=outlived) if windows else None
    versions = None
    if isinstance(setup.source, LakeTable):
        versions, seen = first_version(setup.source)
    selection = Selection(setup.ref.scope, window, versions=versions)
    slicing = setup.slicing
    if size := request.settings().slice_rows:
        slicing = replace(slicing, slices=None, asked=size)
    with readable(setup.source) if isinstance(setup.source, LakeTable) else nullcontext():
        cut_by, slices, warnings = cut_table(setup, selection, slicing)
    factor, counted = slicing.work_factor, slicing.slices != 1
    plans = [
        slice_plan(
            setup,
            RowSlice(index, len(slices), window, cut_by, each.range, versions=versions),
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
        target=asked if window or versions else None,
        warnings=[
            *([] if whole_files or not windows else without_watermark(setup, selection)),
            *(ahead(setup, request, read=whole_files) if windows else []),
            *without_namespace(setup, request, selection),
        ],
        seen=seen,
    )
