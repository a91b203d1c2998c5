"""Aliases: a record of who was promoted when (`instep_aliases`), and views for readers.

The record decides. A view is replaced in one step; those of one alias follow one after another, the own one last. It
says of which index it is, so that a promotion that broke off can be told from one that is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from instep.clickhouse.session import Absent, Session, literal, quoted, records
from instep.errors import Conflict, Fenced
from instep.targets.clickhouse import reading
from instep.targets.clickhouse.journal import Journal
from instep.targets.clickhouse.layout import stored_specs
from instep.targets.tables import OWN, TableSpec

_ALIASES = "instep_aliases"


class Promotion(NamedTuple):
    """`scope` is the partition that moved the alias, `physical` None where nothing is served any more."""

    scope: str
    epoch: int
    physical: str | None


class _Known(NamedTuple):
    """The highest number so far, what was promoted under it, and what the partition that asks promoted last."""

    number: int
    newest: Promotion | None
    own: Promotion | None


def promote(session: Session, database: str, alias: str, promotion: Promotion, specs: Sequence[TableSpec] = ()) -> None:
    """See `TableTarget.promote`. `specs` are those of what is promoted."""
    epoch, physical = promotion.epoch, promotion.physical
    # Asked before anything is checked: what comes in meanwhile has the same number, and came first.
    known = _known(session, database, alias, promotion.scope)
    if known is None:
        _create(session, database)
        known = _Known(0, None, None)
    _refuse_older(alias, promotion, known.own)
    if new := known.own is None or known.own.epoch < epoch:
        _refuse_superseded(session, database, alias, promotion, known.newest)
        number, kinds = _next_number(promotion, known.number), [each.kind for each in specs]
        _record(session, database, alias, promotion, number=number, kinds=kinds)
    known = _show_newest(session, database, alias, promotion, specs)
    _refuse_older(alias, promotion, known.own)
    serves = known.newest if new else known.own
    if serves is not None and serves.physical != physical:
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {serves.physical}, so it cannot serve {physical}")


def _create(session: Session, database: str) -> None:
    session.command(f"CREATE DATABASE IF NOT EXISTS {quoted(database)} ENGINE = Atomic")
    session.command(
        f"CREATE TABLE IF NOT EXISTS {quoted(database, _ALIASES)} (alias String, number UInt64, scope String, "
        "epoch UInt64, physical Nullable(String), kinds Array(String), at DateTime64(6, 'UTC') DEFAULT now64(6)) "
        "ENGINE = MergeTree ORDER BY (alias, number)"
    )


def _refuse_older(alias: str, promotion: Promotion, last: Promotion | None) -> None:
    """`last` is by the same partition."""
    if last and last.epoch > promotion.epoch:
        raise Fenced(f"alias {alias!r}: epoch {promotion.epoch} was superseded by epoch {last.epoch}")


def _refuse_superseded(
    session: Session, database: str, alias: str, promotion: Promotion, newest: Promotion | None
) -> None:
    """Raises `Fenced` when what is served has seen a newer epoch of the partition."""
    now = newest.physical if newest else None
    if now in (None, promotion.physical) or stored_specs(session, database, now) is None:
        return
    epoch = Journal(session, database, now).epoch(promotion.scope)
    if epoch > promotion.epoch:
        raise Fenced(f"alias {alias!r}: {now} was written under epoch {epoch}, after {promotion.epoch}")


def served(session: Session, database: str, alias: str) -> str | None:
    """What readers find: not what was recorded by somebody who died before the own view was there."""
    found = records(
        session,
        "SELECT comment FROM system.tables WHERE database = {database:String} AND name = {alias:String} "
        "AND engine = 'View'",
        database=database,
        alias=alias,
    )
    if not found or found[0]["comment"]:
        return found[0]["comment"] if found else None
    known = _known(session, database, alias, "")  # The view was made when they said nothing.
    return known.newest.physical if known and known.newest else None


def _show_newest(
    session: Session, database: str, alias: str, promotion: Promotion, specs: Sequence[TableSpec]
) -> _Known:
    """Bring the views to what was promoted last. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while True:
        known = _known(session, database, alias, promotion.scope)
        assert known is not None
        assert known.newest is not None
        if known.newest == shown:
            return known
        shown = known.newest
        if shown.physical not in (None, promotion.physical):
            specs = stored_specs(session, database, shown.physical) or ()
        _show(session, database, alias, shown.physical, specs)


def _known(session: Session, database: str, alias: str, scope: str) -> _Known | None:
    """None where nobody was promoted yet. Of two of one number that which came first."""
    sql = (
        f"SELECT number, scope, epoch, physical FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}} "
        "ORDER BY number DESC, at LIMIT 1 BY scope = {scope:String}"
    )
    try:
        found = records(session, sql, alias=alias, scope=scope)
    except Absent:
        return None
    promotions = [Promotion(each["scope"], each["epoch"], each["physical"]) for each in found]
    own = next((each for each in promotions if each.scope == scope), None)
    return _Known(int(found[0]["number"]), promotions[0], own) if found else _Known(0, None, None)


def _next_number(promotion: Promotion, last: int) -> int:
    """Epochs of several partitions say nothing about each other: they are numbered one after another. Those of one
    partition alone are the numbers, so that of two at once the newer one counts.
    """
    return last + 1 if promotion.scope else max(last + 1, promotion.epoch)


def _record(
    session: Session, database: str, alias: str, promotion: Promotion, *, number: int, kinds: Sequence[str]
) -> None:
    session.command(
        f"INSERT INTO {quoted(database, _ALIASES)} (alias, number, scope, epoch, physical, kinds) "
        "SELECT {alias:String}, {number:UInt64}, {scope:String}, {epoch:UInt64}, {physical:Nullable(String)}, "
        "{kinds:Array(String)}",
        alias=alias,
        number=number,
        scope=promotion.scope,
        epoch=promotion.epoch,
        physical=promotion.physical,
        kinds=kinds,
    )


def _show(session: Session, database: str, alias: str, physical: str | None, specs: Sequence[TableSpec]) -> None:
    now = {spec.kind: spec for spec in specs} if physical else {}
    for kind in sorted(now.keys() | _once_shown(session, database, alias), key=lambda each: (each == OWN, each)):
        view = quoted(database, f"{alias}__{kind}" if kind else alias)
        if kind in now:
            rows = reading.select(database, str(physical), now[kind])
            session.command(f"CREATE OR REPLACE VIEW {view} AS {rows} COMMENT {literal(str(physical))}")
        else:
            session.command(f"DROP VIEW IF EXISTS {view}")


def _once_shown(session: Session, database: str, alias: str) -> set[str]:
    """Kinds that any promotion showed."""
    found = records(
        session,
        f"SELECT DISTINCT arrayJoin(kinds) AS kind FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}}",
        alias=alias,
    )
    return {each["kind"] for each in found}
