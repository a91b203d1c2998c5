"""What readers find under an alias, with the real clients: they know nothing of Instep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from instep.targets.milvus.location import chunk_lists
from tests.e2e.promotions.sites import Rows


class Found(NamedTuple):
    """Rows by kind of table, and the partitions and instances that they say they are of. No kind: nothing is there."""

    rows: Rows
    origins: set[tuple[str, str]]


class Reader(Protocol):
    """`key` are the columns that tell rows apart."""

    def read(self, alias: str, key: Sequence[str]) -> Found: ...

    def there(self, alias: str) -> set[str]:
        """Indexes that lie there, and all that is no index any more or not yet one: by what a client lists."""


def found(tables: Mapping[str, Iterable[Mapping[str, Any]]], key: Sequence[str]) -> Found:
    rows: Rows = {}
    origins = set()
    for kind, table in tables.items():
        rows[kind] = Counter()
        for row in table:
            rows[kind][tuple(row[name] for name in key)] += 1
            origins.add((row["_ref"], row["_instance"]))
    return Found(rows, origins)


@dataclass(frozen=True)
class Postgres:
    uri: str
    schema: str

    def read(self, alias: str, key: Sequence[str]) -> Found:
        import psycopg
        from psycopg import sql
        from psycopg.rows import dict_row

        with psycopg.connect(self.uri, row_factory=dict_row) as client:
            listed = client.execute("SELECT viewname::text FROM pg_views WHERE schemaname = %s", [self.schema])
            views = [each["viewname"] for each in listed.fetchall()]
            every = sql.SQL("SELECT * FROM {}")
            tables = {
                kind: client.execute(every.format(sql.Identifier(self.schema, _named(alias, kind)))).fetchall()
                for kind in _kinds(alias, views)
            }
        return found(tables, key)

    def there(self, alias: str) -> set[str]:
        import psycopg

        with psycopg.connect(self.uri) as client:
            listed = client.execute("SELECT tablename::text FROM pg_tables WHERE schemaname = %s", [self.schema])
            return {_index(each) for (each,) in listed.fetchall() if each.startswith(f"{alias}__")}


@dataclass(frozen=True)
class Chdb:
    """The views are in the database `instep`."""

    folder: Path

    def read(self, alias: str, key: Sequence[str]) -> Found:
        views = self._names("engine = 'View'")
        return found(
            {kind: self._ask(f"SELECT * FROM instep.`{_named(alias, kind)}`") for kind in _kinds(alias, views)}, key
        )

    def there(self, alias: str) -> set[str]:
        return {_index(each) for each in self._names("engine != 'View'") if each.startswith(f"{alias}__")}

    def _names(self, where: str) -> list[str]:
        return [
            each["name"] for each in self._ask(f"SELECT name FROM system.tables WHERE database = 'instep' AND {where}")
        ]

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        from chdb.state.sqlitelike import connect

        with closing(connect(str(self.folder / "clickhouse"))) as client:
            said: str = client.query(sql, "JSONEachRow").data()
        return [
            {name: int(value) if str(value).isdigit() else value for name, value in json.loads(line).items()}
            for line in said.splitlines()
        ]


@dataclass(frozen=True)
class Qdrant:
    folder: Path

    def read(self, alias: str, key: Sequence[str]) -> Found:
        import qdrant_edge

        if not (self.folder / alias).exists():
            return Found({}, set())
        shard = qdrant_edge.EdgeShard.load(str(self.folder / alias))
        try:
            points, _ = shard.scroll(qdrant_edge.ScrollRequest(limit=100_000, with_payload=True))
        finally:
            shard.close()
        return found({"": [each.payload or {} for each in points]}, key)

    def there(self, alias: str) -> set[str]:
        """Folders that are made beside their place, and not all gone yet, begin with a dot."""
        marks = {".lock", ".wanted"}
        listed = {each.name for each in self.folder.iterdir()}
        return {each for each in listed - marks if each.startswith((f"{alias}__", "."))}


@dataclass(frozen=True)
class Milvus:
    file: Path

    def read(self, alias: str, key: Sequence[str]) -> Found:
        with self._client() as client:
            if not client.has_collection(alias):
                return Found({}, set())
            # Milvus Lite has in memory what was loaded since the file was opened.
            client.load_collection(alias)
            rows = client.query(
                alias,
                filter='chunk_id != ""',
                output_fields=[*key, "_ref", "_instance"],
                consistency_level="Strong",
            )
        return found({"": rows}, key)

    def there(self, alias: str) -> set[str]:
        with self._client() as client:
            listed = set(client.list_collections())
        indexes = {each for each in listed if each.startswith(f"{alias}__")}
        # Beside each of them there are lists of its chunks.
        return indexes | {each for each in listed if each.startswith("_instep_")} - set(map(chunk_lists, indexes))

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """It holds the file for itself until it is closed."""
        from milvus_lite.server_manager import server_manager_instance
        from pymilvus import MilvusClient

        client = MilvusClient(str(self.file), dedicated=True)
        try:
            yield client
        finally:
            client.close()
            server_manager_instance.release_server(str(self.file))


@dataclass(frozen=True)
class Lance:
    """Tables and documents; `live` is the filter of who is there."""

    folder: Path
    live: str | None = None

    def read(self, alias: str, key: Sequence[str]) -> Found:
        import lance

        newest = max(self.folder.glob(f"{alias}.alias-*.json"), default=None)
        if newest is None:
            return Found({}, set())
        physical: str = json.loads(newest.read_text())["physical"]
        tables = {
            kind: lance.dataset(self.folder / f"{_named(physical, kind)}.lance").to_table(filter=self.live).to_pylist()
            for kind in _kinds(physical, self._names())
        }
        return found(tables, key)

    def there(self, alias: str) -> set[str]:
        return {_index(each) for each in self._names() if each.startswith(f"{alias}__")}

    def _names(self) -> list[str]:
        return [each.stem for each in self.folder.glob("*.lance")]


def _kinds(name: str, names: Iterable[str]) -> list[str]:
    """Of what is called so there is one for each kind."""
    return sorted(
        each[len(name) :].removeprefix("__") for each in names if each == name or each.startswith(f"{name}__")
    )


def _named(name: str, kind: str) -> str:
    return f"{name}__{kind}" if kind else name


def _index(table: str) -> str:
    """`Like__1a2b3c4d__KEPT` is of `Like__1a2b3c4d`."""
    return "__".join(table.split("__")[:2])
