"""Tables of a queue, and the triggers that keep it. Two rules make every interleaving safe under READ COMMITTED:

* An event that may make a key pending adds a row of its own to the offers, in its own transaction, and never changes
  another: a withdrawal takes exactly the rows whose truth it has seen, so nothing that happened since is lost. A
  source row is not offered where its transaction sees a cover: whatever takes that cover back offers the key without
  looking at anything.
* An event that covers a key takes those offers that it sees and that are not locked. What is left is covered, and
  reading finds that.

So writers of the user's tables never wait for each other because of the queue, and it brings them no deadlock.

Transactions with one snapshot (REPEATABLE READ and above) may see covers that are long gone: they offer always, and
withdraw nothing.
"""

from __future__ import annotations

from instep.domain.pending_queue import QueueCover
from instep.queues.engines.postgres.layout import Layout, beyond, gathered, reoffer, source_keys, unoffered
from instep.queues.engines.triggered import held, literal, quoted

#: Trigger functions keep the plan of their first call, which may have been with one row or with a million, before there
#: were statistics: keys are looked up by the index, in subqueries that allow for no other plan; and of a million rows
#: the keys are gathered by their hash, which takes two thirds of what sorting them takes.
_PLANNING = "SET enable_seqscan = off SET enable_sort = off SET jit = off"

#: Keys of so many rows are looked up one by one. Of more, they are looked at together.
_FEW = 500

#: So many keys one statement withdraws: PostgreSQL has no larger arrays than twice that. Reading finds the rest.
_WITHDRAWN = 2**25

_SNAPSHOT = "(current_setting('transaction_isolation') <> 'read committed')"


def tables(layout: Layout) -> list[str]:
    participants = ", participants bigint[] NOT NULL" if layout.spec.participants else ""
    # A row leaves the index by vacuum alone, and what has not left yet is walked over: few dead rows are many here.
    upkeep = (
        "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0"
    )
    made = [
        f"CREATE TABLE IF NOT EXISTS {layout.offers} (key {layout.type} NOT NULL,"
        f" version bigint GENERATED ALWAYS AS IDENTITY, event_time timestamptz{participants}, absent_since xid8)"
        f" WITH ({upkeep})",
        f"CREATE UNIQUE INDEX IF NOT EXISTS {quoted(layout.own('reading'))} ON {layout.offers}"
        f" (key, version, {layout.settling})",
        f"CREATE TABLE IF NOT EXISTS {layout.acks} (key {layout.type} PRIMARY KEY)",
        f"CREATE TABLE IF NOT EXISTS {layout.words} (name text PRIMARY KEY, value text NOT NULL)",
        f"INSERT INTO {layout.words} VALUES ('', {literal(layout.declared())}) ON CONFLICT DO NOTHING",
    ]
    if layout.spec.participants:
        index = quoted(layout.own("participants"))
        made.append(f"CREATE INDEX IF NOT EXISTS {index} ON {layout.offers} USING gin (participants)")
    return made


def capture(layout: Layout) -> list[str]:
    source, acks = layout.spec.source.table, layout.covers[-1]
    return [
        *_trigger(layout, "source_insert", source, _offered(layout, source_keys(layout, "_fresh"))),
        *_trigger(layout, "source_update", source, _offered(layout, _changed_keys(layout))),
        *_trigger(layout, "source_truncate", source, _withdrawn(layout, f"SELECT key FROM {layout.offers}")),
        *(each for number, cover in enumerate(layout.spec.covers, 1) for each in _covering(layout, number, cover)),
        *_trigger(layout, "ack_insert", acks.table, _withdrawn(layout, _cover_keys(layout, acks, "_fresh"))),
        *_trigger(layout, "ack_delete", acks.table, _reoffered(layout, _cover_keys(layout, acks, "_stale"))),
    ]


def functions(layout: Layout, covers: int) -> list[str]:
    """The functions of all triggers, with so many covers."""
    events = {"source": ("insert", "update", "truncate"), "ack": ("insert", "delete")}
    events |= {f"cover{number}": ("insert", "update", "delete", "truncate") for number in range(1, covers + 1)}
    return [layout.placed(f"{part}_{event}") for part, each in events.items() for event in each]


def _covering(layout: Layout, number: int, cover: QueueCover) -> list[str]:
    fresh, stale = (_cover_keys(layout, cover, rows) for rows in ("_fresh", "_stale"))
    withdrawn, offered = _withdrawn(layout, f"{fresh} EXCEPT {stale}"), _reoffered(layout, f"{stale} EXCEPT {fresh}")
    return [
        *_trigger(layout, f"cover{number}_insert", cover.table, _withdrawn(layout, fresh)),
        *_trigger(layout, f"cover{number}_update", cover.table, f"{withdrawn}\n  {offered}"),
        *_trigger(layout, f"cover{number}_delete", cover.table, _reoffered(layout, stale)),
        *_trigger(layout, f"cover{number}_truncate", cover.table, _all_offered(layout)),
    ]


def _trigger(layout: Layout, name: str, table: str, body: str) -> list[str]:
    event = name.rpartition("_")[2]
    rows = {
        "insert": "REFERENCING NEW TABLE AS _fresh ",
        "update": "REFERENCING OLD TABLE AS _stale NEW TABLE AS _fresh ",
        "delete": "REFERENCING OLD TABLE AS _stale ",
    }.get(event, "")
    end = "$instep$"
    while end in body:
        end = f"{end[:-1]}_$"
    function = layout.placed(name)
    return [
        # Users who may write their tables may not write ours: the functions may.
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
        f"{_PLANNING} SET TimeZone = 'UTC' SET search_path = pg_catalog, {quoted(layout.schema)}, pg_temp AS {end}\n"
        f"#variable_conflict use_column\nBEGIN\n  {body}\n  RETURN NULL;\nEND\n{end}",
        f"CREATE OR REPLACE TRIGGER {quoted(layout.own(name))} AFTER {event.upper()} ON {layout.table(table)} "
        f"{rows}FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
    ]


def _changed_keys(layout: Layout) -> str:
    return f"{source_keys(layout, '_fresh')}\n    EXCEPT {source_keys(layout, '_stale')}"


def _offered(layout: Layout, keys: str) -> str:
    """Offer keys by one of two equivalent statements, of which each sees one moment."""
    return (
        f"IF EXISTS (SELECT FROM _fresh OFFSET {_FEW}) THEN\n"
        f"  {_many_offered(layout, keys)}\n  ELSE\n  {_few_offered(layout, keys)}\n  END IF;"
    )


def _few_offered(layout: Layout, keys: str) -> str:
    """Offer few keys by a simple statement, which starts sooner."""
    columns, values = gathered(layout)
    arrived = ", ".join(f"_arrived.{each}" for each in columns)
    return (
        f"INSERT INTO {layout.offers} ({', '.join(columns)}) SELECT {arrived}\n"
        f"  FROM (SELECT {values} FROM (\n    {keys}\n  ) AS _row GROUP BY key) AS _arrived\n"
        f"  WHERE {_SNAPSHOT}\n"
        f"  OR ({unoffered(layout, '_arrived')}\n    AND {layout.uncovered_each('_arrived.key')});"
    )


def _many_offered(layout: Layout, keys: str) -> str:
    """Offer many keys. Most are newer than any that is offered or covered: they are not looked up one by one."""
    columns, values = gathered(layout)
    arrived = ", ".join(f"_arrived.{each}" for each in columns)
    return (
        f"INSERT INTO {layout.offers} ({', '.join(columns)})\n"
        f"  WITH _arrived AS MATERIALIZED (SELECT {values} FROM (\n    {keys}\n  ) AS _row GROUP BY key),\n"
        f"  _highest AS MATERIALIZED (SELECT {', '.join(layout.highest_known('_range'))}\n"
        f"    FROM (SELECT {layout.extreme('min')} AS lowest, {layout.extreme('max')} AS highest\n"
        "      FROM _arrived) AS _range)\n"
        # In their order, neighbours of an index are looked up and added one after the other.
        f"  SELECT {arrived} FROM _highest CROSS JOIN (SELECT * FROM _arrived ORDER BY key) AS _arrived\n"
        f"  WHERE {_SNAPSHOT}\n"
        f"  OR (({beyond('_arrived.key', '_highest.offered')} OR {unoffered(layout, '_arrived')})\n"
        f"    AND {layout.uncovered_beyond('_arrived.key', '_highest')});"
    )


def _cover_keys(layout: Layout, cover: QueueCover, rows: str) -> str:
    called = layout.called(cover.table)
    return (
        f"SELECT {layout.typed(called, layout.key_of(cover))} AS key FROM {rows} AS {called} WHERE {held(cover.where)}"
    )


def _withdrawn(layout: Layout, keys: str) -> str:
    """Withdraw offers, but not with an old snapshot: PostgreSQL would refuse rows that others have taken since, and so
    the writer's statement. Keys out of range have no offers.
    """
    return (
        f"IF NOT {_SNAPSHOT} THEN\n"
        f"  DELETE FROM {layout.offers} WHERE ctid = ANY(ARRAY(\n"
        f"    SELECT ctid FROM {layout.offers} WHERE key = ANY(ARRAY(\n"
        f"      SELECT DISTINCT key FROM ({keys}) AS _covered LIMIT {_WITHDRAWN})) FOR UPDATE SKIP LOCKED));\n"
        "  END IF;"
    )


def _reoffered(layout: Layout, keys: str) -> str:
    """Whether it is pending now is not checked: transactions that do not see this row may change that."""
    within = f"SELECT key FROM ({keys}) AS _uncovered WHERE {layout.between('key')}"
    return f"{reoffer(layout, within)};"


def _all_offered(layout: Layout) -> str:
    """Offer all keys after TRUNCATE. No other transaction writes or reads the truncated table; but an old snapshot
    would miss source rows.
    """
    called = layout.called(layout.spec.source.table)
    keys = (
        f"SELECT {layout.typed(called)} AS key FROM {layout.table(layout.spec.source.table)} AS {called}"
        f" WHERE {held(layout.spec.source.where)} AND {layout.between(layout.column(called))}"
        f" AND {layout.uncovered_each(layout.column(called))}"
    )
    refusal = literal(f"TRUNCATE of what covers the pending queue {layout.spec.name} needs READ COMMITTED")
    return f"IF {_SNAPSHOT} THEN RAISE EXCEPTION USING MESSAGE = {refusal}; END IF;\n  {reoffer(layout, keys)};"
