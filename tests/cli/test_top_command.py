"""`instep top`: what it shows, what it reads again, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

import instep
from instep.answers.overview import Overview, overview
from instep.cli import main
from instep.cli.top_view import screen
from instep.domain.jobs import Job, JobState
from instep.domain.refs import PartitionRef
from instep.ledger.failures import FailureRecord, Failures
from instep.ledger.jobs import Jobs
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.system import SystemClock
from tests.cli import ledgers
from tests.cli.ledgers import ANN, BOB, JOB
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.e2e import corpus

OTHER = "2f0c9999-bbbb-4000-8000-000000000002"
TIMEOUT_SECONDS = 60.0


class CountingLedger(MemoryLedger):
    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(self.clock)
        self.asked: Counter[str] = Counter()
        asked, database = self.asked, self.database

        class CountingJobs(Jobs):
            def get(self, job_id: str) -> Job | None:
                asked[job_id] += 1
                return super().get(job_id)

        class CountingFailures(Failures):
            def newest(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
                asked["failures"] += 1
                return super().newest(ref, limit=limit)

        self.jobs, self.failures = CountingJobs(database), CountingFailures(database)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and the current folder in it."""
    corpus.write(tmp_path / "docs", range(3))
    corpus.project(tmp_path, tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(seen: Overview, *, trouble: str | None = None) -> list[str]:
    """The lines, on a terminal of 80 columns."""
    console = Console(width=80, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(screen("shop", seen, trouble=trouble))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_top_shows_jobs_workers_and_failures_in_80_columns() -> None:
    ledger = CountingLedger()
    (part,) = ledgers.begin(ledger, slices=400)
    ledgers.register(ledger, BOB, host="a-host-with-quite-a-long-name.example.org")
    ledgers.complete(ledger, part, 120, failed=1)
    ledger.clock.sleep(61)
    lines = shown(overview(ledger), trouble="The ledger cannot be read: \x1b[2J")
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "1 job under way, 2 workers" in lines[0]
    assert lines[1] == r"The ledger cannot be read: \x1b[2J"
    (job,) = [line.split() for line in lines if line.startswith("1f0c0000")]
    assert job[:3] == ["1f0c0000", "running", "Document"]
    assert job[-7:] == ["30%", "9.8/s", "2", "min", "22", "s", "120"]
    assert "bbbb2222  a-host-with-quite-a-long-name.exampl…  1 min ago  idle" in text
    assert text.count("no text in it") == 5


def test_many_workers_leave_room_for_the_rest() -> None:
    ledger = CountingLedger()
    assert shown(overview(ledger))[-1] == "No jobs: nothing has run yet."
    for number in range(40):
        ledgers.register(ledger, f"worker-{number}")
    assert shown(overview(ledger))[-1] == "and 28 more, see `instep workers`"


def test_ended_jobs_are_not_read_again() -> None:
    ledger = CountingLedger()
    (part,) = ledgers.begin(ledger, slices=2)
    ledgers.begin(ledger, job_id=OTHER, entities=["Ticket"])
    ledgers.stop(ledger, OTHER)
    first = overview(ledger)
    ledger.clock.sleep(3)
    ledgers.complete(ledger, part, 1)
    second = overview(ledger, first)
    assert ledger.asked == {JOB: 2, OTHER: 1, "failures": 1}
    assert [job.done for job in second.jobs] == [0, 5]
    assert {job.seen_at for job in second.jobs} == {ledger.now()}
    ledger.jobs.start(OTHER)
    ledgers.complete(ledger, part, 1, failed=1)
    third = overview(ledger, second)
    assert ledger.asked == {JOB: 3, OTHER: 2, "failures": 2}
    assert [job.state for job in third.jobs] == [JobState.RUNNING, JobState.RUNNING]
    assert len(third.failures) == 1


def test_top_without_a_terminal_prints_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(_ledger(folder)) as ledger:
        ledgers.begin(ledger)
        ledgers.stop(ledger)
    assert main(["top"]) == 0
    assert "stopped" in capsys.readouterr().out
    assert main(["top", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [job["state"] for job in said["jobs"]] == ["STOPPED"]
    assert ([each["id"] for each in said["workers"]], said["failures"]) == ([ANN], [])


def test_on_a_terminal_it_continues_until_ctrl_c(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "instep", "top"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        try:
            said = _read_until(ours, "nothing has run yet")
            assert "\x1b[?1049h" in said, "the screen is borrowed"
            with closing(_ledger(folder)) as ledger:
                ledgers.register(ledger, ANN)
                ledger.jobs.begin(JOB, ANN, {})
            _read_until(ours, "initializing")
            process.send_signal(signal.SIGINT)
            assert "\x1b[?1049l" in _read_until(ours, "\x1b[?1049l"), "and given back"
            assert process.wait(TIMEOUT_SECONDS) == 0
        finally:
            process.kill()
            os.close(ours)


def _ledger(folder: Path) -> Ledger:
    return open_ledger(instep.load(folder).project.ledger_url, clock=SystemClock())


def _read_until(terminal: int, wanted: str) -> str:
    said, deadline = b"", time.monotonic() + TIMEOUT_SECONDS
    while wanted.encode() not in said:
        assert time.monotonic() < deadline, said
        said += os.read(terminal, 65_536)  # Which may end within a character.
    return said.decode(errors="replace")
