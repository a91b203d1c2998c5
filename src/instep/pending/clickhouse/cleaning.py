"""What is withdrawn and covered leaves the offers. ClickHouse does so by itself, in its own time: this is at once."""

from __future__ import annotations

from instep.clickhouse.session import Session, quoted, records
from instep.pending.clickhouse.history import truth_sql
from instep.pending.clickhouse.offers import offered_sql, spent_sql
from instep.pending.clickhouse.tables import Tables, greatest

#: Behind an insert of many keys and their covers, each read passes over all of them until ClickHouse merges. So many
#: are worth cleaning, if they are at least this share of what has to be written anew for it; so very many always are.
_FEW, _SHARE, _MANY = 1_000, 0.1, 50_000
#: No insert is under way for so long.
_QUIET = "INTERVAL 1 HOUR"


def pays(session: Session, tables: Tables, passed_over: int) -> bool:
    """Whether a read that passed over so many keys should leave fewer to the next."""
    if passed_over <= _FEW:
        return False
    return passed_over > _MANY or passed_over > _rows(session, tables) * _SHARE


def clean(session: Session, tables: Tables) -> int:
    before = _rows(session, tables)
    offers = quoted(tables.offers)
    session.command(f"OPTIMIZE TABLE {offers} FINAL")
    waiting = session.under({"mutations_sync": 1})
    waiting.command(f"ALTER TABLE {offers} DELETE WHERE {spent_sql('offer', tables.registers)}")
    if _left(session, tables):
        waiting.command(f"ALTER TABLE {offers} DELETE WHERE key IN ({_settled(tables)})")
    return max(0, before - _rows(session, tables))


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
