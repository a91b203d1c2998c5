"""Views: what any client reads, and who may."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from instep.domain.columns import INT64, STRING, Column
from instep.errors import UserError
from instep.postgres.connection import Session, close_all
from instep.targets.postgres.target import PostgresTarget
from instep.targets.table_target import OWN, TableSpec
from instep.testing.table_rows import EDGES, NODES, SPECS, Edge, Node, put
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

CHANGED = TableSpec(OWN, (Column("title", STRING), Column("id", INT64), Column("path", STRING)), ("id",), "path")


def selected(target: PostgresTarget, view: str, columns: str = '"id"') -> list[tuple[Any, ...]]:
    """What a client reads that knows nothing of Instep."""
    with psycopg.connect(target.uri, autocommit=True) as connection:
        return connection.execute(f'SELECT {columns} FROM "{target.schema}"."{view}" ORDER BY 1'.encode()).fetchall()


def views(target: PostgresTarget) -> set[str]:
    with target.place.session() as session:
        found = session.run("SELECT viewname::text FROM pg_views WHERE schemaname = %s", target.schema)
    return {name for (name,) in found}


def test_views_hide_deleted_rows_and_show_where_rows_come_from(target: PostgresTarget) -> None:
    target.create("Node__1", SPECS)
    rows = Node(1, "one", 5), Node(2, "two", 5), Edge(1, 9, 5), Edge(2, 9, 5)
    put(target, "Node__1", *rows, epoch=1, attempt="1")
    put(target, "Node__1", Node(2, None, 6, deleted=True), Edge(1, None, 6, deleted=True), epoch=1, attempt="2")
    target.promote("Node", "Node__1", 1)
    assert selected(target, "Node", "*") == [(1, "1/", "one", "Node@global", "i", 5)]
    assert selected(target, "Node__AUTHOR") == [(2,)]


def test_all_views_of_an_alias_move_and_those_of_other_kinds_go(target: PostgresTarget) -> None:
    other = TableSpec("OTHER", EDGES.columns, EDGES.key)
    for made, specs in {"Node__1": SPECS, "Node__2": (CHANGED, other), "Node__3": (NODES,)}.items():
        target.create(made, specs)
    shown = []
    moves: list[str | None] = ["Node__1", "Node__2", "Node__1", "Node__3", None]
    for epoch, name in enumerate(moves, 1):
        target.promote("Node", name, epoch)
        shown.append(views(target))
    assert shown == [{"Node", "Node__AUTHOR"}, {"Node", "Node__OTHER"}, {"Node", "Node__AUTHOR"}, {"Node"}, set()]


@pytest.mark.parametrize("second", [NODES, CHANGED], ids=["same columns", "other columns"])
def test_readers_of_a_view_keep_their_rights_after_it_moved(
    server: PostgresServer, target: PostgresTarget, second: TableSpec
) -> None:
    role = "odd \"role'%s"
    quoted = '"' + role.replace('"', '""') + '"'
    server.execute(f"DROP ROLE IF EXISTS {quoted}", database=DATABASE)
    server.execute(f"CREATE ROLE {quoted}", database=DATABASE)
    for name, spec in (("Node__1", NODES), ("Node__2", second)):
        target.create(name, [spec])
    target.promote("Node", "Node__1", 1)
    server.execute(f'GRANT SELECT ON "{target.schema}"."Node" TO {quoted}, PUBLIC', database=DATABASE)
    target.promote("Node", "Node__2", 2)
    view = f'"{target.schema}"."Node"'
    with target.place.session() as session:
        for who in (role, "public"):
            assert session.run("SELECT has_table_privilege(%s, %s, 'SELECT')", who, view) == [(True,)]
        assert session.run("SELECT has_table_privilege(%s, %s, 'INSERT')", role, view) == [(False,)]
    server.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}", database=DATABASE)


def test_a_dependent_view_of_a_user_is_named_and_nothing_moves(target: PostgresTarget) -> None:
    for name, spec in (("Node__1", NODES), ("Node__2", CHANGED), ("Node__3", NODES)):
        target.create(name, [spec])
    target.promote("Node", "Node__1", 1)
    with target.place.session() as session:
        session.run("CREATE VIEW {mine} AS SELECT * FROM {view}", mine=session.name("m"), view=session.name("Node"))
    with pytest.raises(UserError, match="in use"):
        target.promote("Node", "Node__2", 2)
    with pytest.raises(UserError, match="in use"):
        target.drop("Node__1")
    assert target.served("Node") == "Node__1"
    target.promote("Node", "Node__3", 2)  # of the same columns: theirs follows
    target.drop("Node__1")
    assert selected(target, "m") == []


def test_own_tables_are_made_once_for_each_connection_that_promotes(
    target: PostgresTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index on a topic is promoted every second."""
    target.create("Node__1", SPECS)
    run, made = Session.run, list[str]()

    def watched(self: Session, statement: str, *values: object, **parts: object) -> object:
        if statement.startswith("CREATE TABLE IF NOT EXISTS"):
            made.append(statement)
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    close_all()
    monkeypatch.setattr(Session, "run", watched)
    target.promote("Node", "Node__1", 1)
    assert made
    made.clear()
    target.promote("Node", "Node__1", 2)
    assert not made


def test_an_index_of_which_a_table_was_dropped_is_gone_and_can_be_made_again(target: PostgresTarget) -> None:
    target.create("Node__1", SPECS)
    put(target, "Node__1", Node(1, "one", 5), Edge(1, 9, 5), epoch=1, attempt="1")
    assert target.exists("Node__1")
    with target.place.session() as session:
        session.run("DROP TABLE {table}", table=session.name(EDGES.table("Node__1")))
    assert not target.exists("Node__1")
    target.create("Node__1", SPECS)
    assert (target.exists("Node__1"), target.rows("Node__1")) == (True, 0)
    put(target, "Node__1", Node(2, "two", 5), epoch=1, attempt="2")
    assert target.rows("Node__1") == 1


def test_an_index_that_partitions_share_keeps_the_tables_that_are_still_there(target: PostgresTarget) -> None:
    """Views show them, and other partitions have rows there."""
    shared = target.within("1/2/")
    shared.create("Node__1", SPECS)
    put(shared, "Node__1", Node(1, "one", 5), Edge(1, 9, 5), epoch=1, attempt="1")
    shared.promote("Node", "Node__1", 1)
    with target.place.session() as session:
        session.run("DROP TABLE {table} CASCADE", table=session.name(EDGES.table("Node__1")))
    assert not shared.exists("Node__1")
    shared.create("Node__1", SPECS)
    assert (shared.exists("Node__1"), shared.rows("Node__1"), shared.rows("Node__1", EDGES.kind)) == (True, 1, 0)
    put(shared, "Node__1", Edge(1, 9, 5), epoch=1, attempt="2")
    assert shared.rows("Node__1", EDGES.kind) == 1
