"""Killed, stopped, or two at once: the next run finishes the work, and the index is exact."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from instep.domain.jobs import JobState
from instep.entities.documents.setup import DocumentSetup
from instep.errors import UserError
from instep.ledger.jobs import Jobs
from instep.targets.lance import LanceTarget

from . import corpus
from .conftest import Location

#: Small waves, so that there is something between two commits to be killed in.
RUN = "import instep.entities.setup as setup; setup.MOST_CLAIMS = 2; import instep; instep.load('.').run()"


#: The same, which stands still before it commits the wave of this number, until it may go on.
HELD = """
import sys, time
from pathlib import Path
import instep
import instep.entities.setup as setup
from instep.targets.lance import LanceTarget

setup.MOST_CLAIMS = 2
waves, commit = int(sys.argv[1]), LanceTarget.commit

def held(*args, **kwargs):
    global waves
    waves -= 1
    while waves < 0 and Path("hold").exists():
        time.sleep(0.01)
    return commit(*args, **kwargs)

LanceTarget.commit = held
instep.load(".").run()
"""
#: Nothing waits this long unless it is broken.
TIMEOUT_SECONDS = 240.0


def start(place: Location, code: str = RUN, *arguments: str) -> subprocess.Popen[bytes]:
    with (place.root / "run.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=place.root, stdout=log, stderr=log)


def start_held(place: Location, waves: int = 1) -> subprocess.Popen[bytes]:
    """So many waves are done, and another is in work, until `release`."""
    (place.root / "hold").touch()
    process = start(place, HELD, str(waves))
    wait_for_completed_slices(place, process, 2 * waves)
    return process


def release(place: Location) -> None:
    (place.root / "hold").unlink(missing_ok=True)


#: Of each bucket some, and so a dozen of small waves.
DOCUMENTS = 300


@pytest.fixture
def large(tmp_path: Path) -> Location:
    made = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(made.docs, range(DOCUMENTS))
    made.declare(entity="slice_rows: 1000\nbuckets: 32")
    return made


def slices(place: Location) -> dict[str, tuple[str, int, int | None]]:
    """State, fence and end of every slice, read from the ledger's file."""
    with closing(sqlite3.connect(place.root / ".instep" / "ledger.db")) as connection:
        rows = connection.execute("SELECT id, state, fence, finished_at FROM slices").fetchall()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def wait_for_completed_slices(place: Location, process: subprocess.Popen[bytes], number: int) -> None:
    ledger = place.root / ".instep" / "ledger.db"
    while process.poll() is None:
        try:
            if ledger.exists() and sum(1 for s, _, _ in slices(place).values() if s == "COMPLETED") >= number:
                return
        except sqlite3.OperationalError:
            pass  # The schema is being made.
        time.sleep(0.01)
    said = (place.root / "run.log").read_text()
    raise AssertionError(f"the run ended before it could be interrupted: {said}")


@pytest.mark.long
def test_killed_many_times_in_a_row_at_random_points_nothing_is_missing_stale_or_double(large: Location) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    killed = 0
    corpus.write(large.docs, range(DOCUMENTS, 1500))
    for round_ in range(8):
        process = start(large)
        try:
            process.wait(rng.uniform(0.2, 2.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        # The source changes in between.
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


def test_finished_slices_are_not_redone_after_a_kill(large: Location) -> None:
    process = start_held(large, waves=2)
    process.kill()
    process.wait()
    before = {key: value for key, value in slices(large).items() if value[0] == "COMPLETED"}
    result = large.run()
    assert result.state is JobState.COMPLETED
    after = slices(large)
    assert len(before) < len(after)
    assert {key: after[key] for key in before} == before
    # Nor is what the killed run had done counted twice.
    assert result.counts.written == DOCUMENTS
    assert result.unchanged == 0
    assert large.wrong() == ""


def test_ctrl_c_stops_the_job_and_the_next_run_resumes_it(large: Location) -> None:
    process = start_held(large)
    process.send_signal(signal.SIGINT)
    release(large)
    process.wait(TIMEOUT_SECONDS)
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


def test_status_has_the_reason_why_the_job_was_not_resumed(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def refused(*_: object) -> None:
        raise UserError("the embedder refuses the key")

    with monkeypatch.context() as patch:
        patch.setattr(LanceTarget, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            place.run()
    with monkeypatch.context() as patch:
        patch.setattr(DocumentSetup, "rehearse", refused)
        with pytest.raises(UserError, match="refuses the key"):
            place.run()
    (status,) = place.open().status()
    assert status.job is not None
    assert (status.job.state, status.job.error) == (JobState.STOPPED, "the embedder refuses the key")
    assert place.run().state is JobState.COMPLETED
    assert place.wrong() == ""


@pytest.mark.proof
def test_the_second_of_two_runs_joins_the_first_and_both_report_the_whole_job(
    large: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = Jobs.join

    def joined(self: Jobs, job_id: str, worker_id: str) -> None:
        join(self, job_id, worker_id)
        release(large)

    first = start_held(large)
    monkeypatch.setattr(Jobs, "join", joined)
    second = large.run(wait=0)
    assert first.wait(TIMEOUT_SECONDS) == 0
    assert second.state is JobState.COMPLETED
    assert second.counts.read == second.counts.written == DOCUMENTS
    assert len(large.open().jobs()) == 1
    assert large.wrong() == ""


@pytest.mark.proof
def test_a_run_that_cannot_join_names_the_holder_or_waits(large: Location) -> None:
    first = start_held(large)
    with pytest.raises(UserError, match=f"process {first.pid}"):
        large.run(wait=0, full_refresh=True)
    release(large)
    second = large.run(wait=TIMEOUT_SECONDS, full_refresh=True)
    assert first.wait(TIMEOUT_SECONDS) == 0
    assert second.state is JobState.COMPLETED
    assert len(large.open().jobs()) == 2
    assert large.wrong() == ""


@pytest.mark.proof
def test_a_changed_transform_gives_up_the_interrupted_job_and_starts_again(large: Location) -> None:
    process = start_held(large)
    process.kill()
    process.wait()
    large.declare(chunk=500, entity="slice_rows: 1000\nbuckets: 32")
    result = large.run()
    assert result.state is JobState.COMPLETED
    assert large.wrong() == ""
