"""A backfill whose process is killed, in a range and between two: the next call goes on, and nothing is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from instep.domain.pending_queue import KeyRange
from instep.project.load import load_project
from instep.queues.backfill import Backfill, backfill
from instep.queues.engines.queue_engine import Ask, Backfilled, PendingStore
from instep.queues.key_ranges import Parts
from instep.queues.open import open_queue
from instep.system import SystemClock
from instep.telemetry.progress import Silent
from tests.cli.queue_tables import PENDING, Tables, chdb_tables, postgres_tables, sqlite_tables

#: Five of them are all there is.
RANGE = 200


def opened(folder: Path) -> PendingStore:
    return open_queue(load_project(folder / "instep.yaml"), "bills")


def filled(store: PendingStore) -> Backfill:
    return backfill(store, SystemClock(), Silent(), Parts(RANGE))


def die(when: threading.Event | None = None) -> None:
    if when is not None:
        when.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(folder: Path, where: str, ranges: int) -> None:
    """In a process of its own: `in` a range, or `behind` one, once so many are done."""
    store = opened(folder)
    fill, remember = store.backfill, store.remember
    done: list[str] = []

    def filling(keys: KeyRange) -> Backfilled:
        if where == "in" and len(done) > ranges:
            # The other thread has its turn when this one waits for the statement; at the latest, behind it.
            sys.setswitchinterval(60)
            entered = threading.Event()
            threading.Thread(target=die, args=[entered]).start()
            entered.set()
            fill(keys)
            threading.Event().wait()
        return fill(keys)

    def remembering(name: str, value: str) -> None:
        remember(name, value)
        done.append(value)
        if where == "behind" and len(done) > ranges:
            die()

    store.backfill, store.remember = filling, remembering  # type: ignore[method-assign]  # Of this one only.
    filled(store)


@pytest.mark.parametrize(
    "make",
    [
        chdb_tables,
        pytest.param(sqlite_tables, marks=pytest.mark.long),
        pytest.param(postgres_tables, marks=pytest.mark.long),
    ],
)
def test_a_backfill_that_is_killed_continues(
    make: Callable[[Path], Tables], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = make(tmp_path)
    tables.project(tmp_path)
    with closing(opened(tmp_path)) as store:
        store.create()
        for number, where in enumerate(("in", "behind"), start=2):
            command = [sys.executable, "-m", __name__, str(tmp_path), where, "2"]
            ended = subprocess.run(command, check=False, cwd=Path(__file__).parents[2], capture_output=True)
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            tables.run(f"INSERT INTO items VALUES ({1000 + number}, '2026-01-01 00:00:00')")
            tables.run(f"INSERT INTO also VALUES ({number * 100})")
        done = filled(store)
        # Two ranges by each: what was done twice is counted once.
        assert done.began_at == 4 * RANGE
        assert (done.filling.keys, done.filling.complete) == (1000, True)
        found = [each.key for each in store.read(Ask(100))]
        assert found == store.anti_join(Ask(100)) == [1003, 1002, *(key for key in PENDING if key not in (200, 300))]
        compared = store.compare(store.spec.keys)
        assert (compared.missing, compared.surplus) == ((), ())


if __name__ == "__main__":
    run_and_die(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
