"""Sources of tables and targets: where they are, and what they need."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from instep.project import ClickHouseSource, ClickHouseTarget, PostgresTarget, Project, SparkSource, Target
from instep.project.sources import DeclaredTable, TableSource
from instep.project.targets import DeclaredTarget

from .conftest import Reject
from .declared import said

SOURCES: TypeAdapter[TableSource] = TypeAdapter(DeclaredTable)
TARGETS: TypeAdapter[Target] = TypeAdapter(DeclaredTarget)


def spark(**settings: Any) -> SparkSource:
    source = SOURCES.validate_python({"type": "spark", **settings})
    assert isinstance(source, SparkSource)
    return source


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "data"},
        {"path": ["data/a", "s3a://bucket/b"], "format": "csv", "options": {"header": True}},
        {"table": "catalog.db.commits"},
        {"format": "iceberg", "table": "db.commits"},
        {"format": "jdbc", "table": "commits", "options": {"url": "jdbc:postgresql://h/db"}},
        {"format": "JDBC", "options": {"URL": "jdbc:postgresql://h/db", "query": "SELECT 1"}},
        {"format": "org.example.Source", "options": {"x": 1}},
        {"path": "data", "sql": "SELECT id FROM Source WHERE id > 5"},
    ],
)
def test_every_source_format_of_spark_is_taken(settings: dict[str, Any]) -> None:
    assert spark(**settings).format == settings.get("format", "parquet")


def test_options_are_texts_and_secret() -> None:
    source = spark(path="x", options={"header": True, "samplingRatio": 0.5, "password": "hunter2"})
    assert source.reader_options() == {"header": "true", "samplingRatio": "0.5", "password": "hunter2"}
    assert "hunter2" not in repr(source)
    assert "hunter2" not in str(source.model_dump())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("path: data/commits", "path: x\n      table: x", "10 entities.Commit.source.table: name either `path` or"),
        ("      path: data/commits\n", "", "7 entities.Commit.source: must name what to read: `path`, `table`, or"),
        ("path: data/commits", "path: []", "9 entities.Commit.source.path: must not be empty"),
        ("path: data/commits", "path: [x, '']", "9 entities.Commit.source.path[1]: must not be empty"),
        ("path: data/commits", "pth: x", "unknown key (did you mean path?); allowed: type, format, path, table, opt"),
        ("path: data/commits", "path: x\n      format: jdbc", "9 entities.Commit.source.path: a jdbc source has a"),
        ("path: data/commits", "table: x\n      format: jdbc", "7 entities.Commit.source.options: needs `url: jdbc:…`"),
        ("path: data/commits", "path: x\n      sql: SELECT * FROM c", "10 entities.Commit.source.sql: must read from"),
        (
            "path: data/commits",
            "path: x\n      options: {password: [hunter2]}",
            "10 entities.Commit.source.options.password: must be text; found a list",
        ),
        (
            "path: data/commits",
            "path: x\n      options: hunter2",
            "10 entities.Commit.source.options: must be a mapping",
        ),
        (", table: people", "", "18 entities.Author.source.table: is missing"),
        ("uri: data/store", "uri: ftp://h/db", "18 entities.Author.source.uri: must be a folder, or look like http://"),
        ("uri: data/store", "uri: http://ann:hunter2@@h/db", "as %-codes (@ is %40); found (not shown)"),
        ("uri: data/store", "uri: 'http://h/db?password=hunter2'", "found (not shown)"),
        ("uri: .instep/graph", "uri: 'http://a:${SECRET}@h'", "3 targets.graph.staging: is missing: a ClickHouse"),
        ("uri: .instep/graph", "uri: https://, staging: x", "3 targets.graph.uri: must be a folder, or look like"),
        (
            "type: clickhouse, uri: .instep/graph",
            "type: postgres, uri: hunter2",
            "3 targets.graph.uri: must begin with",
        ),
        ("type: clickhouse, uri: .instep/graph", "type: postgres, uri: mysql://h/hunter2", "must begin with postgres"),
        ("type: clickhouse, uri: .instep/graph", "type: postgres, uri: postgresql://a:hunter2@h", "must look like"),
        (
            "type: clickhouse, uri: .i",
            "type: clickhose, uri: .i",
            "allowed: lance, clickhouse, postgres, qdrant, mil",
        ),
        (
            "type: clickhouse, uri: .instep/graph",
            "type: qdrant, uri: 'localhost:6333'",
            "3 targets.graph.uri: must be a",
        ),
        ("type: clickhouse, uri: .i", "type: qdrant, uri: 'http://k:hunter2@h:6333', x: .i", "as `api_key` beside it"),
        ("type: clickhouse, uri: .i", "type: qdrant, uri: q, api_key: [hunter2], x: .i", "must be text"),
        (
            "type: clickhouse, uri: .i",
            "type: milvus, uri: milvus",
            "3 targets.graph.uri: must be a file that ends in .db",
        ),
        ("type: clickhouse, uri: .i", "type: milvus, uri: 'tcp://a:hunter2@h', x: .i", "as `token` beside it"),
        ("type: clickhouse, uri: .i", "type: milvus, uri: m.db, token: [hunter2], x: .i", "must be text"),
        (
            "type: clickhouse, uri: .i",
            "type: milvus, uri: m.db, partition_prefix: 1-a, x: .i",
            "3 targets.graph.partition_prefix: must be letters, digits and underscores",
        ),
        ("type: clickhouse, uri: .i", "type: opensearch, uri: 'https://a:hunter2@h', x: .i", "must look like https://"),
        (
            "type: clickhouse, uri: .instep/graph",
            "type: opensearch, uri: 'http://h', user: a",
            "together with `password`",
        ),
        (
            "type: clickhouse, uri: .instep/graph",
            "type: opensearch, uri: 'http://h', user: a, password: hunter2, api_key: b",
            "3 targets.graph.user: cannot be set together with `api_key`",
        ),
        (
            "type: clickhouse, uri: .i",
            "type: opensearch, uri: http://h, max_payload_bytes: 100000001, x: .i",
            "max_payload_bytes",
        ),
    ],
)
def test_stores_that_are_refused(reject: Reject, old: str, new: str, says: str) -> None:
    assert says in said(reject, old, new)


@pytest.mark.parametrize("name", ["pg_x", "a-b", "", "1a", "x" * 64])
def test_a_schema_of_postgres_is_a_plain_name(name: str) -> None:
    with pytest.raises(ValidationError, match=r"targets|schema|characters") as refused:
        TARGETS.validate_python({"type": "postgres", "uri": "postgresql://h/db", "schema": name})
    assert refused.value.errors()[0]["loc"][-1] == "schema"


def test_addresses_are_left_out_of_shown_settings() -> None:
    server = {"type": "clickhouse", "uri": "https://ann:hunter2@h:8443/db", "staging": "s3://bucket/staging"}
    database = {"type": "postgres", "uri": "postgres://ann:hunter2@h/db", "schema": "shop"}
    source = {"type": "clickhouse", "uri": "http://ann:hunter2@[::1]/", "table": "t"}
    declared = [TARGETS.validate_python(server), TARGETS.validate_python(database), SOURCES.validate_python(source)]
    declared.append(TARGETS.validate_python({"type": "qdrant", "uri": "http://h:6333", "api_key": "hunter2"}))
    declared.append(TARGETS.validate_python({"type": "milvus", "uri": "http://h/db", "token": "ann:hunter2"}))
    search = {"type": "opensearch", "uri": "http://h", "user": "ann", "password": "hunter2"}
    declared.append(TARGETS.validate_python(search))
    assert "hunter2" not in repr(declared)
    assert isinstance(declared[1], PostgresTarget)
    assert (declared[1].uri, declared[1].schema_) == ("postgres://ann:hunter2@h/db", "shop")


def test_places_are_relative_to_the_project() -> None:
    server = "http://h:8123/db"
    built = Project.model_validate(
        {
            "name": "p",
            "root": "/srv",
            "targets": {
                "folder": {"type": "clickhouse", "uri": "graph"},
                "server": {"type": "clickhouse", "uri": server, "staging": "staging"},
                "shop": {"type": "postgres", "uri": "postgresql://h/db"},
                "lite": {"type": "milvus", "uri": "m.db"},
                "cloud": {"type": "qdrant", "uri": "https://h:6333/prefix"},
            },
            "entities": {
                "A": {"source": {"type": "spark", "path": ["a", "s3a://b/c"]}, "key": "id", "target": "folder"},
                "B": {"source": {"type": "spark", "table": "db.b"}, "key": "id", "target": "shop"},
                "C": {"source": {"type": "clickhouse", "uri": "c", "table": "c"}, "key": "id", "target": "server"},
                "D": {"source": {"type": "clickhouse", "uri": server, "table": "c"}, "key": "id", "target": "server"},
            },
            "spark": {"jars": ["libs/../delta.jar", "https://x/y.jar"], "config": {"a": "b"}},
        }
    )
    folder, remote = built.resolved_target("folder"), built.resolved_target("server")
    assert isinstance(folder, ClickHouseTarget)
    assert isinstance(remote, ClickHouseTarget)
    assert (folder.uri, folder.staging) == ("/srv/graph", None)
    assert (remote.uri, remote.staging) == (server, "/srv/staging")
    assert built.resolved_target("shop") == built.targets["shop"]
    assert [built.resolved_target(name).uri for name in ("lite", "cloud")] == ["/srv/m.db", "https://h:6333/prefix"]
    sources = [built.resolved_source(name) for name in "ABCD"]
    assert [each.path for each in sources if isinstance(each, SparkSource)] == [("/srv/a", "s3a://b/c"), None]
    assert [each.uri for each in sources if isinstance(each, ClickHouseSource)] == ["/srv/c", server]
    assert built.spark_config == {"a": "b", "spark.jars": "/srv/delta.jar,https://x/y.jar"}
    assert pickle.loads(pickle.dumps(built)) == built
    assert built.root == Path("/srv")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"jars": ["a,b"]}, "must be one jar"),
        ({"jars": [""]}, "must not be empty"),
        ({"jars": "a.jar", "remote": "sc://h"}, "loads its own jars"),
        ({"jars": "a.jar", "config": {"spark.jars": "b.jar"}}, "not in both"),
    ],
)
def test_jars_that_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Project.model_validate(
            {
                "name": "p",
                "spark": settings,
                "targets": {"t": {"type": "lance", "uri": "x"}},
                "entities": {"D": {"source": {"type": "files", "path": "x"}}},
            }
        )
