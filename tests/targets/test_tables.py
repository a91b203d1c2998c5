"""Tables as targets see them: what can be declared, and how it is kept."""

from __future__ import annotations

import pytest

from instep.domain.columns import FLOAT64, INT64, STRING, Column
from instep.domain.graph import Edge, End, GraphEntity, Node, graph_tables, node_keys
from instep.errors import UserError
from instep.targets.ownership import alias_owns
from instep.targets.table_target import TableSpec, decode_specs, encode_specs
from instep.testing.table_rows import ODD, SPECS

COLUMNS = (Column("id", INT64), Column("path", STRING), Column("score", FLOAT64))


def test_specs_come_back_as_they_were() -> None:
    specs = (ODD, SPECS[1])
    assert decode_specs(encode_specs(specs)) == specs


def test_tables_of_a_graph_are_tables_of_a_target() -> None:
    user = GraphEntity("User", (Column("id", INT64),), ("id",), node=Node("User", {}))
    request = GraphEntity(
        "MergeRequest",
        (Column("id", INT64), Column("author_id", INT64), Column("path", STRING)),
        ("id",),
        node=Node("MergeRequest", {}),
        edges=(Edge("AUTHORED_BY", End("MergeRequest"), End("User", ("author_id",))),),
        scope="path",
    )
    own, edge = (TableSpec.of(each) for each in graph_tables(request, node_keys([user, request])))
    assert [(each.kind, each.key, each.scope) for each in (own, edge)] == [
        ("", ("id",), "path"),
        ("AUTHORED_BY", ("id",), "path"),
    ]
    assert own.table("MergeRequest__1") == "MergeRequest__1"
    assert edge.table("MergeRequest__1") == "MergeRequest__1__AUTHORED_BY"


@pytest.mark.parametrize(
    "wrong",
    [
        ("instep", COLUMNS, ("id",), None),
        ("A__B", COLUMNS, ("id",), None),
        ("", COLUMNS, (), None),
        ("", COLUMNS, ("id", "id"), None),
        ("", COLUMNS, ("other",), None),
        ("", COLUMNS, ("score",), None),
        ("", COLUMNS, ("id",), "id"),
        ("", COLUMNS, ("id",), "other"),
        ("", (*COLUMNS, COLUMNS[0]), ("id",), None),
        ("", (*COLUMNS, Column("_version", INT64)), ("id",), None),
    ],
)
def test_an_invalid_table_is_refused(
    wrong: tuple[str, tuple[Column, ...], tuple[str, ...], str | None],
) -> None:
    with pytest.raises(UserError):
        TableSpec(*wrong)


def test_an_alias_owns_the_indexes_created_for_it() -> None:
    assert alias_owns("Node", "Node__1a2b3c4d")
    assert not any(alias_owns("Node", each) for each in ("Node", "Node__x__1", "Node2__1", "Nod__1"))
