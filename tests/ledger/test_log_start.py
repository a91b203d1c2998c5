"""Forgetting events of a log in a database: a process that dies in the middle of it, what is torn, and what is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select, update

from instep.domain.events import WantCreated
from instep.errors import UserError
from instep.ledger import log_start as starting
from instep.ledger import snapshots as snapshotting
from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up
from instep.ledger.tables import events, log_start, snapshots
from tests.contracts.ledger import REF, VirtualClock
from tests.contracts.ledger.building import imported
from tests.contracts.ledger.forgotten_events import forget_all, wants

_LATER = 10**13


def _opened(path: Path) -> tuple[Ledger, Engine]:
    engine = sqlite_engine(path)
    bring_up(engine, "here")
    return Ledger(engine, SqliteDialect(VirtualClock(), "here")), engine


def _die_before_write(path: Path, number: int) -> None:
    """Forget events, and die before the statement that writes of that number, or before the commit that comes next."""
    ledger, engine = _opened(path)
    written = 0

    def count(*_: object) -> None:
        nonlocal written
        written += 1
        if written == number:
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(engine, "before_cursor_execute")
    def before(_: object, __: object, statement: str, *___: object) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            count()

    event.listen(engine, "commit", count)
    forget_all(ledger, _LATER)


@pytest.mark.proof
def test_a_process_that_dies_before_any_write_of_forgetting_leaves_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger, engine = _opened(path)
    imported(ledger)
    ledger.events.append(wants(0))
    state, deaths, left = ledger.events.state(), 0, []
    code = f"import pathlib, sys; from {__name__} import _die_before_write as die; die(pathlib.Path(sys.argv[1]), {{}})"
    half = 0
    for number in range(1, 100):
        died = subprocess.run([sys.executable, "-c", code.format(number), path], capture_output=True, check=False)
        assert ledger.events.state() == state, number
        verified = ledger.events.verify()
        assert (verified.differences, verified.skipped) == ((), {}), number
        with engine.connect() as connection:
            left.append(connection.scalar(select(func.count()).select_from(events)))
            started = connection.scalar(select(func.count()).select_from(log_start))
        if started and left[-1]:
            half += 1
            assert ledger.events.forgettable(0) == left[-1], (
                "a later one finishes it, though nothing else is to be done"
            )
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stderr.decode()
        deaths += 1
    assert deaths >= 4
    assert half
    assert (left[0], left[-1]) == (512, 0)
    [next_one] = ledger.events.append([WantCreated(want="next", refs=(str(REF),))])
    assert next_one.sequence == state.sequence + 1
    ledger.close()


@pytest.fixture
def opened(tmp_path: Path) -> tuple[Ledger, Engine]:
    return _opened(tmp_path / "ledger.db")


def test_a_start_that_cannot_be_read_is_said_and_no_empty_ledger(opened: tuple[Ledger, Engine]) -> None:
    ledger, engine = opened
    ledger.events.append(wants(0))
    forget_all(ledger, _LATER)
    with engine.execution_options(write=True).begin() as connection:
        connection.execute(update(log_start).values(body=b"torn"))
    for read in (ledger.events.state, ledger.events.verify, ledger.events.rebuild_projections):
        with pytest.raises(UserError, match="start of the ledger's log, after event 511") as refused:
            read()
        assert "backup" in str(refused.value.hint)


def test_snapshots_before_the_start_go_and_one_after_it_is_read(
    opened: tuple[Ledger, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, engine = opened
    monkeypatch.setattr(snapshotting, "EVERY", 100)
    monkeypatch.setattr(starting, "_PIECE", 1_000)
    for number in range(2):
        ledger.events.append(wants(1_000 * number))
        expected = ledger.events.state()
        forget_all(ledger, _LATER)
        with engine.connect() as connection:
            assert connection.scalars(select(snapshots.c.sequence)).all() == []
            assert connection.scalars(select(log_start.c.piece)).all()[1:], "in pieces"
        ledger.events.append(wants(1_000 * number + 500, 60))
        with engine.connect() as connection:
            assert connection.scalars(select(snapshots.c.sequence)).all()
        assert ledger.events.state(sequence=expected.sequence) == expected
        assert len(ledger.events.state().wants) == len(expected.wants) + 60


def test_events_are_folded_into_a_start_a_bounded_number_at_a_time(
    opened: tuple[Ledger, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = opened
    monkeypatch.setattr(starting, "FEW", 10)
    monkeypatch.setattr(starting, "MOST", 50)
    ledger.events.append(wants(0, 60))
    state = ledger.events.state()
    assert ledger.events.forgettable(_LATER) == 100, "the rest of 19 is less than is kept of them"
    found = []
    while some := ledger.events.forget(_LATER, limit=30):
        found.append(some)
        assert ledger.events.state() == state
        assert ledger.events.verify().differences == ()
    assert (sum(found), max(found)) == (100, 30)


def test_forgetting_reads_no_more_of_a_log_than_it_forgets(opened: tuple[Ledger, Engine]) -> None:
    ledger, engine = opened
    ledger.events.append(wants(0))
    forget_all(ledger, _LATER)
    ledger.events.append(wants(1_000, 20))
    said: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def record(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        said.append((statement, values))

    assert ledger.events.forget(_LATER) == 0
    with engine.connect() as connection:
        steps = [
            row.detail
            for statement, values in list(said)
            if statement.startswith("SELECT")
            for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, values).all()
        ]
    assert steps
    assert not any("SCAN events" in each or "B-TREE" in each for each in steps), steps
