"""Follow a table that keeps its versions: a refresh reads the rows that were changed since the last one, no others."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.cuts import KeySlice
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.rows import Selection
from instep.domain.seen import Seen
from instep.domain.table_versions import TableVersion, Unfollowable, VersionWindow
from instep.entities.overtaken import overtaken
from instep.entities.plan_request import Found, Kind, PlanRequest
from instep.entities.tables.adapters import TableAdapters
from instep.entities.tables.cutting import cut_window, window_slices
from instep.entities.tables.guarding import refused
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.pipeline.tables.values import is_keyless
from instep.pipeline.tables.writing import needed_columns
from instep.sources.tables.lake_table import LakeTable


def reading(setup: TableAdapters, lake: LakeTable) -> LakeTable:
    """The table, of which the columns are read that nodes and edges have."""
    return lake.reading(needed_columns(setup.columns(), setup.tables(), setup.rows, setup.rows.key[:1]))


def find_followed(
    setup: TableAdapters,
    lake: LakeTable,
    request: PlanRequest,
    checkpoint: Checkpoint,
    now: TableVersion,
    *,
    asked: int,
) -> Found:
    """The rows that were changed since the checkpoint. Raises `Unfollowable` where nothing tells them. `asked`: the
    time up to which they are all there, which is before the version was looked up.
    """
    seen = request.ledger.seen.get(checkpoint)
    before = seen.version if seen else None
    if before is None:
        raise Unfollowable(f"it is not known at which {lake.rows.unit} its table was read")
    _demand_same(setup, request, checkpoint, before, now)
    lake.rows.demand_past(before)
    lake.forget()
    window = Selection(setup.ref.scope, versions=VersionWindow(before.number, now.number))
    selection = with_neighbours(setup, lake, request.ledger, checkpoint.physical, window)
    net = lake.net(setup.rows, selection)
    if net.keyless_gone and any(map(is_keyless, request.ledger.failures.versions(setup.ref, request.generation))):
        raise Unfollowable("rows without a key are gone, and some that failed may be among them")
    left, met = lake.left(setup.rows, selection, net.gone_keys) if len(net.gone) else (0, False)
    if met:
        raise Unfollowable("rows are gone whose keys other rows have")
    cut_by, cuts = cut_window(replace(setup, source=lake), request, selection) if net.rows else ((), [])
    gone, note = len(net.gone), lake.rows.note()
    return Found(
        kind=Kind.REFRESH,
        why=[f"its table went from {lake.rows.unit} {before.number} to {now.number}"],
        unit="row",
        slices=window_slices(setup, selection, cut_by, [KeySlice(each.range, each.rows or net.rows) for each in cuts]),
        counts={"changed": len(net.come) - net.elsewhere, "deleted": gone, "retried": 0},
        state=[str(now)],
        blocked=None
        if request.options.allow_deletes or not gone
        else refused(setup, request, gone, left + gone, "the table has lost"),
        target=asked,
        # What leaves a namespace is counted when it is deleted: another one may have it by then.
        lost=Loss(units=gone) if gone and not setup.in_place else NO_LOSS,
        warnings=[f"note: {note}"] if note else [],
        seen=Seen(version=now),
    )


def with_neighbours(
    setup: TableAdapters, lake: LakeTable, ledger: Ledger, physical: str, window: Selection
) -> Selection:
    """The selection of a window with namespaces for which rows may have left, if any have. Raises `Unfollowable`."""
    moves = setup.rows.scope is not None and setup.rows.scope not in setup.rows.key
    if not moves or not len(lake.net(setup.rows, window).left_keys):
        return window
    return replace(window, neighbours=setup.neighbours(ledger, physical))


def _demand_same(
    setup: TableAdapters, request: PlanRequest, checkpoint: Checkpoint, before: TableVersion, now: TableVersion
) -> None:
    """Raises `Unfollowable` where the index may not have what the table had in the version before."""
    now.demand_same_table(before)
    if overtaken(setup.target, request.ledger, checkpoint):
        raise Unfollowable("a later run began to write into its index, and has not ended")


def first_version(lake: LakeTable) -> tuple[VersionWindow, Seen]:
    """The version that a run reads as a whole, and what is known after it."""
    now = lake.rows.version()
    return VersionWindow(None, now.number), Seen(version=now)
