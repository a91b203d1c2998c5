"""Registry of the physical indexes in a schema, the tables of Instep that they share, and their upkeep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from psycopg import sql

from instep.errors import Away, Transient, UserError
from instep.postgres.connection import Missing, Name, Session
from instep.postgres.location import MAX_NAME, Location
from instep.targets.ownership import checked_name

#: What every table of Instep's own begins with, so that no index may.
OURS: Final = "instep_"

INDEXES, EPOCHS, COMMITS, MARKS, ALIASES, PROMOTIONS, STAGED = (
    OURS + each for each in ("indexes", "epochs", "commits", "marks", "aliases", "promotions", "staged")
)

#: Of advisory locks, which are the database's: any number that others do not use. ("insteptg")
LOCK: Final = 0x696E737465707467


@dataclass(frozen=True, slots=True)
class Index:
    """A physical index. One that is dropped and made again has another `id`."""

    id: int
    name: str

    @property
    def tables(self) -> list[str]:
        return [self.name]


class Record(NamedTuple):
    """An index, and what it was made of, as it was written down."""

    id: int
    declared: str


def fitting(name: str) -> str:
    """The name of an index or alias, if it can have tables here."""
    checked_name(name)
    if len(name) > MAX_NAME:
        raise UserError(
            f"{name!r} is too long for PostgreSQL: a name has at most {MAX_NAME} characters",
            hint="Shorten the entity's name, or that of its kind of edge.",
        )
    if name.lower().startswith(OURS):
        raise UserError(f"{name!r} cannot name an index", hint=f"Names with {OURS!r} at the front are Instep's own.")
    return name


def prepare(session: Session) -> None:
    """Schema and own tables, if they are not there yet."""
    if not session.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", session.place.schema):
        session.run("CREATE SCHEMA IF NOT EXISTS {schema}", schema=Name(session.place.schema))
    with session.transaction():
        lock(session)
        for table, columns in _OWN.items():
            session.run(
                "CREATE TABLE IF NOT EXISTS {table} ({columns})", table=session.name(table), columns=sql.SQL(columns)
            )
        for table in (INDEXES, ALIASES):
            if "owner" not in columns_of(session, table):  # Made before owners were written down.
                session.run("ALTER TABLE {table} ADD COLUMN owner text NOT NULL DEFAULT ''", table=session.name(table))
        session.run(
            "CREATE INDEX IF NOT EXISTS {name} ON {table} (index_id, slice, seq)",
            name=Name(f"{MARKS}_slice"),
            table=session.name(MARKS),
        )


#: An outcome of a mark is null where the slice was only fenced.
_OWN: Final = {
    INDEXES: "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, specs text NOT NULL, "
    "seq bigint NOT NULL DEFAULT 0, at timestamptz NOT NULL DEFAULT clock_timestamp(), owner text NOT NULL DEFAULT ''",
    EPOCHS: "index_id bigint, scope text, epoch bigint NOT NULL, PRIMARY KEY (index_id, scope)",
    COMMITS: "index_id bigint, attempt text, scope text NOT NULL, epoch bigint NOT NULL, seq bigint NOT NULL, "
    "at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (index_id, attempt)",
    MARKS: "index_id bigint NOT NULL, slice text NOT NULL, fence bigint NOT NULL, scope text NOT NULL, "
    "epoch bigint NOT NULL, seq bigint NOT NULL, outcome bytea, at timestamptz NOT NULL DEFAULT clock_timestamp()",
    ALIASES: "alias text PRIMARY KEY, physical text, kinds text[] NOT NULL DEFAULT '{}', "
    "owner text NOT NULL DEFAULT ''",
    PROMOTIONS: "alias text, scope text, epoch bigint NOT NULL, physical text, PRIMARY KEY (alias, scope)",
    STAGED: "name text PRIMARY KEY, index_id bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()",
}


def lock(session: Session) -> None:
    """Lock the registry: to the end of the transaction no other process makes or removes tables."""
    session.run("SELECT pg_advisory_xact_lock(%s)", LOCK)


def find(session: Session, physical: str) -> Record | None:
    try:
        found = session.run("SELECT id, specs FROM {indexes} WHERE name = %s", physical, indexes=session.name(INDEXES))
    except Missing:
        return None
    return Record(*found[0]) if found else None


def known(session: Session, physical: str) -> Record:
    record = find(session, physical)
    if record is None:
        raise UserError(f"there is no index {physical!r}", where=session.place.shown, hint="Build it with: instep run")
    return record


def owner_of_index(session: Session, physical: str) -> str | None:
    """The ledger that owns an index; None if it does not exist. By way of JSON: a column that is not there yet means no
    ledger.
    """
    try:
        found = session.run(
            "SELECT coalesce(to_jsonb(there) ->> 'owner', '') FROM {indexes} AS there WHERE name = %s",
            physical,
            indexes=session.name(INDEXES),
        )
    except Missing:
        return None
    return found[0][0] if found else None


def owner_of_alias(session: Session, alias: str) -> str | None:
    """The same of an alias: one without a name belongs to the owner of the index that it serves."""
    try:
        found = session.run(
            "SELECT coalesce(to_jsonb(there) ->> 'owner', ''), physical FROM {aliases} AS there WHERE alias = %s",
            alias,
            aliases=session.name(ALIASES),
        )
    except Missing:
        return None
    owner, physical = found[0] if found else ("", None)
    return owner or (owner_of_index(session, physical) if physical else None)


def own(session: Session, physical: str, taken: Callable[[str | None], str]) -> None:
    """Write down whose it is from now on, under the lock of its row. Raises what `taken` raises."""
    before = owner_of_index(session, physical)
    if taken(before) == before:
        return
    session.run(
        "UPDATE {indexes} SET owner = %s WHERE name = %s", taken(before), physical, indexes=session.name(INDEXES)
    )


def claim(session: Session, name: str, claimed: Callable[[str], str]) -> None:
    """See `ownership.Ownable.claim`."""
    prepare(session)
    with session.transaction():
        for table, key, owner_of in (
            (INDEXES, "name", owner_of_index),
            (ALIASES, "alias", owner_of_alias),
        ):
            there = session.run(
                "SELECT 1 FROM {table} WHERE {key} = %s FOR UPDATE", name, table=session.name(table), key=Name(key)
            )
            if there:
                session.run(
                    "UPDATE {table} SET owner = %s WHERE {key} = %s",
                    claimed(owner_of(session, name) or ""),
                    name,
                    table=session.name(table),
                    key=Name(key),
                )
                return
    raise UserError(f"there is no index and no alias {name!r}", where=session.place.shown)


def write_down(session: Session, physical: str, declared: str, owner: str) -> int:
    """An index whose tables are made in the same transaction; returns its id."""
    found = session.run(
        "INSERT INTO {indexes} (name, specs, owner) VALUES (%s, %s, %s) RETURNING id",
        physical,
        declared,
        owner,
        indexes=session.name(INDEXES),
    )
    return int(found[0][0])


def columns_of(session: Session, table: str) -> dict[str, str]:
    """Types of the columns of a table or view; none if it is not there."""
    return dict(
        session.run(
            "SELECT attname::text, format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' "
            "END FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            session.place.schema,
            table,
        )
    )


def drop(session: Session, index_id: int, tables: Sequence[str]) -> None:
    """The tables before the records: so are they locked by who writes, too."""
    with session.transaction():
        lock(session)
        for table in tables:
            session.run("DROP TABLE IF EXISTS {table}", table=session.name(table))
        for table in (EPOCHS, COMMITS, MARKS):
            session.run("DELETE FROM {table} WHERE index_id = %s", index_id, table=session.name(table))
        session.run("DELETE FROM {table} WHERE id = %s", index_id, table=session.name(INDEXES))


@contextlib.contextmanager
def checked(place: Location) -> Iterator[Session]:
    """A session with a place that can be written, for what else there is to check. Raises `UserError`, saying why."""
    try:
        with place.session() as session:
            _demand_usable(session)
            yield session
    except Transient as error:
        raise Away(str(error), hint="Try again later.") from None


def _demand_usable(session: Session) -> None:
    ((encoding, standby),) = session.run("SELECT current_setting('server_encoding'), pg_is_in_recovery()")
    if encoding != "UTF8":
        raise UserError(
            f"the database has the encoding {encoding}, which does not hold every text",
            where=session.place.shown,
            hint="Make one with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    if standby:
        raise UserError("the server is a standby, which cannot be written", where=session.place.shown)
    prepare(session)
    with session.transaction():
        probe = session.name(f"{OURS}check")
        session.run("DROP TABLE IF EXISTS {probe}", probe=probe)
        session.run("CREATE TABLE {probe} (n int)", probe=probe)
        session.run("DROP TABLE {probe}", probe=probe)


def tend(session: Session, tables: Sequence[str], *, full: bool) -> None:
    """Fresh statistics where much has changed. Old versions of rows are the server's care, unless all is asked for."""
    for table in tables:
        if full:
            session.run("VACUUM (ANALYZE, SKIP_LOCKED) {table}", table=session.name(table))
        elif _changed(session, table):
            session.run("ANALYZE (SKIP_LOCKED) {table}", table=session.name(table))


def _changed(session: Session, table: str) -> bool:
    """Sooner than the server would do it by itself: a new index is read as soon as it is there."""
    found = session.run(
        "SELECT 1 FROM pg_stat_user_tables JOIN pg_class ON pg_class.oid = relid "
        "WHERE schemaname = %s AND pg_class.relname = %s AND n_mod_since_analyze > 1000 + 0.1 * greatest(reltuples, 0)",
        session.place.schema,
        table,
    )
    return bool(found)


def named(session: Session, prefix: str) -> list[str]:
    """Names of indexes that begin so."""
    sql = 'SELECT name FROM {indexes} WHERE starts_with(name, %s) ORDER BY name COLLATE "C"'
    return [name for (name,) in session.run(sql, prefix, indexes=session.name(INDEXES))]


def idle(session: Session, physical: str) -> float:
    """Seconds since something was committed to an index, or since it was made; 0 if it is not there any more."""
    sql = "SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM {indexes} WHERE name = %s"
    found = session.run(sql, physical, indexes=session.name(INDEXES))
    return float(found[0][0]) if found else 0.0
