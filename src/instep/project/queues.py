"""Pending queues as a project declares them: keys of a table that nothing covers yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from instep.domain.pending_queue import LARGEST_KEY, KeyKind, KeyRange, QueueCover, QueueSource, QueueSpec, before
from instep.domain.refs import is_entity_name
from instep.project.addresses import clickhouse_uri, postgres_uri
from instep.project.fields import Model, Pause, Text, Whole, problem
from instep.project.targets import is_schema
from instep.servers.address import server_address

#: Tables, triggers and views are called after the queue, and PostgreSQL's names have 63 bytes.
MAX_NAME: Final = 30

Engine: TypeAlias = Literal["clickhouse", "chdb", "postgresql", "sqlite"]

_SERVERS: Final = {"clickhouse": "http", "clickhouses": "https"}
_FILE = re.compile(r"(?P<engine>chdb|sqlite):///(?P<path>[^?#]+)\Z")
_FORMS: Final = ("clickhouse://…", "chdb:///folder", "postgresql://…", "sqlite:///file")


def _place(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if scheme in _SERVERS and separator:
        clickhouse_uri(f"{_SERVERS[scheme]}://{rest}")
    elif scheme.startswith("postgres") and separator:
        postgres_uri(value)
    elif not (found := _FILE.match(value)) or found["path"] == ":memory:":
        slashes = "; a folder or file is behind three slashes" if scheme in ("chdb", "sqlite") else ""
        raise problem("queue", f"must be the database of the tables: {', '.join(_FORMS)}{slashes}")
    return value


_Kind: TypeAlias = Literal["integer", "text", "uuid"]


class QueueKeys(Model):
    """Keys that a queue accepts. Other keys are garbage: counted, and never offered."""

    type: _Kind = "integer"
    """Type of the key's column: `integer`, `text`, or `uuid` (not in SQLite)."""
    start: Whole = Field(default=0, alias="from", ge=-(2**63), le=LARGEST_KEY)
    """Lowest key. For integers only."""
    below: Whole = Field(default=LARGEST_KEY, gt=-(2**63), le=LARGEST_KEY)
    """Upper bound of the keys, itself excluded. For integers only."""

    @model_validator(mode="after")
    def _something_between(self) -> Self:
        if self.start >= self.below:
            raise problem("keys", "must be more than `from`", path=("below",))
        if self.kind is not KeyKind.INTEGER and not self.model_fields_set <= {"type"}:
            raise problem("conflict", "`from` and `below` are for integers", path=("type",))
        return self

    @property
    def kind(self) -> KeyKind:
        return KeyKind(self.type)

    @property
    def range(self) -> KeyRange:
        return KeyRange(before(self.start), self.below - 1) if self.kind is KeyKind.INTEGER else KeyRange()


def _short(value: Any) -> Any:
    """`keys: uuid` is `keys: {type: uuid}`."""
    kinds = list(map(str, KeyKind))
    if isinstance(value, str) and value not in kinds:
        raise problem("type", "is not one of the allowed values", allowed=kinds)
    return {"type": value} if isinstance(value, str) else value


_Keys: TypeAlias = Annotated[QueueKeys, BeforeValidator(_short, json_schema_input_type=_Kind | QueueKeys)]


class QueueRows(Model):
    """Table with the rows that need to be covered."""

    table: Text
    """Name of the table, or `schema.table` (`database.table` in ClickHouse)."""
    where: Text | None = None
    """Condition that selects the rows, in the database's own SQL. All rows if left out."""
    event_time: Text | None = None
    """Time of a row's event: a column, or an expression in the database's own SQL. `settle` counts from it."""


class QueueCoverRows(Model):
    """Table whose rows cover a key."""

    table: Text
    """Name of the table. It must have the key's column."""
    where: Text | None = None
    """Condition that selects the rows that cover a key, in the database's own SQL. All rows if left out."""
    uncovered: Text | None = None
    """Condition that selects the rows that take a cover back, for ClickHouse, where rows are only inserted. Needs
    `where`, and overrides it if both are true. PostgreSQL and SQLite notice deleted and changed rows by themselves."""
    version: Text | None = None
    """Version column of the table, a `ReplacingMergeTree(version)`. Needs `uncovered`. The row with the latest version
    decides, in whatever order rows are written."""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if self.uncovered is not None and self.where is None:
            message = "needs `where`: without it all rows cover a key, including these"
            raise problem("required", message, path=("uncovered",))
        if self.version is not None and self.uncovered is None:
            raise problem("conflict", "needs `uncovered`", path=("version",))
        return self


class Queue(Model):
    """Keys that are in the source and in none of the tables that should cover them."""

    on: Annotated[str, AfterValidator(_place)] = Field(repr=False)
    """Database that holds the tables and the queue: `clickhouse://user:${PASSWORD}@host:8123/database` (HTTP;
    `clickhouses://` is encrypted), `chdb:///folder`, `postgresql://user:${PASSWORD}@host/database` or `sqlite:///file`.
    Folders and files are relative to the project; one more slash makes them absolute."""
    schema_: Text = Field(default="public", alias="schema")
    """For PostgreSQL: schema of the queue, and of tables whose name has no schema."""
    key: Text
    """Column that identifies pending work. It has the same name and type in each table."""
    keys: _Keys = QueueKeys()
    """Type of the keys (`text`, `uuid`), or the range of integers."""
    source: QueueRows
    """Rows that need to be covered."""
    covered_by: tuple[QueueCoverRows, ...] = Field(min_length=1)
    """Tables whose rows cover a key, as a list. A row in one of them is enough."""
    settle: Pause = Field(default=0, json_schema_extra={"default": "0s"})
    """Time after its event at which a key is first offered, such as `2h`. Until then its cover may still arrive."""
    order: Literal["newest", "oldest"] = "newest"
    """Order in which keys are offered: `newest` (highest keys first) or `oldest` (lowest keys first)."""
    participants: Text | None = None
    """Column of the source, of integers, with the participants that a key concerns. For `next --participants`."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.settle and self.source.event_time is None:
            message = "needs `event_time` in `source`: it counts from then"
            raise problem("required", message, path=("settle",))
        if self.schema_ != "public" and self.engine != "postgresql":
            raise problem("conflict", "is for PostgreSQL", path=("schema",))
        for index, each in enumerate(self.covered_by):
            if each.uncovered is not None and self.engine in ("postgresql", "sqlite"):
                message = (
                    "is for ClickHouse only: here a key is uncovered when its row is deleted, or no longer meets "
                    "`where`"
                )
                raise problem("conflict", message, path=("covered_by", index, "uncovered"))
        if self.keys.kind is KeyKind.UUID and self.engine == "sqlite":
            raise problem("conflict", "SQLite has no type for UUIDs: write `text` if they are texts", path=("keys",))
        if not is_schema(self.schema_):
            message = "must be letters, digits and underscores, at most 63, and not begin with pg_"
            raise problem("schema", message, path=("schema",))
        return self

    @property
    def engine(self) -> Engine:
        """The database that holds it."""
        scheme = self.on.partition("://")[0]
        if scheme in _SERVERS:
            return "clickhouse"
        if found := _FILE.match(self.on):
            return "chdb" if found["engine"] == "chdb" else "sqlite"
        return "postgresql"

    @property
    def address(self) -> str:
        """The address that the database's own client takes: a URL, which may hold a password, or the path of a folder
        or file.
        """
        scheme, _, rest = self.on.partition("://")
        if scheme in _SERVERS:
            return f"{_SERVERS[scheme]}://{rest}"
        found = _FILE.match(self.on)
        return found["path"] if found else self.on

    @property
    def label(self) -> str:
        """The address without user, password and options: fit to be shown."""
        scheme, _, rest = self.on.partition("://")
        if self.engine == "postgresql":
            return server_address(self.on).label
        return self.on if self.engine in ("chdb", "sqlite") else f"{scheme}://{rest.rpartition('@')[2]}"

    def spec(self, name: str) -> QueueSpec:
        """The specification for the domain."""
        source = self.source
        return QueueSpec(
            name,
            self.key,
            QueueSource(source.table, source.where, source.event_time),
            tuple(QueueCover(each.table, each.where, each.uncovered, each.version) for each in self.covered_by),
            self.keys.range,
            timedelta(milliseconds=self.settle),
            self.order == "newest",
            self.participants,
            self.keys.kind,
        )


def check_queue_names(queues: Mapping[str, Queue]) -> None:
    seen: dict[str, str] = {}
    for name in queues:
        if not is_entity_name(name) or len(name) > MAX_NAME:
            message = f"a queue's name is letters, digits and underscores, starting with a letter, at most {MAX_NAME}"
            raise problem("queue_name", message, path=(name,))
        if name.lower() in seen:
            # Databases do not all tell the case of a table's name apart.
            raise problem("queue_name", f"differs from {seen[name.lower()]} in case only", path=(name,))
        seen[name.lower()] = name
