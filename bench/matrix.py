"""How long the status of 36 entities in 100 namespaces takes (goal: under 50 ms): `python -m bench.matrix`.

Every key has the value that a run writes there. A look lists the keys from an open bus and makes the matrix of them, as
`instep status` does; opening the bus and Python's own start are not counted. Each answer must have every state. With
`--all`, on PostgreSQL and MariaDB too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from bench import report
from instep.answers.status import status_matrix
from instep.bus.bus import Bus
from instep.bus.open import open_bus
from instep.domain.refs import PartitionRef, Scope
from instep.domain.status import IndexState, status_key
from instep.ledger.open import open_ledger
from instep.system import SystemClock

ENTITIES, NAMESPACES, LOOKS, GOAL_MS = 36, 100, 21, 50

_names = [f"Entity{number}" for number in range(ENTITIES)]
#: What a run tells.
_VALUE = {
    "watermark": 1_700_000_000_000,
    "rows": 1_234_567,
    "job": "1f0c0000-aaaa-4000-8000-000000000001",
}


def measure(bus: Bus, *, namespaces: int = NAMESPACES, looks: int = LOOKS) -> list[float]:
    """Milliseconds of each look."""
    scopes = [Scope.parse(f"42/{number}") for number in range(namespaces)]
    for number, scope in enumerate(scopes):
        value = _VALUE | {"state": "Indexed" if number else "Indexing", "epoch": number}
        for name in _names:
            bus.status.put(status_key(PartitionRef(name, scope)), value)
    return [_look(bus, scopes) for _ in range(looks)]


def _look(bus: Bus, scopes: Sequence[Scope]) -> float:
    began = time.perf_counter()
    matrix = status_matrix(lambda: bus.status, _names, scopes, only=False)
    milliseconds = 1_000 * (time.perf_counter() - began)
    states = {each.namespace: set(each.entities.values()) for each in matrix.namespaces}
    wanted = {scope: {IndexState.INDEXED if place else IndexState.INDEXING} for place, scope in enumerate(scopes)}
    if states != wanted or matrix.state is not IndexState.INDEXING or matrix.notes:
        raise SystemExit("the matrix is wrong")
    return milliseconds


@contextmanager
def _in_ledger(url: str) -> Iterator[Bus]:
    clock = SystemClock()
    with closing(open_ledger(url, clock=clock)) as ledger, closing(open_bus(None, ledger)) as bus:
        yield bus


@contextmanager
def _on_sqlite() -> Iterator[Bus]:
    with tempfile.TemporaryDirectory() as folder, _in_ledger(f"sqlite:///{Path(folder)}/ledger.db") as bus:
        yield bus


@contextmanager
def _on_postgres() -> Iterator[Bus]:
    from tests.servers.postgres import running_postgres

    running_postgres().execute("CREATE DATABASE matrix")
    with _in_ledger(running_postgres().url("matrix")) as bus:
        yield bus


@contextmanager
def _on_mariadb() -> Iterator[Bus]:
    from tests.servers.mariadb import running_mariadb

    running_mariadb().execute("CREATE DATABASE matrix")
    with _in_ledger(running_mariadb().url("matrix")) as bus:
        yield bus


@contextmanager
def _on_nats() -> Iterator[Bus]:
    from tests.servers.nats import running_nats

    from instep.bus.nats.nats_bus import open_nats
    from instep.servers.address import nats_address

    with closing(open_nats(nats_address(running_nats().url("matrix")))) as bus:
        yield bus


PLACES: dict[str, Callable[[], AbstractContextManager[Bus]]] = {"SQLite": _on_sqlite, "NATS": _on_nats}
SERVERS: dict[str, Callable[[], AbstractContextManager[Bus]]] = {"PostgreSQL": _on_postgres, "MariaDB": _on_mariadb}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments)
    found = []
    for name, place in (PLACES | SERVERS if options.all else PLACES).items():
        with place() as bus:
            times = measure(bus)
        median = statistics.median(times)
        verdict = "met" if median < GOAL_MS else "MISSED"
        found.append(
            [f"{name}, ms", f"under {GOAL_MS}", f"{median:.0f}", verdict, f"{min(times):.0f} to {max(times):.0f}"]
        )
    report.show(f"{ENTITIES} entities, {NAMESPACES} namespaces", ["bus", "goal", "reached", "", "all"], found)
    if any("MISSED" in row for row in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
