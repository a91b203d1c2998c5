"""The worker that a server starts: one at a time, and none is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from instep.api.worker_process import OwnWorker
from tests.waiting import until

#: Writes what it was called with into a folder, and stays until it may go.
PROGRAM = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
token = "seen" if "INSTEP_TOKEN" in os.environ else "hidden"
(folder / "begun.tmp").write_text(" ".join([str(os.getpid()), token, *sys.argv[2:]]))
(folder / "begun.tmp").rename(folder / f"begun-{os.getpid()}")
while not (folder / "go").exists():
    time.sleep(0.01)
sys.exit(int((folder / "go").read_text() or 0))
"""


def begun(folder: Path) -> list[str]:
    return [each.read_text() for each in sorted(folder.glob("begun-*"), key=lambda each: each.stat().st_mtime_ns)]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def worker(tmp_path: Path) -> OwnWorker:
    return OwnWorker([sys.executable, "-c", PROGRAM, str(tmp_path)])


def test_one_worker_at_a_time_and_another_for_later_requests(
    worker: OwnWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INSTEP_TOKEN", "a-token-of-the-server")
    assert worker.start(["B", "A"], threads=3)
    until(lambda: len(begun(tmp_path)) == 1)
    assert worker.start(["C"], threads=None)
    assert worker.start(["D"], threads=2)
    assert len(begun(tmp_path)) == 1
    (tmp_path / "go").write_text("7")
    until(lambda: len(begun(tmp_path)) == 2)
    first, second = (each.partition(" ")[2] for each in begun(tmp_path))
    assert first == "hidden --until-idle --threads 3 -- A B"
    assert second == "hidden --until-idle --threads 2 -- C D"
    until(lambda: "the worker of this server ended with exit code 7" in caplog.text)


def test_the_worker_ends_with_the_server(worker: OwnWorker, tmp_path: Path) -> None:
    async def serve() -> int:
        async with worker.running():
            worker.start(["A"], threads=None)
            worker.start(["B"], threads=None)
            await asyncio.to_thread(until, lambda: bool(begun(tmp_path)))
            return int(begun(tmp_path)[0].split()[0])

    pid = asyncio.run(serve())
    assert not lives(pid)
    assert not worker.start(["C"], threads=None)
    assert len(begun(tmp_path)) == 1


def test_without_a_command_there_is_none() -> None:
    assert not OwnWorker(None).start(["A"], threads=None)
