"""Checks of `instep doctor` for a table entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.domain.amounts import amount
from instep.domain.drift import drift
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.entities.tables.setup import TableSetup


def source(setup: TableSetup) -> str:
    return f"{amount(len(setup.columns()), 'column')} in {setup.source_text}"


def tables(setup: TableSetup) -> str:
    """Compare the served tables with the declaration."""
    declared = setup.specs
    shown = ", ".join(each.table(setup.alias) for each in declared)
    served = setup.target.served(setup.alias)
    if served is None:
        return f"{shown}: not built yet"
    found = drift(setup.target.tables.specs(served), declared)
    if found:
        raise UserError("; ".join(map(str, found)), hint="The next run builds it anew.")
    return f"{shown}: as declared"
