"""Runs of tables as processes: killed, stopped, or two at once; the next one finishes the work."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

import instep
from instep.container import Container
from instep.domain.jobs import JobState
from instep.entities.plan_request import PlanOptions
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.ledger.jobs import Jobs
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.sources.tables.sessions import session

from .shop import Shop

#: Small waves, so that there is something between two commits to be killed in. One stands still before its second
#: commit for as long as it is held.
RUN = """
import sys, time
from pathlib import Path
from instep.entities.tables import cutting
from instep.entities.tables.setup import TableSetup
TableSetup.most_claims = 2
cutting._SLICES_OF_A_WINDOW = 1
from instep.targets.lance.tables import LanceTableTarget
waves, commit = 0, LanceTableTarget.commit
def held(*args, **kwargs):
    global waves
    waves += 1
    while waves > 1 and Path("hold").exists():
        time.sleep(0.01)
    return commit(*args, **kwargs)
LanceTableTarget.commit = held
from instep.__main__ import main
sys.argv = ["instep", "run", *sys.argv[1:]]
sys.exit(main())
"""
TIMEOUT_SECONDS = 240.0
QUICKLY = "-XX:TieredStopAtLevel=1"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Rows that have changed in the past of the real clock."""
    made = Shop(tmp_path / "shop", "type: lance, uri: index", clock=VirtualClock(1_700_000_000_000))
    made.declare()
    made.edit("slices: 3", "slices: 12")
    made.fill(people=10, tickets=12_000)
    project = made.root / "instep.yaml"  # Its scans are so short that compiling them well takes longer.
    project.write_text(f"{project.read_text()}spark: {{config: {{spark.driver.defaultJavaOptions: {QUICKLY}}}}}\n")
    return made


def start_held(shop: Shop, *names: str) -> subprocess.Popen[bytes]:
    """It does one wave, and another one is in work until it is killed, or until `release`."""
    (shop.root / "hold").touch()
    with (shop.root / "run.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-c", RUN, *names], cwd=shop.root, stdout=log, stderr=log)


def release(shop: Shop) -> None:
    (shop.root / "hold").unlink(missing_ok=True)


def run(shop: Shop, *names: str) -> dict[str, EntityResult]:
    container = Container(instep.load(shop.root).project, spark=session())
    with closing(container), closing(container.ledger()) as ledger:
        context = container.context(ledger, Silent())
        found = run_entities(container.setups(names), context, PlanOptions(), wait_seconds=TIMEOUT_SECONDS)
    return {each.plan.ref.label: each for each in found}


def slices(shop: Shop) -> dict[str, tuple[str, int, int | None]]:
    """State, fence and end of every slice, read from the ledger's file."""
    with closing(sqlite3.connect(shop.root / ".instep" / "ledger.db")) as connection:
        rows = connection.execute("SELECT id, state, fence, finished_at FROM slices").fetchall()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def wait_for_mid_wave(shop: Shop, process: subprocess.Popen[bytes], *, after: int = 0) -> None:
    """Until more slices are done than there were, and others are in work."""
    ledger = shop.root / ".instep" / "ledger.db"
    while process.poll() is None:
        try:
            states = [state for state, _, _ in slices(shop).values()] if ledger.exists() else []
        except sqlite3.OperationalError:
            states = []  # The schema is being made.
        if states.count("COMPLETED") > after and {"PROCESSING", "PENDING"} <= set(states):
            return
        time.sleep(0.02)
    raise AssertionError(f"the run ended before it could be interrupted: {(shop.root / 'run.log').read_text()}")


def done(shop: Shop) -> dict[str, tuple[str, int, int | None]]:
    return {key: value for key, value in slices(shop).items() if value[0] == "COMPLETED"}


@pytest.mark.proof
@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.long)], ids=["killed", "then stopped"])
def test_runs_that_are_killed_or_stopped_in_a_wave_are_resumed_and_nothing_that_was_done_is_done_again(
    shop: Shop, stopped: bool
) -> None:
    process = start_held(shop, "Ticket@1/2")
    wait_for_mid_wave(shop, process)
    process.kill()
    process.wait()
    before_the_kill = done(shop)
    before_the_stop = before_the_kill
    if stopped:
        process = start_held(shop, "Ticket@1/2")
        wait_for_mid_wave(shop, process, after=len(before_the_kill))
        process.send_signal(signal.SIGINT)
        release(shop)
        assert process.wait(TIMEOUT_SECONDS) == 130
        before_the_stop = done(shop)
    result = run(shop, "Ticket")["Ticket@1/2"]
    assert result.state is JobState.COMPLETED
    after = slices(shop)
    for before in (before_the_kill, before_the_stop):
        assert before
        assert {key: after[key] for key in before} == before
    assert shop.wrong("Ticket") == {}
    assert {each.state for each in run(shop, "Ticket").values()} == {None}


@pytest.mark.long
def test_a_window_that_is_killed_in_a_wave_is_resumed_with_the_rest_of_it(shop: Shop) -> None:
    shop.edit("slices: 12", "slices: 12\n    slice_rows: 1000")
    run(shop, "Ticket")
    floor, built = shop.checkpoint("Ticket@1/2"), done(shop)
    changed = datetime.now(UTC)  # Runs go by the real clock.
    for number in range(12_000):
        shop.put("tickets", id=number, title="changed", gone=number % 100 == 1, at=changed)
    shop.save()
    process = start_held(shop, "Ticket@1/2")
    wait_for_mid_wave(shop, process, after=len(built))
    process.kill()
    process.wait()
    before = done(shop)
    assert shop.checkpoint("Ticket@1/2") == floor
    result = run(shop, "Ticket@1/2")["Ticket@1/2"]
    assert result.state is JobState.COMPLETED
    after = slices(shop)
    assert len(before) > len(built)
    assert {key: after[key] for key in before} == before
    run(shop, "Ticket")
    assert shop.wrong("Ticket") == {}


@pytest.mark.long
def test_two_runs_at_once_share_a_namespace_and_do_the_others_beside_each_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = Jobs.join

    def joined(self: Jobs, job_id: str, worker_id: str) -> None:
        join(self, job_id, worker_id)
        release(shop)

    process = start_held(shop, "Ticket@1/2")
    wait_for_mid_wave(shop, process)
    monkeypatch.setattr(Jobs, "join", joined)
    results = run(shop, "Ticket")
    assert process.wait(TIMEOUT_SECONDS) == 0, (shop.root / "run.log").read_text()
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    assert all(each.counts.balanced for each in results.values())
    with closing(shop.container().ledger()) as ledger:
        assert len(ledger.jobs.newest()) == 2  # one was joined
    assert shop.wrong("Ticket") == {}
