"""Check that a queue can follow the tables it names, before anything is created."""

from __future__ import annotations

import re

from instep.clickhouse.session import Absent, Session, records
from instep.domain.pending_queue import LARGEST_KEY, KeyKind, QueueCover
from instep.errors import UserError
from instep.queues.engines.clickhouse.layout import source_sql
from instep.queues.engines.clickhouse.tables import Tables, conditions, covered_sql, user_table
from instep.queues.engines.queue_engine import wrong_type

_TYPES = {
    KeyKind.INTEGER: re.compile(r"(?:Nullable\()?U?Int(?:8|16|32|64)\)?\Z"),
    KeyKind.TEXT: re.compile(r"(?:LowCardinality\()?(?:Nullable\()?String\)*\Z"),
    KeyKind.UUID: re.compile(r"(?:Nullable\()?UUID\)?\Z"),
}
_REPLACING = re.compile(r"(?:Shared|Replicated)?ReplacingMergeTree\Z")


def check(session: Session, tables: Tables, database: str) -> None:
    spec = tables.spec
    if tables.whole and (spec.keys.after is None or spec.keys.after < -LARGEST_KEY):
        raise UserError("the range of keys is too wide", where=spec.name, hint="Keys are signed integers of 64 bits.")
    for table in [spec.source.table, *(each.table for each in spec.covers)]:
        _key(session, table, spec.key, spec.kind)
    if spec.participants:
        _key(session, spec.source.table, spec.participants, KeyKind.INTEGER)
    _runs(session, spec.source.table, source_sql(tables, tables.within()))
    for cover in spec.covers:
        _runs(session, cover.table, covered_sql(tables, cover, conditions(tables.within(), cover.uncovered)))
        if cover.uncovered is not None:
            _replacing(session, cover, spec.key, database)


def _key(session: Session, table: str, name: str, kind: KeyKind) -> None:
    found = {row["name"]: row["type"] for row in _described(session, table)}
    if name not in found:
        raise UserError(f"there is no column {name!r}", where=table, hint=f"There are: {', '.join(found)}.")
    if not _TYPES[kind].match(found[name]):
        raise wrong_type(name, table, found[name], kind, table)


def _runs(session: Session, table: str, sql: str) -> None:
    """Let ClickHouse check a condition, which only it can."""
    try:
        session.arrow(f"SELECT * FROM ({sql}) LIMIT 0")
    except UserError as error:
        raise UserError(error.what, where=table, hint="See its `where`, `uncovered` and event time.") from None


def _described(session: Session, table: str) -> list[dict[str, str]]:
    try:
        return records(session, f"DESCRIBE TABLE {user_table(table)}")
    except Absent:
        raise UserError("there is no such table", where=table, hint="A queue follows tables that exist.") from None


def _replacing(session: Session, cover: QueueCover, key: str, database: str) -> None:
    """Raises `UserError` unless the table says of each key which of its rows is the latest, as the queue will."""
    table = cover.table
    place, _, name = table.rpartition(".")
    sql = (
        "SELECT engine, engine_full, sorting_key FROM system.tables"
        " WHERE database = {database:String} AND name = {name:String}"
    )
    (row,) = records(session, sql, database=place or database, name=name)
    if not _REPLACING.match(row["engine"]):
        raise UserError(
            f"it keeps every row ({row['engine']}): it does not say whether a key is covered by now",
            where=table,
            hint="Make it a ReplacingMergeTree ordered by the key, or leave `uncovered` out.",
        )
    if _unquoted(row["sorting_key"]) != key:
        raise UserError(
            f"it keeps a row for each ({row['sorting_key']}), and not for each {key}:"
            " it does not say which row of a key is the latest",
            where=table,
            hint=f"Order a ReplacingMergeTree by {key} alone, or leave `uncovered` out.",
        )
    version, *others = [*_arguments(row["engine_full"]), None]
    if others[:-1]:
        raise UserError(
            f"its rows are deleted by a column ({others[0]}), which the queue does not follow",
            where=table,
            hint="Make it a ReplacingMergeTree without that column, or leave `uncovered` out.",
        )
    if version != cover.version:
        raise UserError(
            f"its latest row is that of the highest {version}, and not the one that is written last"
            if version
            else f"its latest row is the one that is written last, and not that of the highest {cover.version}",
            where=table,
            hint=f"Add `version: {version}` to this cover." if version else "Leave `version` out.",
        )


def _arguments(engine: str) -> list[str]:
    """The columns that a ReplacingMergeTree is made with, from its definition."""
    given = re.match(r"\w+\(((?:'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|[^)'`])*)\)", engine)
    if given is None:
        return []
    columns = re.sub(r"'(?:[^'\\]|\\.)*'", "", given[1]).split(",")
    return [_unquoted(each.strip()) for each in columns if each.strip()]


def _unquoted(name: str) -> str:
    """As ClickHouse would write it in a definition, without the quotation marks."""
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name[:1] == name[-1:] == "`" else name
