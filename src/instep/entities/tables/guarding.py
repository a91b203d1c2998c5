"""The guard of rows that a job would delete."""

from __future__ import annotations

from instep.domain.texts import amount, duration_text
from instep.entities.plan_request import PlanRequest, Refusal
from instep.entities.tables.adapters import TableAdapters


def refused(setup: TableAdapters, request: PlanRequest, gone: int, rows: int, who: str) -> Refusal | None:
    """The refusal to delete so many of the rows, with those of the last time; None: it may. `who`: such as `a repair
    would delete`.
    """
    guard = setup.guard
    before = request.ledger.losses.lately(setup.ref, request.generation, window=guard.window).units if gone else 0
    if not guard.refuses(gone, rows, before):
        return None
    lately = f", beside {before:,} in the last {duration_text(guard.window)}" if before else ""
    return Refusal(
        f"{who} {gone:,} of {amount(rows, 'row')}{lately}; more than {guard.share:.0%} at once is not deleted without "
        "permission"
    )
