"""Killed, stopped, or two at once: the next run finishes the work, and the index is exact."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from instep.domain.jobs import JobState
from instep.errors import UserError

from . import corpus
from .conftest import Place

#: Small waves, so that there is something between two commits to be killed in.
RUN = "import instep.service.setup as setup; setup.MOST_CLAIMS = 2; import instep; instep.load('.').run()"


def start(place: Place, code: str = RUN) -> subprocess.Popen[bytes]:
    with (place.root / "run.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-c", code], cwd=place.root, stdout=log, stderr=log)


@pytest.fixture
def large(tmp_path: Path) -> Place:
    """Documents enough for dozens of small waves."""
    made = Place(tmp_path / "project", tmp_path / "docs")
    corpus.write(made.docs, range(1500))
    made.declare(entity="slice_rows: 1000\nbuckets: 32")
    return made


def slices(place: Place) -> dict[str, tuple[str, int, int | None]]:
    """State, fence and end of every slice, read from the ledger's file."""
    with sqlite3.connect(place.root / ".instep" / "ledger.db") as connection:
        rows = connection.execute("SELECT id, state, fence, finished_at FROM slices").fetchall()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def wait_for_completed_slice(place: Place, process: subprocess.Popen[bytes], *, at_least: int = 1) -> None:
    ledger = place.root / ".instep" / "ledger.db"
    while process.poll() is None:
        try:
            if ledger.exists() and sum(1 for s, _, _ in slices(place).values() if s == "COMPLETED") >= at_least:
                return
        except sqlite3.OperationalError:
            pass  # The schema is being made.
        time.sleep(0.01)
    said = (place.root / "run.log").read_text()
    raise AssertionError(f"the run ended before it could be interrupted: {said}")


@pytest.mark.slow
def test_killed_many_times_in_a_row_at_random_points_nothing_is_missing_stale_or_double(large: Place) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    killed = 0
    for round_ in range(8):
        process = start(large)
        try:
            process.wait(rng.uniform(0.2, 2.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        # The source moves on meanwhile.
        for number in rng.sample(range(1500), 5):
            path = corpus.path(large.docs, number)
            if path.exists():
                path.write_text(corpus.text(number, seed=round_ + 1))
        corpus.path(large.docs, 1400 + round_).unlink(missing_ok=True)
    assert killed >= 2
    large.run()
    assert large.run().state is None
    assert large.open().failures() == []
    assert large.wrong() == ""


def test_finished_slices_are_not_redone_after_a_kill(large: Place) -> None:
    process = start(large)
    wait_for_completed_slice(large, process, at_least=4)
    process.kill()
    process.wait()
    before = {key: value for key, value in slices(large).items() if value[0] == "COMPLETED"}
    result = large.run()
    assert result.state is JobState.COMPLETED
    after = slices(large)
    assert len(before) < len(after)
    assert {key: after[key] for key in before} == before
    assert large.wrong() == ""


def test_ctrl_c_stops_the_job_and_the_next_run_resumes_it(large: Place) -> None:
    process = start(large)
    wait_for_completed_slice(large, process)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert process.returncode != 0
    (status,) = large.open().status()
    assert status.job is not None
    assert status.job.state is JobState.STOPPED
    (plan,) = large.open().plan()
    assert plan.resumes is not None
    result = large.run()
    assert result.job_id == status.job.id
    assert result.state is JobState.COMPLETED
    assert large.wrong() == ""


def test_the_second_of_two_runs_joins_the_first_and_both_report_the_whole_job(large: Place) -> None:
    first = start(large)
    wait_for_completed_slice(large, first)
    second = large.run(wait=0)
    assert first.wait(60) == 0
    assert second.state is JobState.COMPLETED
    assert second.counts.read == second.counts.written == 1500
    assert len(large.open().jobs()) == 1
    assert large.wrong() == ""


def test_a_run_that_cannot_join_says_who_holds_the_entity_or_waits(large: Place) -> None:
    first = start(large)
    wait_for_completed_slice(large, first)
    with pytest.raises(UserError, match=f"process {first.pid}"):
        large.run(wait=0, full_refresh=True)
    second = large.run(wait=60, full_refresh=True)
    assert first.wait(60) == 0
    assert second.state is JobState.COMPLETED
    assert len(large.open().jobs()) == 2
    assert large.wrong() == ""


def test_a_changed_transform_gives_up_the_interrupted_job_and_starts_anew(large: Place) -> None:
    process = start(large)
    wait_for_completed_slice(large, process)
    process.kill()
    process.wait()
    large.declare(chunk=500, entity="slice_rows: 1000\nbuckets: 32")
    result = large.run()
    assert result.state is JobState.COMPLETED
    assert large.wrong() == ""
