"""Sources and targets are named as OpenLineage names datasets, without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.domain.open_lineage import Dataset
from instep.errors import UserError
from instep.project import Project
from instep.project.datasets import ProjectDatasets
from instep.project.load import load_project

SECRET = "s3cret"


def loaded(folder: Path, source: str, target: str = "type: lance, uri: index", entity: str = "") -> Project:
    file = folder / "instep.yaml"
    file.write_text(
        f"name: p\ntargets: {{t: {{{target}}}}}\nentities:\n  Thing:\n    source: {{{source}}}\n"
        + "".join(f"    {line}\n" for line in entity.splitlines())
    )
    return load_project(file)


JDBC = "type: spark, format: jdbc, table: {table}, options: {{url: '{url}', password: s3cret}}"


@pytest.mark.parametrize(
    ("source", "entity", "named"),
    [
        ("type: files, path: /data/docs", "", Dataset("file", "/data/docs")),
        ("type: files, path: 'file:///data/a%20b'", "", Dataset("file", "/data/a b")),
        ("type: files, path: 's3://bucket/some/docs/'", "", Dataset("s3://bucket", "some/docs")),
        ("type: files, path: 'sftp://ann:s3cret@host:22/docs?key=s3cret'", "", Dataset("sftp://host:22", "docs")),
        ("type: feed, path: 's3a://bucket/feed'", "", Dataset("s3://bucket", "feed")),
        ("type: python, list: 'mine:all', read: 'mine:one'", "", Dataset("python", "mine:all")),
        ("type: python, class: 'mine:Desk', options: {key: s3cret}", "", Dataset("python", "mine:Desk")),
        ("type: kafka, servers: ['k:9092', 'l:9092'], topic: events", "", Dataset("kafka://k:9092", "events")),
        ("type: delta, path: 's3://lake/t'", "document: {key: id, text: body}", Dataset("s3://lake", "t")),
        (
            "type: iceberg, table: wiki.pages, catalog: {uri: 'http://c', token: s3cret}",
            "document: {key: id, text: body}",
            Dataset("iceberg", "wiki.pages"),
        ),
        ("type: spark, path: 'abfss://box:s3cret@lake/t'", "key: id", Dataset("abfss://box@lake", "t")),
        ("type: spark, format: iceberg, table: lake.db.t", "key: id", Dataset("spark", "lake.db.t")),
        (
            JDBC.format(table="things", url="jdbc:postgresql://ann:s3cret@db/shop?password=s3cret"),
            "key: id",
            Dataset("postgres://db:5432", "shop.public.things"),
        ),
        (
            JDBC.format(table="things", url="jdbc:mariadb://db:3307/shop"),
            "key: id",
            Dataset("mysql://db:3307", "shop.things"),
        ),
        (
            "type: clickhouse, uri: 'http://ann:s3cret@ch:8124/game', table: matches",
            "key: id",
            Dataset("clickhouse://ch:8124", "game.matches"),
        ),
    ],
)
def test_a_source_is_named(tmp_path: Path, source: str, entity: str, named: Dataset) -> None:
    (found,) = ProjectDatasets(loaded(tmp_path, source, entity=entity)).inputs("Thing")
    assert found == named
    assert SECRET not in str(found)


def test_joined_tables_are_inputs_too(tmp_path: Path) -> None:
    document = (
        "document:\n  key: id\n  text: body\n  with:\n"
        "    comments: {source: {type: spark, path: 's3a://lake/comments'}, key: ticket, text: body}"
    )
    project = loaded(tmp_path, "type: spark, path: 's3a://lake/tickets'", entity=document)
    found = ProjectDatasets(project).inputs("Thing")
    assert found == [Dataset("s3://lake", "tickets"), Dataset("s3://lake", "comments")]


def test_a_query_over_jdbc_is_not_repeated(tmp_path: Path) -> None:
    source = JDBC.format(table="'(SELECT 1 AS id) AS s3cret'", url="jdbc:postgresql://db/shop")
    assert ProjectDatasets(loaded(tmp_path, source, entity="key: id")).inputs("Thing") == []


@pytest.mark.parametrize(
    ("target", "namespace", "name"),
    [
        ("type: lance, uri: /index", "file", "/index/Thing"),
        ("type: lance, uri: 's3://bucket/index'", "s3://bucket", "index/Thing"),
        (
            "type: postgres, uri: 'postgresql://ann:s3cret@db/search', schema: docs",
            "postgres://db:5432",
            "search.docs.Thing",
        ),
        ("type: qdrant, uri: 'http://q:6333', api_key: s3cret", "qdrant://q:6333", "Thing"),
        ("type: milvus, uri: 'https://m:19530', token: s3cret", "milvus://m:19530", "Thing"),
        ("type: opensearch, uri: 'http://o:9200'", "opensearch://o:9200", "Thing"),
        ("type: python, class: 'mine:Index', uri: 'odd://ann:s3cret@h:1/base'", "odd://h:1", "base/Thing"),
    ],
)
def test_a_target_is_named_as_readers_know_it(tmp_path: Path, target: str, namespace: str, name: str) -> None:
    datasets = ProjectDatasets(loaded(tmp_path, "type: files, path: docs", target))
    (found,) = datasets.outputs("Thing", "")
    assert (found.namespace, found.name) == (namespace, name)
    assert SECRET not in str(found)
    assert datasets.outputs("Thing", "v2")[0].name == f"{name}@v2"


def test_a_table_has_its_columns_and_its_edges(tmp_path: Path) -> None:
    entity = (
        "key: id\nnode: {label: Thing, properties: {id: id, title: subject}}\n"
        "edges: [{kind: PART_OF, from: {label: Thing}, to: {label: Thing, columns: parent}}]"
    )
    project = loaded(tmp_path, "type: spark, path: /t", "type: clickhouse, uri: graph", entity)
    columns = [("id", "int64"), ("subject", "string"), ("parent", "int64")]
    datasets = ProjectDatasets(project, lambda _: columns)
    assert datasets.inputs("Thing") == [Dataset("file", "/t", columns)]
    own, edges = datasets.outputs("Thing", "")
    assert own == Dataset("file", str(tmp_path / "graph" / "Thing"), [("id", "int64"), ("title", "string")])
    assert edges.name == str(tmp_path / "graph" / "Thing__PART_OF")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("openlineage: 'ftp://host/x'", "must be a file, or a URL"),
        ("openlineage: 'http://ann:s3cret@host/x'", "use `api_key`"),
        ("openlineage: lineage.ndjson, api_key: s3cret", "is for a server"),
    ],
)
def test_a_receiver_that_cannot_be_is_refused(tmp_path: Path, declared: str, said: str) -> None:
    loaded(tmp_path, "type: files, path: docs")
    file = tmp_path / "instep.yaml"
    file.write_text(f"{file.read_text()}lineage: {{{declared}}}\n")
    with pytest.raises(UserError) as error:
        load_project(file)
    assert said in str(error.value)
    assert SECRET not in str(error.value)
