"""Cut the rows of a table, or those of a window, into slices by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

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
from instep.domain.jobs import SlicePlan
from instep.domain.planning import rows_per_slice
from instep.domain.rows import RowSlice, Selection, encode_row_slice
from instep.entities.plan_request import PlanRequest
from instep.entities.tables.adapters import Slicing, TableAdapters

#: An incremental window of no more rows than so many slices have is one: looking where they are would take longer.
_SLICES_OF_A_WINDOW = 10

#: Key quantiles probed per slice.
_BINS_PER_SLICE = 40
_BINS_AT_LEAST, _BINS_AT_MOST = 4_000, 200_000


def cut_window(
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
    # Of a first window nothing was there before: it is as a first build.
    if selection.versions or (selection.window is not None and not selection.window.first):
        about = setup.source.newer(setup.spark, rows, selection)
    if about is None or about <= fewest:
        return whole
    found = setup.source.histogram(setup.spark, rows, selection, columns, bins=_BINS_AT_LEAST)
    count = slice_count(found.rows, slice_rows=slicing.slice_rows, work_factor=slicing.work_factor, asked=asked)
    cuts = balanced_cuts(found.bins, min(count, slicing.slices or count))
    return (columns, _scaled(cuts, found.rows)) if len(cuts) > 1 and found.rows > fewest else whole


def window_slices(
    setup: TableAdapters, selection: Selection, cut_by: tuple[str, ...], cuts: Sequence[KeySlice]
) -> list[SlicePlan]:
    """The pieces that `cut_window` has cut, as slices to be stored."""
    counted = bool(cut_by) or selection.versions is not None
    return [
        slice_plan(
            setup,
            RowSlice(index, len(cuts), selection.window, cut_by, each.range, versions=selection.versions),
            rows=each.rows,
            work=each.work(setup.slicing.work_factor) if counted else setup.slicing.slice_rows,
        )
        for index, each in enumerate(cuts)
    ]


def slice_plan(setup: TableAdapters, part: RowSlice, *, rows: int, work: int) -> SlicePlan:
    """The plan of a slice. `rows` is 0 if its rows were not counted; `work` is that of an average slice then."""
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


def cut_table(
    setup: TableAdapters, selection: Selection, slicing: Slicing
) -> tuple[tuple[str, ...], list[KeySlice], list[str]]:
    """The key columns, the slices, and warnings."""
    rows = setup.rows
    if slicing.slices == 1:
        return (), [KeySlice(KeyRange(), slicing.slice_rows)], []
    scope = (rows.scope,) if rows.scope else ()
    if selection.window is not None and selection.window.versions and rows.scope not in (None, *rows.key):
        columns = rows.key[:1]  # See `cut_window`.
    else:
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
    """Bins of the same rows by the columns after the scope: no tenant is so large that it has to be cut."""
    ordered = sorted((each.key.suffix(1), each.rows) for each in bins)
    return [Bin(key, sum(rows for _, rows in group)) for key, group in groupby(ordered, key=lambda each: each[0])]


def _scaled(slices: Sequence[KeySlice], rows: int) -> list[KeySlice]:
    """Estimates scaled so that they add up to all rows, including those with nulls."""
    known = sum(each.rows for each in slices)
    return [KeySlice(each.range, round(each.rows * rows / known)) for each in slices] if known else list(slices)
