"""Several writers at once: no deadlock, and nothing comes between a check and what follows it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.waves import Mark
from instep.errors import Fenced
from instep.targets.postgres.journal import Journal
from instep.targets.postgres.target import PostgresTarget
from instep.testing.table_rows import SPECS, Edge, Node, edges, nodes, put, staged
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE


@pytest.fixture
def index(target: PostgresTarget) -> str:
    target.create("Node__1", SPECS)
    return "Node__1"


def deadlocks(server: PostgresServer) -> object:
    server.execute("SELECT pg_stat_force_next_flush()", database=DATABASE)
    return server.execute(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{DATABASE}'")[0][0]


def test_partitions_that_write_and_delete_the_same_rows_do_not_wait_in_a_circle(
    server: PostgresServer, target: PostgresTarget, index: str
) -> None:
    keys = range(1_500)

    def work(worker: int) -> None:
        chance = random.Random(worker)
        for turn in range(4):
            rows = [Node(key, f"{worker}", turn) for key in keys] + [Edge(key, worker, turn) for key in keys]
            chance.shuffle(rows)
            scope = f"{worker}/"
            put(target, index, *rows, epoch=1, attempt=f"{worker}-{turn}", scope=scope, instance=scope)
            if worker == 0:
                target.within(scope).sweep(index, "unknown", epoch=1, prefix="1/")

    before = deadlocks(server)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert deadlocks(server) == before
    put(target, index, *(Node(key, "last", 9) for key in keys), epoch=1, attempt="last")
    assert nodes(target, index) == dict.fromkeys(keys, "last")


def _while_committing(monkeypatch: pytest.MonkeyPatch, event: Callable[[], object]) -> None:
    """It happens when the rows of the next commit are written, and before it is decided that they may be."""
    take, waiting = Journal.take, [event]

    def late(self: Journal, scope: str, epoch: int) -> None:
        if waiting:
            waiting.pop()()
        take(self, scope, epoch)

    monkeypatch.setattr(Journal, "take", late)


@pytest.mark.parametrize("by", ["epoch", "fence of the slice"])
def test_a_fence_does_not_wait_for_the_work_of_a_commit_and_undoes_it(
    target: PostgresTarget, index: str, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    base = target.fence(index, 1)
    part = staged(target, index, base, Node(1, "zombie", 9), Edge(1, 1, 9))
    epoch, marks = (2, []) if by == "epoch" else (1, [Mark("s", 2, b"")])
    _while_committing(monkeypatch, lambda: target.fence(index, epoch, marks))
    with pytest.raises(Fenced):
        target.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[Mark("s", 1, b"zombie")])
    assert (nodes(target, index), edges(target, index)) == ({}, {})
    assert target.committed(index, base, ["s"]) == {}


def test_a_deletion_under_an_epoch_that_ends_is_undone(
    target: PostgresTarget, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(target, index, Node(1, "one", 1), Edge(1, 1, 1), epoch=1, attempt="1")
    _while_committing(monkeypatch, lambda: target.fence(index, 2))
    with pytest.raises(Fenced):
        target.delete_scope(index, "1/", epoch=1)
    assert (nodes(target, index), edges(target, index)) == ({1: "one"}, {1: 1})


def test_a_commit_that_finds_its_rows_gone_since_it_is_in_says_so(
    target: PostgresTarget, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer was lost, and it is sent again while the first one is still at work."""
    base = target.fence(index, 1)
    part = staged(target, index, base, Edge(1, 1, 1))

    def commit() -> int:
        return target.commit(index, base=base, epoch=1, attempt="1", staged=[part], marks=[])

    look, made = Journal.look, list[int]()

    def late(self: Journal, *values: object, **named: object) -> None:
        look(self, *values, **named)  # type: ignore[arg-type]  # as they came
        if not made:
            made.append(0)
            made.append(commit())

    monkeypatch.setattr(Journal, "look", late)
    assert commit() == made[1]
    assert edges(target, index) == {1: 1}


def test_of_two_tries_of_one_commit_at_once_one_counts(target: PostgresTarget, index: str) -> None:
    for number in range(5):
        base = target.fence(index, 1)
        parts = [staged(target, index, base, *(Edge(key, number, number) for key in range(200)))]
        start = threading.Barrier(3)

        def commit(start: threading.Barrier, base: int, number: int, parts: list[bytes]) -> int:
            start.wait()
            return target.commit(index, base=base, epoch=1, attempt=f"{number}", staged=parts, marks=[])

        with ThreadPoolExecutor(3) as pool:
            tries = [pool.submit(commit, start, base, number, parts) for _ in range(3)]
            assert {each.result() for each in tries} == {base + 1}
    assert edges(target, index) == dict.fromkeys(range(200), 4)
