"""Slices in work, as other stores see them: locked, given back, taken from workers that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, literal_column, select, update

from instep.domain.jobs import SliceState, tries_of
from instep.ledger.tables import slices
from instep.ledger.transaction import Transaction, batches

# Literals, so that the planner sees the condition of the partial index.
# Literals, so that the planner sees the condition of the partial index.
PENDING: Final[ColumnElement[bool]] = slices.c.state == literal_column(f"'{SliceState.PENDING}'")
PROCESSING: Final[ColumnElement[bool]] = slices.c.state == literal_column(f"'{SliceState.PROCESSING}'")


def lock(tx: Transaction, ids: Iterable[str]) -> dict[str, Row[Any]]:
    found: dict[str, Row[Any]] = {}
    for some in batches(sorted(ids)):
        query = select(slices).where(slices.c.id.in_(some)).order_by(slices.c.id).with_for_update()
        found.update((row.id, row) for row in tx.connection.execute(query))
    return found


def lock_processing(tx: Transaction, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Slices in work, locked in one order by all: that of the index which has only them."""
    in_work = select(slices).where(PROCESSING, *conditions).order_by(slices.c.worker_id, slices.c.job_id, slices.c.id)
    return tx.connection.execute(in_work.with_for_update(of=slices)).all()


def is_in(state: SliceState, row: Row[Any] | None, fence: int, worker_id: str) -> bool:
    return row is not None and row.fence == fence and row.worker_id == worker_id and row.state == state.value


def give_back_all(tx: Transaction, *conditions: ColumnElement[bool]) -> int:
    """Slices in work go back without a spent attempt; returns how many."""
    back = update(slices).where(PROCESSING, *conditions).values(state=SliceState.PENDING.value, worker_id=None)
    return tx.connection.execute(back).rowcount


def end_badly(tx: Transaction, rows: Sequence[Row[Any]], error: str) -> int:
    """The holder of these locked slices is gone: back to PENDING. What is worn out it looked up, and did not run."""
    tried, worn_out = tried_and_worn_out(rows)
    back_to_pending(tx, tried, one_more(error))
    back_to_pending(tx, worn_out, {})
    return len(rows)


def tried_and_worn_out(rows: Sequence[Row[Any]]) -> tuple[list[Row[Any]], list[Row[Any]]]:
    """Separate slices that were run from those that were worn out before."""
    tried, worn_out = list[Row[Any]](), list[Row[Any]]()
    for row in rows:
        (worn_out if row.attempts >= tries_of(row.units) else tried).append(row)
    return tried, worn_out


def one_more(error: str | None) -> dict[str, Any]:
    """The values after one more failed attempt. Without an error, that of the attempt before it stays."""
    return {"attempts": slices.c.attempts + 1} | ({"error": error} if error else {})


def back_to_pending(tx: Transaction, rows: Sequence[Row[Any]], values: Mapping[str, Any]) -> None:
    """Set slices PENDING again. They are locked, and in work."""
    for some in batches(row.id for row in rows):
        back = update(slices).where(slices.c.id.in_(some))
        tx.connection.execute(back.values(state=SliceState.PENDING.value, worker_id=None, **values))
