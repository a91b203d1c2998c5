"""Graph: from what is declared of nodes and edges to the tables that a target needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import FLOAT64, INT32, INT64, STRING, TIMESTAMP, Column
from instep.domain.graph import (
    MAX_NAME,
    Edge,
    End,
    GraphEntity,
    GraphError,
    GraphTable,
    Node,
    graph_tables,
    node_keys,
)

USER = GraphEntity(
    "User",
    (Column("id", INT64), Column("user_name", STRING), Column("score", FLOAT64)),
    ("id",),
    Node("User", {"name": "user_name"}),
)
REQUEST = GraphEntity(
    "MergeRequest",
    (
        Column("traversal_path", STRING),
        Column("id", INT64),
        Column("title", STRING),
        Column("author_id", INT32),
        Column("updated_at", TIMESTAMP),
    ),
    ("id",),
    Node("MergeRequest", {"title": "title", "number": "id", "iid": "id"}),
    (Edge("AUTHORED", End("User", ("author_id",)), End("MergeRequest")),),
    scope="traversal_path",
)
REVIEWER = GraphEntity(
    "Reviewer",
    (Column("user_id", INT64), Column("request_id", INT64), Column("id", INT64)),
    ("id",),
    None,
    (Edge("REVIEWS", End("User", ("user_id",)), End("MergeRequest", ("request_id",))),),
)
NODES = node_keys([USER, REQUEST, REVIEWER])


def with_edge(start: End, end: End, entity: GraphEntity = REQUEST, kind: str = "AUTHORED") -> GraphEntity:
    return replace(entity, edges=(Edge(kind, start, end),))


def test_a_node_has_key_scope_and_properties() -> None:
    own = graph_tables(REQUEST, NODES)[0]
    assert own == GraphTable(
        kind="",
        columns=(
            Column("number", INT64),
            Column("traversal_path", STRING),
            Column("title", STRING),
            Column("iid", INT64),
        ),
        key=("number",),
        scope="traversal_path",
        sources={"number": "id", "traversal_path": "traversal_path", "title": "title", "iid": "id"},
    )


def test_the_key_is_named_like_the_property_made_of_it() -> None:
    assert NODES["User"] == (Column("id", INT64),)
    assert NODES["MergeRequest"] == (Column("number", INT64),)


def test_an_edge_by_foreign_key_is_keyed_by_its_row_and_has_its_ends_as_values() -> None:
    edge = graph_tables(REQUEST, NODES)[1]
    assert edge == GraphTable(
        kind="AUTHORED",
        columns=(
            Column("number", INT64),
            Column("traversal_path", STRING),
            Column("from_id", INT64),  # The foreign key is an int32; users have an int64.
            Column("to_number", INT64),
        ),
        key=("number",),
        scope="traversal_path",
        sources={"number": "id", "traversal_path": "traversal_path", "from_id": "author_id", "to_number": "id"},
        start=("from_id",),
        end=("to_number",),
    )


def test_an_edge_by_join_table_is_keyed_by_the_join_row() -> None:
    own, edge = graph_tables(REVIEWER, NODES)
    assert (own.kind, own.columns, own.key) == ("", (Column("id", INT64),), ("id",))
    assert [column.name for column in edge.columns] == ["id", "from_id", "to_number"]
    assert (edge.key, edge.scope) == (("id",), None)
    assert edge.sources == {"id": "id", "from_id": "user_id", "to_number": "request_id"}


def rows(table: GraphTable, *source: dict[str, Any]) -> dict[tuple[Any, ...], tuple[Any, ...] | None]:
    """What a target has after these rows: the ends of each edge by its key, None where it is deleted."""
    stored: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
    for each in source:
        row = {column: each[of] for column, of in table.sources.items()}
        ends = tuple(row[column] for column in (*table.start, *table.end))
        gone = table.deleted(row, deleted=each.get("gone", False))
        stored[tuple(row[column] for column in table.key)] = None if gone else ends
    return stored


def request(author: int | None, path: str = "42/1/", *, gone: bool = False) -> dict[str, Any]:
    return {"id": 7, "traversal_path": path, "author_id": author, "gone": gone}


def test_a_changed_foreign_key_leaves_no_stale_edge() -> None:
    """A bug of the original: the edge to the old end stayed."""
    edge = graph_tables(REQUEST, NODES)[1]
    assert rows(edge, request(1), request(2)) == {(7,): (2, 7)}


def test_a_null_foreign_key_deletes_the_edge() -> None:
    edge = graph_tables(REQUEST, NODES)[1]
    assert rows(edge, request(1), request(None)) == {(7,): None}
    assert rows(edge, request(None), request(3)) == {(7,): (3, 7)}


def test_a_deleted_row_deletes_its_edges() -> None:
    edge = graph_tables(REQUEST, NODES)[1]
    assert rows(edge, request(1), request(1, gone=True)) == {(7,): None}


def test_a_row_that_moves_to_another_namespace_stays_one() -> None:
    """A bug of the original: it left a duplicate. The scope is a value, too."""
    for table in graph_tables(REQUEST, NODES):
        assert "traversal_path" not in table.key
    edge = graph_tables(REQUEST, NODES)[1]
    assert rows(edge, request(1), request(1, "42/2/")) == {(7,): (1, 7)}


def test_a_node_is_never_deleted_by_a_null() -> None:
    own = graph_tables(REQUEST, NODES)[0]
    assert not own.deleted({"number": 7, "title": None}, deleted=False)
    assert own.deleted({"number": 7, "title": None}, deleted=True)


FILE = GraphEntity(
    "File",
    (Column("repo", STRING), Column("path", STRING), Column("owner_repo", STRING), Column("owner_path", STRING)),
    ("repo", "path"),
    Node("File", {}),
    (Edge("COPIED_FROM", End("File"), End("File", ("owner_repo", "owner_path"))),),
)


@pytest.mark.parametrize("nulls", [{"owner_repo"}, {"owner_path"}, {"owner_repo", "owner_path"}])
def test_one_null_makes_a_key_of_several_columns_lead_nowhere(nulls: set[str]) -> None:
    edge = graph_tables(FILE, node_keys([FILE]))[1]
    assert [column.name for column in edge.columns] == [
        *("repo", "path", "from_repo", "from_path", "to_repo", "to_path")
    ]
    source = {name: None if name in nulls else name for name in ("repo", "path", "owner_repo", "owner_path")}
    assert rows(edge, source) == {("repo", "path"): None}


def test_a_scope_in_the_key_is_one_column() -> None:
    entity = replace(REQUEST, key=("traversal_path", "id"))
    own = graph_tables(replace(entity, edges=()), NODES)[0]
    assert own.key == ("traversal_path", "number")
    assert [column.name for column in own.columns] == ["traversal_path", "number", "title", "iid"]


def test_an_end_has_the_wider_of_two_types() -> None:
    narrow = replace(USER, columns=(Column("id", INT32), *USER.columns[1:]))
    wide = with_edge(End("User", ("id",)), End("MergeRequest"))
    edge = graph_tables(wide, node_keys([narrow, REQUEST]))[1]
    assert Column("from_id", INT64) in edge.columns


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)


@given(st.lists(NAMES, unique_by=str.lower, min_size=2, max_size=8), st.data())
def test_every_column_has_one_source_and_every_key_is_there(names: list[str], data: st.DataObject) -> None:
    columns = tuple(Column(name, INT64) for name in names)
    key = tuple(data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=2)))
    properties = data.draw(st.dictionaries(NAMES, st.sampled_from(names), max_size=4))
    entity = GraphEntity("E", columns, key, Node("E", properties))
    try:
        nodes = node_keys([entity])
        tables = graph_tables(with_edge(End("E"), End("E", tuple(names[: len(key)])), entity), nodes)
    except GraphError as error:
        assert "name them apart" in str(error)  # noqa: PT017 - whether names clash is drawn
        return
    for table in tables:
        found = [column.name for column in table.columns]
        assert len({name.lower() for name in found}) == len(found)
        assert set(table.sources) == set(found)
        assert set(table.sources.values()) <= set(names)
        assert set(table.key) | set(table.start) | set(table.end) <= set(found)
        assert tuple(table.sources[name] for name in table.key) == key
    assert set(properties) <= set(tables[0].sources)


@pytest.mark.parametrize(
    ("entity", "said"),
    [
        (replace(REQUEST, node=None, edges=()), "declare a node, or edges"),
        (replace(REQUEST, key=()), "needs a key"),
        (replace(REQUEST, key=("id", "id")), "needs a key"),
        (replace(REQUEST, key=("none",)), "no column 'none'"),
        (replace(USER, key=("score",)), "'score' is float64, which cannot be in a key"),
        (replace(REQUEST, scope="id"), "scope 'id' is not a column of text"),
        (replace(USER, node=Node("User", {"a": "none"})), "no column 'none'"),
        (replace(USER, node=Node("User", {"bad-name": "id"})), "'bad-name'"),
        (replace(USER, node=Node("User", {"bad-name": "user_name"})), "'bad-name' cannot be a property"),
        (replace(USER, node=Node("User", {"_ref": "user_name"})), "'_ref' cannot be a property"),
        (replace(USER, node=Node("User", {"x" * (MAX_NAME + 1): "user_name"})), "at most 63"),
        (replace(USER, node=Node("User", {"id": "user_name"})), "has 'id' and 'id'"),
        (replace(USER, node=Node("User", {"Name": "id", "name": "user_name"})), "'Name' and 'name'"),
        (
            replace(REVIEWER, columns=(*REVIEWER.columns, Column("_id", INT64)), key=("_id",)),
            "'_id' cannot be called so in a table",
        ),
        (
            replace(REQUEST, scope="traversal_path", node=Node("MergeRequest", {"traversal_path": "id"}), edges=()),
            "'traversal_path' and 'traversal_path'",
        ),
        (with_edge(End("User", ("author_id",)), End("MergeRequest"), kind="A; DROP"), "cannot be a kind"),
        (with_edge(End("User", ("author_id",)), End("MergeRequest"), kind="A__B"), "'__' and 'instep' are taken"),
        (with_edge(End("User", ("author_id",)), End("MergeRequest"), kind="Instep"), "'__' and 'instep' are taken"),
        (replace(REQUEST, edges=(*REQUEST.edges, replace(REQUEST.edges[0], kind="authored"))), "two kinds"),
        (with_edge(End("MergeRequest"), End("MergeRequest")), "from the row to itself"),
        (with_edge(End("Group", ("author_id",)), End("MergeRequest")), "no entity declares such a node"),
        (with_edge(End("User"), End("MergeRequest", ("id",))), "the row is not a 'User'"),
        (with_edge(End("User", ("author_id", "id")), End("MergeRequest")), "is (id int64), not 2 columns"),
        (with_edge(End("User", ("title",)), End("MergeRequest")), "'title' is string, and 'id' of 'User' is int64"),
        (with_edge(End("User", ("none",)), End("MergeRequest")), "no column 'none'"),
    ],
)
def test_an_invalid_graph_is_refused_with_the_reason(entity: GraphEntity, said: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph_tables(entity, NODES)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{entity.name}: ")


def test_an_end_is_never_a_floating_point_number() -> None:
    entity = replace(USER, columns=(Column("id", INT32), *USER.columns[1:]))
    edge = with_edge(End("User", ("score",)), End("User"), entity)
    with pytest.raises(GraphError, match="'score' is float64, which cannot be a key"):
        graph_tables(edge, node_keys([entity]))


def test_a_label_is_made_by_one_entity() -> None:
    with pytest.raises(GraphError, match="another entity makes the nodes 'user'"):
        node_keys([USER, replace(USER, name="Robot", node=Node("user", {}))])
    with pytest.raises(GraphError, match="cannot be a label"):
        node_keys([replace(USER, node=Node("Us er", {}))])
