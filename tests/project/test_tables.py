"""Entities of tables: what is taken, and what is refused with its line and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from instep.project import ClickHouseSource, DocumentEntity, SparkSource, TableEntity, json_schema

from .conftest import Load, Reject
from .declared import TABLES, changed, said


def table(**settings: Any) -> TableEntity:
    return TableEntity.model_validate({"source": {"type": "spark", "path": "x"}, "key": "id", **settings})


def test_tables_and_documents_are_distinguished_by_their_sources(load: Load) -> None:
    project = load(TABLES)
    kinds = {name: type(entity) for name, entity in project.entities.items()}
    assert kinds == {"Commit": TableEntity, "Author": TableEntity, "Notes": DocumentEntity}
    commit, author = project.entities["Commit"], project.entities["Author"]
    assert isinstance(commit.source, SparkSource)
    assert isinstance(author.source, ClickHouseSource)
    assert (commit.namespaced, author.namespaced, project.entities["Notes"].namespaced) == (True, False, False)


def test_the_defaults_of_a_table() -> None:
    entity = table()
    assert (entity.key, entity.scope, entity.watermark, entity.deleted, entity.order) == (("id",), None, None, None, ())
    assert (entity.watermark_lag, entity.slices, entity.cuts, entity.batch_rows) == (
        300_000,
        "auto",
        "balanced",
        50_000,
    )
    assert (entity.node, entity.edges, entity.transform, entity.target) == (None, (), None, None)
    assert (entity.slice_rows, entity.work_factor, entity.priority, entity.ttl) == (10_000, 1.0, 40, None)
    assert (entity.deletes.share, entity.deletes.floor, entity.depends_on) == (0.2, 100, ())


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"key": ["a", "b"]}, "key", ("a", "b")),
        ({"order": "a"}, "order", ("a",)),
        ({"order": []}, "order", ()),
        ({"slices": 1}, "slices", 1),
        ({"slices": "10000"}, "slices", 10_000),
        ({"cuts": "even"}, "cuts", "even"),
        ({"watermark": "at", "watermark_lag": "1m30s"}, "watermark_lag", 90_000),
        ({"watermark_lag": "0s"}, "watermark_lag", 0),
        ({"batch_rows": 1_000_000}, "batch_rows", 1_000_000),
        ({"transform": "package.module:function"}, "transform", "package.module:function"),
    ],
)
def test_the_settings_of_a_table(settings: dict[str, Any], name: str, value: object) -> None:
    assert getattr(table(**settings), name) == value


def test_properties_are_a_list_or_a_mapping() -> None:
    listed = table(node={"label": "A", "properties": ["x", "y"]}).node
    mapped = table(node={"label": "A", "properties": {"x": "a b", "y": "y"}}).node
    every = table(node={"label": "A"}).node
    none = table(node={"label": "A", "properties": []}).node
    assert listed
    assert mapped
    assert every
    assert none
    assert listed.properties == {"x": "x", "y": "y"}
    assert mapped.properties == {"x": "a b", "y": "y"}
    assert (every.properties, none.properties) == (None, {})


def test_a_column_with_a_name_that_no_table_takes_is_called_like_a_property() -> None:
    entity = table(key="commit id", node={"label": "A", "properties": {"id": "commit id"}})
    assert entity.key == ("commit id",)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    key: [id]\n", "", "6 entities.Commit.key: is missing"),
        ("key: [id]", "key: [id, id]", "10 entities.Commit.key[1]: is named twice; found 'id'"),
        ("key: [id]", "key: []", "10 entities.Commit.key: must not be empty"),
        ("key: [id]", 'key: ""', "10 entities.Commit.key: must not be empty; found ''"),
        ("key: [id]", "key: [5]", "10 entities.Commit.key[0]: must be text"),
        ("key: [id]", "key: [id, ID]", "10 entities.Commit.key[1]: differs from another column in case only"),
        ("key: [id]", "key: a b", "10 entities.Commit.key: cannot name a column of a table"),
        ("key: [id]", "key: a b", "give it another in `properties`; found 'a b'"),
        ("scope: path", "scope: _path", "11 entities.Commit.scope: cannot name a column of a table"),
        ("scope: path", "scope: updated_at", "12 entities.Commit.watermark: is the column of `scope` already"),
        ("target: graph", "deleted: updated_at", "13 entities.Commit.deleted: is the column of `watermark` already"),
        ("watermark: updated_at", "watermark_lag: 5m", "12 entities.Commit.watermark_lag: needs a `watermark`"),
        ("watermark: updated_at", "reconcile: 7d", "12 entities.Commit.reconcile: needs a `watermark`"),
        ("target: graph", "watermark_lag: 5", "13 entities.Commit.watermark_lag: must be a duration such as"),
        ("target: graph", "slices: atuo", "13 entities.Commit.slices: must be `auto`, or a number from 1 to 10000"),
        ("target: graph", "slices: 0", "13 entities.Commit.slices: must be `auto`, or a number from 1 to 10000"),
        ("target: graph", "slices: 10001", "13 entities.Commit.slices: must be `auto`, or a number from 1 to 10000"),
        ("target: graph", "slices: true", "13 entities.Commit.slices: must be `auto`, or a number from 1 to 10000"),
        ("target: graph", "slices: ${SECRET}", "13 entities.Commit.slices: must be `auto`, or a number"),
        ("target: graph", "cuts: evn", "found 'evn'; allowed: balanced, even (did you mean even?)"),
        ("target: graph", "batch_rows: 0", "13 entities.Commit.batch_rows: must be at least 1"),
        ("target: graph", "order: [a, a]", "13 entities.Commit.order[1]: is named twice"),
        ("target: graph", "transform: f", "13 entities.Commit.transform: must have the form package.module:function"),
    ],
)
def test_settings_of_a_table_that_are_refused(reject: Reject, old: str, new: str, says: str) -> None:
    assert says in said(reject, old, new)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("label: Commit, prop", "label: 5, prop", "14 entities.Commit.node.label: must be text"),
        ("label: Commit, prop", "label: _C, prop", "14 entities.Commit.node.label: a label is letters"),
        ("label: Commit, prop", "lable: Commit, prop", "unknown key (did you mean label?); allowed: label, properties"),
        ("[sha, message]", "[sha, 5]", "14 entities.Commit.node.properties[1]: must be text"),
        ("[sha, message]", "[sha, sha]", "14 entities.Commit.node.properties[1]: is named twice"),
        ("[sha, message]", "[a b]", "14 entities.Commit.node.properties[0]: cannot be a property"),
        ("[sha, message]", "{a b: sha}", "14 entities.Commit.node.properties.a b: the name of a property is letters"),
        ("[sha, message]", "{a: sha, A: x}", "14 entities.Commit.node.properties.A: differs from another property"),
        ("[sha, message]", "{id: sha}", "14 entities.Commit.node.properties.id: has the name of another column of"),
        ("[sha, message]", "{ID: sha}", "14 entities.Commit.node.properties.ID: has the name of another column of"),
        ("[sha, message]", "{a: ''}", "14 entities.Commit.node.properties.a: must not be empty"),
        ("[sha, message]", "sha", "14 entities.Commit.node.properties: must be a mapping"),
        ("kind: AUTHORED", "kind: A__B", "16 entities.Commit.edges[0].kind: a kind is letters"),
        ("kind: AUTHORED", "kind: Instep", "16 entities.Commit.edges[0].kind: a kind is letters"),
        ("kind: AUTHORED", "kind: 1st", "16 entities.Commit.edges[0].kind: a kind is letters"),
        ("kind: AUTHORED", "knd: AUTHORED", "unknown key (did you mean kind?); allowed: kind, from, to"),
        ("from: {", "frm: {", "edges[0].frm: unknown key (did you mean from?); allowed: kind, from, to"),
        ("from: {", "start: {", "entities.Commit.edges[0].start: unknown key; allowed: kind, from, to"),
        ("columns: author", "colums: author", "unknown key (did you mean columns?); allowed: label, columns"),
        (", columns: author", "", "16 entities.Commit.edges[0]: leads from the row to itself"),
        ("to: {label: Commit}", "to: {label: Comit}", "the row is no such node: name the `columns` that hold its key"),
        ("to: {label: Commit}", "to: {label: Comit}", "found 'Comit'; allowed: Commit (did you mean Commit?)"),
        ("    node: {label: Commit, properties: [sha, message]}\n", "", "edges[0].to.label: the row is no such node"),
        ("to: {label: Commit}", "to: {}", "16 entities.Commit.edges[0].to.label: is missing"),
        (
            "to: {label: Commit}}",
            "to: {label: Commit}}\n      - {kind: Authored, from: {label: Person, columns: c}, to: {label: Commit}}",
            "17 entities.Commit.edges[1].kind: another edge is of this kind",
        ),
    ],
)
def test_nodes_and_edges_that_are_refused(reject: Reject, old: str, new: str, says: str) -> None:
    assert says in said(reject, old, new)


def test_an_edge_by_join_table_has_columns_at_both_ends() -> None:
    ends = {"from": {"label": "A", "columns": ["a"]}, "to": {"label": "B", "columns": ["x", "y"]}}
    edge = table(edges=[{"kind": "LIKES", **ends}]).edges[0]
    assert (edge.start.columns, edge.end.columns) == (("a",), ("x", "y"))


@pytest.mark.parametrize("settings", [{"batch_rows": 1_000_001}, {"source": {"type": "files", "path": "x"}}])
def test_invalid_settings_from_python_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        table(**settings)


def test_keys_of_the_other_kind_say_so(reject: Reject) -> None:
    chunk = said(reject, "key: [id]", "key: [id]\n    chunk: {size: 1}")
    assert chunk.startswith("11 entities.Commit.chunk: is for documents, and the source is a table: ")
    assert "watermark" in chunk
    slices = said(reject, "path: docs}", "path: docs}\n    slices: 3")
    assert slices.startswith("24 entities.Notes.slices: is for tables, and this is an entity of documents; allowed: ")
    assert "chunk" in slices
    assert "unknown key (did you mean slices?)" in said(reject, "key: [id]", "key: [id]\n    slics: 3")


def test_an_unknown_type_lists_all_types_and_hides_no_other_problem(reject: Reject) -> None:
    error = reject(changed("type: spark", "type: sprak", changed("scope: path", "slices: 0")))
    assert [(each.line, each.path) for each in error.problems] == [
        (8, "entities.Commit.source.type"),
        (11, "entities.Commit.slices"),
    ]
    assert "allowed: files, feed, kafka, python, spark, clickhouse, delta, iceberg (did you mean spark?)" in str(error)


def test_a_column_from_the_environment_is_not_shown(reject: Reject) -> None:
    text = said(reject, "key: [id]", 'key: ["${SECRET}", "${SECRET}"]')
    assert text == "10 entities.Commit.key[1]: is named twice; found ${SECRET}"


def test_defaults_in_the_schema_are_written_as_a_file_has_them() -> None:
    parts = json_schema()["$defs"]
    assert parts["TableEntity"]["properties"]["watermark_lag"]["default"] == "5m"
    assert parts["Handler"]["properties"]["backoff"]["default"] == ["10s", "1m", "5m"]
    assert set(parts["Edge"]["properties"]) == {"kind", "from", "to"}
