"""Aliases: a record of who was promoted when (`instep_aliases`), and views for readers.

The record decides. A view is replaced in one step; those of one alias follow one after another, edges first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from instep.clickhouse.session import Session, quoted, records
from instep.errors import Conflict, Fenced
from instep.targets.clickhouse import reading
from instep.targets.clickhouse.layout import stored_specs
from instep.targets.tables import OWN

_ALIASES = "instep_aliases"


class Promotion(NamedTuple):
    """`physical` is None where nothing is served any more."""

    epoch: int
    physical: str | None


def promote(session: Session, database: str, alias: str, physical: str | None, epoch: int) -> None:
    """See `DocumentTarget.promote`."""
    session.command(f"CREATE DATABASE IF NOT EXISTS {quoted(database)} ENGINE = Atomic")
    session.command(
        f"CREATE TABLE IF NOT EXISTS {quoted(database, _ALIASES)} (alias String, epoch UInt64, "
        "physical Nullable(String), kinds Array(String), at DateTime64(6, 'UTC') DEFAULT now64(6)) "
        "ENGINE = MergeTree ORDER BY (alias, epoch)"
    )
    newest = _newest(session, database, alias)
    if newest and newest.epoch > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {newest.epoch}")
    if newest is None or newest.epoch < epoch:
        _record(session, database, alias, Promotion(epoch, physical))
    decided = _show_newest(session, database, alias)
    if decided.epoch > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {decided.epoch}")
    if decided.physical != physical:
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {decided.physical}, so it cannot serve {physical}")


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


def _newest(session: Session, database: str, alias: str) -> Promotion | None:
    """Of two of one epoch that which came first."""
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
        f"SELECT epoch, physical FROM {quoted(database, _ALIASES)} WHERE alias = {{alias:String}} "
        "ORDER BY epoch DESC, at LIMIT 1",
        alias=alias,
    )
    return Promotion(found[0]["epoch"], found[0]["physical"]) if found else None


def _record(session: Session, database: str, alias: str, promotion: Promotion) -> None:
    physical = promotion.physical
    kinds = [each.kind for each in stored_specs(session, database, physical) or ()] if physical else []
    session.command(
        f"INSERT INTO {quoted(database, _ALIASES)} (alias, epoch, physical, kinds) "
        "SELECT {alias:String}, {epoch:UInt64}, {physical:Nullable(String)}, {kinds:Array(String)}",
        alias=alias,
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
