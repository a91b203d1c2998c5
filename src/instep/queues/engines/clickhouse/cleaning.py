"""Remove withdrawn and covered rows from the offers at once. ClickHouse does so by itself, later."""

from __future__ import annotations

from instep.clickhouse.session import Session, quoted, records
from instep.queues.engines.clickhouse.history import truth_sql
from instep.queues.engines.clickhouse.offers import offered_sql, spent_sql
from instep.queues.engines.clickhouse.tables import Tables, greatest

#: Behind an insert of many keys and their covers, each read passes over all of them until ClickHouse merges. So many
#: are worth cleaning, if they are at least this share of what has to be written anew for it; so very many always are.
_FEW, _SHARE, _MANY = 1_000, 0.1, 50_000
#: No insert is under way for so long.
_QUIET = "INTERVAL 1 HOUR"


def pays(session: Session, tables: Tables, passed_over: int) -> bool:
    """Whether a read that passed over so many keys should leave fewer to those after it."""
    if passed_over <= _FEW or _under_way(session, tables):
        return False
    return passed_over > _MANY or passed_over > _rows(session, tables) * _SHARE


def begin(session: Session, tables: Tables) -> None:
    """Without waiting for the end: ClickHouse, when it merges large tables, comes to it seconds later."""
    _drop_spent(session, tables, {"mutations_sync": 0})


def clean(session: Session, tables: Tables) -> int:
    before = _rows(session, tables)
    waiting: dict[str, str | int] = {"mutations_sync": 1}
    _drop_spent(session, tables, waiting)
    if _left(session, tables):
        settled = f"ALTER TABLE {quoted(tables.offers)} DELETE WHERE key IN ({_settled(tables)})"
        session.under(waiting).command(settled)
    return max(0, before - _rows(session, tables))


def _drop_spent(session: Session, tables: Tables, settings: dict[str, str | int]) -> None:
    """A row that withdraws a key must have met the one that offers it."""
    offers = quoted(tables.offers)
    session.command(f"OPTIMIZE TABLE {offers} FINAL")
    session.under(settings).command(f"ALTER TABLE {offers} DELETE WHERE {spent_sql('offer', tables.registers)}")


def _under_way(session: Session, tables: Tables) -> bool:
    sql = (
        "SELECT count() AS found FROM system.mutations"
        " WHERE database = currentDatabase() AND table = {table:String} AND NOT is_done"
    )
    (row,) = records(session, sql, table=tables.offers)
    return bool(row["found"])


def _rows(session: Session, tables: Tables) -> int:
    (row,) = records(session, f"SELECT count() AS rows FROM {quoted(tables.offers)}")
    return int(row["rows"])


def _left(session: Session, tables: Tables) -> bool:
    (row,) = records(session, f"SELECT count() AS rows FROM ({_settled(tables)})")
    return bool(row["rows"])


def _settled(tables: Tables) -> str:
    """Keys whose rows could hide a late event as long as they are not all dropped at once: one cover took its
    word back, and another holds; or the source never had the key.
    """
    merged = [f"max({name})" for name in tables.registers]
    newest = greatest(["max(offer)", *merged])
    quiet = f"snowflakeIDToDateTime(bitShiftRight({newest}, 1)) < now() - {_QUIET}"
    uncovered = " OR ".join(f"({each} > 0 AND bitAnd({each}, 1) = 0)" for each in merged)
    candidates = (
        f"SELECT key FROM {quoted(tables.offers)} GROUP BY key"
        f" HAVING {quiet} AND ({uncovered} OR NOT {offered_sql('max(offer)', merged)})"
    )
    pending = f"SELECT key FROM ({truth_sql(tables, f'key IN (SELECT key FROM ({candidates}))')}) WHERE is_pending"
    return f"SELECT key FROM ({candidates}) WHERE key NOT IN ({pending})"
