"""Aliases: a record of who was promoted when (`instep_aliases`), and views for readers.

The record decides. A view is replaced in one step; those of one alias follow one after another, edges first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from instep.clickhouse.session import Session, quoted, records
from instep.errors import Conflict, Fenced
from instep.targets.clickhouse import reading
from instep.targets.clickhouse.journal import Journal
from instep.targets.clickhouse.layout import stored_specs
from instep.targets.tables import OWN

_ALIASES = "instep_aliases"


class Promotion(NamedTuple):
    """`scope` is the partition that moved the alias, `physical` None where nothing is served any more."""

    scope: str
    epoch: int
    physical: str | None


def promote(session: Session, database: str, alias: str, promotion: Promotion) -> None:
    """See `TableTarget.promote`."""
    epoch, physical = promotion.epoch, promotion.physical
    session.command(f"CREATE DATABASE IF NOT EXISTS {quoted(database)} ENGINE = Atomic")
    session.command(
        f"CREATE TABLE IF NOT EXISTS {quoted(database, _ALIASES)} (alias String, number UInt64, scope String, "
        "epoch UInt64, physical Nullable(String), kinds Array(String), at DateTime64(6, 'UTC') DEFAULT now64(6)) "
        "ENGINE = MergeTree ORDER BY (alias, number)"
    )
    # Asked before anything is checked: what comes in meanwhile has the same number, and came first.
    number = _next_number(session, database, alias, promotion)
    last = _refuse_older(session, database, alias, promotion)
    if new := last is None or last.epoch < epoch:
        _refuse_superseded(session, database, alias, promotion)
        _record(session, database, alias, promotion, number)
    decided = _show_newest(session, database, alias)
    last = _refuse_older(session, database, alias, promotion)
    serves = decided if new else last
    if serves is not None and serves.physical != physical:
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {serves.physical}, so it cannot serve {physical}")


def _refuse_older(session: Session, database: str, alias: str, promotion: Promotion) -> Promotion | None:
    """The last promotion by the same partition, if it is not newer."""
    last = _newest(session, database, alias, scope=promotion.scope)
    if last and last.epoch > promotion.epoch:
        raise Fenced(f"alias {alias!r}: epoch {promotion.epoch} was superseded by epoch {last.epoch}")
    return last


def _refuse_superseded(session: Session, database: str, alias: str, promotion: Promotion) -> None:
    """Raises `Fenced` when what is served has seen a newer epoch of the partition."""
    now = served(session, database, alias)
    if now in (None, promotion.physical) or stored_specs(session, database, now) is None:
        return
    epoch = Journal(session, database, now).epoch(promotion.scope)
    if epoch > promotion.epoch:
        raise Fenced(f"alias {alias!r}: {now} was written under epoch {epoch}, after {promotion.epoch}")


def served(session: Session, database: str, alias: str) -> str | None:
    newest = _newest(session, database, alias)
    return newest.physical if newest else None


def _show_newest(session: Session, database: str, alias: str) -> Promotion:
    """Bring the views to what was promoted last. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while shown != (newest := _newest(session, database, alias)):
        assert newest is not None
        _show(session, database, alias, newest.physical)
        shown = newest
    assert shown is not None
    return shown


def _newest(session: Session, database: str, alias: str, *, scope: str | None = None) -> Promotion | None:
    """By anybody, or by this partition. Of two of one number that which came first."""
    there = records(
        session,
        "SELECT count() AS n FROM system.tables WHERE database = {database:String} AND name = {name:String}",
        database=database,
        name=_ALIASES,
    )
    if not there[0]["n"]:
        return None
    found = records(
        session,
        f"SELECT scope, epoch, physical FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}} "
        f"{'' if scope is None else 'AND scope = {scope:String} '}ORDER BY number DESC, at LIMIT 1",
        alias=alias,
        scope=scope or "",
    )
    return Promotion(found[0]["scope"], found[0]["epoch"], found[0]["physical"]) if found else None


def _next_number(session: Session, database: str, alias: str, promotion: Promotion) -> int:
    """Epochs of several partitions say nothing about each other: they are numbered one after another. Those of one
    partition alone are the numbers, so that of two at once the newer one counts.
    """
    sql = f"SELECT max(number) AS number FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}}"
    following = int(records(session, sql, alias=alias)[0]["number"]) + 1
    return following if promotion.scope else max(following, promotion.epoch)


def _record(session: Session, database: str, alias: str, promotion: Promotion, number: int) -> None:
    physical = promotion.physical
    kinds = [each.kind for each in stored_specs(session, database, physical) or ()] if physical else []
    session.command(
        f"INSERT INTO {quoted(database, _ALIASES)} (alias, number, scope, epoch, physical, kinds) "
        "SELECT {alias:String}, {number:UInt64}, {scope:String}, {epoch:UInt64}, {physical:Nullable(String)}, "
        "{kinds:Array(String)}",
        alias=alias,
        number=number,
        scope=promotion.scope,
        epoch=promotion.epoch,
        physical=physical,
        kinds=kinds,
    )


def _show(session: Session, database: str, alias: str, physical: str | None) -> None:
    specs = (stored_specs(session, database, physical) or ()) if physical else ()
    for spec in sorted(specs, key=lambda each: each.kind == OWN):
        view = quoted(database, spec.table(alias))
        session.command(f"CREATE OR REPLACE VIEW {view} AS {reading.select(database, str(physical), spec)}")
    for kind in _once_shown(session, database, alias, [each.kind for each in specs]):
        session.command(f"DROP VIEW IF EXISTS {quoted(database, f'{alias}__{kind}' if kind else alias)}")


def _once_shown(session: Session, database: str, alias: str, now: Sequence[str]) -> list[str]:
    """Kinds that an earlier promotion showed and this one does not have."""
    found = records(
        session,
        f"SELECT DISTINCT arrayJoin(kinds) AS kind FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}}",
        alias=alias,
    )
    return sorted({each["kind"] for each in found} - set(now))
