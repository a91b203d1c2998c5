"""Staged rows: counted when they are committed, and removed when they are not needed any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from instep.errors import Conflict, Transient
from instep.targets.postgres import indexes
from instep.targets.postgres.registry import known
from instep.targets.postgres.target import PostgresTarget
from instep.targets.table_target import TableChange
from instep.testing.table_rows import SPECS, Edge, Node, change, nodes, put, staged
from tests.servers.postgres import PostgresServer
from tests.targets.killed import stage_and_die


@pytest.fixture
def index(target: PostgresTarget) -> str:
    target.create("Node__1", SPECS)
    return "Node__1"


def staged_tables(target: PostgresTarget) -> list[str]:
    with target.place.session() as session:
        found = session.run(
            "SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = %s AND starts_with(relname, 'instep_staged_') AND relkind = 'r' ORDER BY 1",
            target.schema,
        )
        known = session.run("SELECT name FROM {staged} ORDER BY 1", staged=session.name("instep_staged"))
    assert known == found
    return [name for (name,) in found]


def test_a_commit_leaves_nothing_behind(target: PostgresTarget, index: str) -> None:
    base = target.fence(index, 1)
    parts = [staged(target, index, base, Node(n, "x", 1), Edge(n, 1, 1)) for n in range(5)]
    assert len(staged_tables(target)) == 2  # one for each kind, however many tasks
    target.commit(index, base=base, epoch=1, attempt="1", staged=parts, marks=[])
    assert staged_tables(target) == []
    assert len(nodes(target, index)) == 5


def test_rows_of_tasks_that_failed_or_ran_twice_are_not_committed(target: PostgresTarget, index: str) -> None:
    base = target.fence(index, 1)

    def failing() -> Iterator[TableChange]:
        yield from change([Node(1, "of a task that failed", 99)])
        raise KeyError

    with pytest.raises(KeyError):
        target.writer(index, base).stage(failing())
    staged(target, index, base, Node(1, "of a task that ran twice", 99))
    part = staged(target, index, base, Node(1, "one", 1))
    target.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[])
    assert nodes(target, index) == {1: "one"}


def test_rows_lost_in_a_server_crash_are_staged_again(
    server: PostgresServer, target: PostgresTarget, index: str
) -> None:
    put(target, index, Node(1, "old", 1), epoch=1, attempt="1")
    base = target.fence(index, 1)
    part = staged(target, index, base, Node(1, "new", 2))
    server.restart()
    with pytest.raises(Conflict, match="1 rows were staged and 0 are there"):
        target.commit(index, base=base, epoch=1, attempt="2", staged=[part], marks=[])
    assert nodes(target, index) == {1: "old"}
    again = staged(target, index, base, Node(1, "new", 2))
    target.commit(index, base=base, epoch=1, attempt="3", staged=[again], marks=[])
    assert nodes(target, index) == {1: "new"}


def test_staged_rows_removed_before_the_commit_are_a_conflict(target: PostgresTarget, index: str) -> None:
    base = target.fence(index, 1)
    part = staged(target, index, base, Node(1, "new", 2))
    replace(target, keep_seconds=0).maintain(index)
    with pytest.raises(Conflict):
        target.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[])


def test_upkeep_removes_old_staged_rows_only_and_looks_for_them_now_and_then(
    target: PostgresTarget, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_and_die(target, index, target.fence(index, 1))
    target.create("Other__1", SPECS)
    staged(target, "Other__1", target.fence("Other__1", 1), Node(1, "x", 1))
    target.maintain(index)
    assert len(staged_tables(target)) == 2
    with target.place.session() as session:
        session.run(
            "UPDATE {staged} SET at = at - interval '61 minutes' WHERE name LIKE %s",
            f"instep_staged_{known(session, index).id}_%",
            staged=session.name("instep_staged"),
        )
    target.maintain(index)
    assert len(staged_tables(target)) == 2, "the last look was a moment ago"
    monkeypatch.setattr(indexes, "_FORGET_AGAIN", 0.0)
    target.maintain(index)
    assert len(staged_tables(target)) == 1
    replace(target, keep_seconds=0).maintain(index)
    assert staged_tables(target) == []


def test_upkeep_leaves_rows_alone_that_a_task_is_writing(
    target: PostgresTarget, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = target.fence(index, 1)
    staged(target, index, base, Node(1, "x", 1))
    (table,) = staged_tables(target)
    with target.place.session() as session, contextlib.suppress(Transient), session.transaction():
        session.run("LOCK TABLE {table} IN ROW EXCLUSIVE MODE", table=session.name(table))  # as COPY does
        replace(target, keep_seconds=0).maintain(index)
    assert staged_tables(target) == [table]
    target.drop(index)
    assert staged_tables(target) == []


def test_a_task_whose_table_was_removed_is_retried(
    target: PostgresTarget, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from instep.targets.postgres import staging

    monkeypatch.setattr(staging, "_BUFFER", 1)
    base = target.fence(index, 1)

    def changes() -> Iterator[TableChange]:
        yield from change([Node(1, "x", 1)])
        replace(target, keep_seconds=0).maintain(index)
        yield from change([Node(2, "x", 1)])

    with pytest.raises(Transient, match="removed by another process"):
        target.writer(index, base).stage(changes())
