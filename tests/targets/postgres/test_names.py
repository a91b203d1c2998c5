"""Names: whatever they hold they stay names, and what would be cut off or is taken is refused."""

from __future__ import annotations

import pytest

from instep.domain.columns import INT64, STRING, Column
from instep.errors import UserError
from instep.targets.postgres.target import PostgresTarget
from instep.targets.table_target import OWN, TableChange, TableSpec
from instep.testing.table_rows import NODES, SPECS, Node, batch, nodes, put
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

SHARP = ("100%", "%s %(x)s %%", "{}{0}", '"; DROP TABLE x; --', "a'b", "\\", "é💡", "ORDER", "A", "a")


def test_names_and_values_are_never_statements(target: PostgresTarget) -> None:
    spec = TableSpec(OWN, tuple(Column(name, STRING) for name in SHARP), SHARP, SHARP[0])
    rows = [dict.fromkeys(SHARP, value) | {SHARP[0]: f"{at}/"} for at, value in enumerate(SHARP)]
    target.create("Node__1", [spec])
    for epoch in (1, 2):  # the second time all are there already
        base = target.within(SHARP[3]).fence("Node__1", epoch)
        part = target.writer("Node__1", base).stage(iter([TableChange(OWN, batch(spec, rows))]))
        target.within(SHARP[3]).commit(
            "Node__1", base=base, epoch=epoch, attempt=f"{SHARP[3]}{epoch}", staged=[part], marks=[]
        )
    assert list(target.drift("Node__1", [spec])) == []
    for name in SHARP[1:]:
        for value in SHARP:
            assert target.read("Node__1", where={name: value}).num_rows == 1
    target.promote("Node", "Node__1", 1)
    target.within(SHARP[3]).delete_scope("Node__1", "0/", epoch=2)
    target.maintain("Node__1", full=True)
    assert target.rows("Node__1") == len(SHARP) - 1


@pytest.mark.parametrize("schema", ["", "s" * 64, "a\0b"])
def test_a_schema_that_cannot_be_is_refused(server: PostgresServer, schema: str) -> None:
    with pytest.raises(UserError, match="schema"):
        PostgresTarget(server.url(DATABASE), schema)


def test_names_that_would_be_cut_off_are_refused_before_anything_is_made(target: PostgresTarget) -> None:
    longest = "N" * 63
    target.create(longest, [NODES])
    target.drop(longest)
    kind = TableSpec("K" * 50, SPECS[1].columns, SPECS[1].key)
    wide = TableSpec(OWN, (*NODES.columns, Column("é" * 32, STRING)), NODES.key)
    for name, specs in (("N" * 64, [NODES]), ("N" * 20, [NODES, kind]), ("Node__1", [wide])):
        with pytest.raises(UserError, match="at most 63"):
            target.create(name, specs)
        assert not target.exists(name[:63])
    with pytest.raises(UserError, match="at most 63"):
        target.promote("N" * 64, None, 1)


def test_names_that_are_taken_are_refused(target: PostgresTarget) -> None:
    for name in ("instep_indexes", "Instep_x"):
        with pytest.raises(UserError, match="own"):
            target.create(name, [NODES])
    with pytest.raises(UserError, match="xmin"):
        target.create("Node__1", [TableSpec(OWN, (Column("id", INT64), Column("xmin", INT64)), ("id",))])
    assert not target.exists("Node__1")
    target.create("Node__1", SPECS)
    put(target, "Node__1", Node(1, "one", 1), epoch=1, attempt="1")
    with target.place.session() as session:
        session.run("CREATE TABLE {table} (n int)", table=session.name("Table"))
        session.run("CREATE VIEW {view} AS SELECT 1 AS n", view=session.name("View"))
    for alias in ("Table", "View", "Node__1"):
        with pytest.raises(UserError, match="not a view of Instep's"):
            target.promote(alias, "Node__1", 1)
        assert target.served(alias) is None
    with pytest.raises(UserError, match="already exists"):
        target.create("Table", SPECS)
    assert nodes(target, "Node__1") == {1: "one"}
