"""Seeded bugs of windows that are cut into slices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from instep.domain import seen
from instep.domain.cuts import KeyRange, balanced_cuts
from instep.domain.rows import Window
from instep.entities.tables import cutting, margins
from instep.entities.tables.setup import TableSetup

from .mutations import Apply, Mutation, Patch

WINDOW_BUGS: list[Mutation] = []


def bug_of_windows(apply: Apply) -> Apply:
    WINDOW_BUGS.append(Mutation(apply.__name__, apply))
    return apply


@bug_of_windows
def a_slice_that_is_tried_again_begins_where_the_window_ended(patch: Patch) -> None:
    """The window is worked out again in place of being that of the plan."""
    original = TableSetup.wave_slice

    def wave_slice(self: Any, claim: Any, decoded: Any) -> Any:
        found = original(self, claim, decoded)
        rows = found.rows
        if claim.fence < 2 or rows is None or rows.window is None or rows.window.first:
            return found
        end = rows.window.target
        return replace(found, rows=replace(rows, window=Window(end, end + 10**12)))

    patch.setattr(TableSetup, "wave_slice", wave_slice)


@bug_of_windows
def the_last_slice_of_a_window_ends_at_its_last_key(patch: Patch) -> None:

    def cuts(bins: Any, slices: int) -> Any:
        found = balanced_cuts(bins, slices)
        last = found[-1]
        return [*found[:-1], last._replace(range=KeyRange(last.range.lower, bins[-1].key))]

    patch.setattr(cutting, "balanced_cuts", cuts)


@bug_of_windows
def nobody_looks_below_the_floor(patch: Patch) -> None:
    """Rows of one moment, and those of a transaction that was open, are in no window."""
    patch.setattr(margins, "margin_start", lambda floor, lag: floor - 1)
    patch.setattr(seen, "margin_start", lambda floor, lag: floor - 1)
