"""Warnings of a plan about rows that no run sees, that cost every run something, or that came late."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.rows import LAST_MOMENT, Selection, Window
from instep.domain.seen import Late
from instep.domain.texts import amount, duration_text
from instep.entities.plan_request import PlanRequest
from instep.entities.tables.adapters import MICROS, TableAdapters
from instep.sources.tables.predicates import MAX_SCOPES

#: A watermark that is no further ahead of the ledger's clock is not worth a warning.
_CLOCKS_DIFFER = 60_000


def late_text(late: Late, setup: TableAdapters) -> str:
    """A warning about rows below the greatest watermark that was seen before they came."""
    return (
        f"warning: {late}: written after a run that had seen a later {setup.rows.watermark}. They are read now; rows "
        f"that come more than {duration_text(setup.lag)} late (`watermark_lag`) are found by instep reconcile"
    )


def ahead(setup: TableAdapters, request: PlanRequest, *, read: bool = False) -> list[str]:
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


def without_namespace(setup: TableAdapters, request: PlanRequest, selection: Selection) -> list[str]:
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


def without_watermark(setup: TableAdapters, selection: Selection) -> list[str]:
    """A warning about rows that cost every run something. It is found out where all rows are read."""
    found = setup.source.without_watermark(setup.spark, setup.rows, selection)
    if not found:
        return []
    return [
        f"warning: {amount(found, 'row')} without {setup.rows.watermark}: every run compares all of them, and reads "
        "them when one has changed; give them one"
    ]
