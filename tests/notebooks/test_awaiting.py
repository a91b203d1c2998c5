"""Searches and runs can be awaited; a run that is cancelled stops as at Ctrl-C, and the next one resumes it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import instep
from instep.domain.jobs import JobState
from instep.errors import Interrupted, UserError
from instep.telemetry.progress import Silent
from tests.notebooks.notes import PROJECT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for number in range(40):
        (tmp_path / "docs" / f"{number}.md").write_text(f"# Note {number}\n\nThe zebra of {number}.\n")
    (tmp_path / "instep.yaml").write_text(PROJECT)
    return tmp_path


def test_an_event_loop_goes_on_while_a_run_and_searches_are_awaited(folder: Path) -> None:
    project = instep.load(folder)

    async def main() -> tuple[instep.Runs, list[instep.Hits], int]:
        turns, done = 0, asyncio.create_task(project.arun())
        while not done.done():
            turns += 1
            await asyncio.sleep(0.001)
        found = await asyncio.gather(*(project.asearch("zebra", limit=3) for _ in range(4)))
        return await done, found, turns

    runs, found, turns = asyncio.run(main())
    assert [each.state for each in runs] == [JobState.COMPLETED]
    assert [len(each) for each in found] == [3] * 4
    assert turns > 10


def test_errors_are_those_of_the_method(folder: Path) -> None:
    project = instep.load(folder)
    with pytest.raises(UserError, match="nothing is indexed yet"):
        asyncio.run(project.asearch("zebra"))
    with pytest.raises(UserError, match="Nothing"):
        asyncio.run(project.arun(["Nothing"]))


class Held(Silent):
    """Work begins when it is let go on."""

    def __init__(self) -> None:
        self.began, self.goes_on = threading.Event(), threading.Event()

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        self.began.set()
        assert self.goes_on.wait(60)


def test_a_cancelled_run_has_ended_when_its_cancellation_is_told_and_is_resumed_by_the_next(folder: Path) -> None:
    project, held = instep.load(folder), Held()

    async def main() -> None:
        run = asyncio.create_task(project.arun(progress=held))
        assert await asyncio.to_thread(held.began.wait, 60)
        run.cancel()
        await asyncio.sleep(0)
        assert not run.done(), "it is in work"
        held.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        [job] = project.jobs()
        assert job.state == JobState.STOPPED, "nothing of it is in work any more"
        assert "interrupted" in str(job.error)

    asyncio.run(main())
    [result] = project.run()
    assert (result.job_id, result.state) == (project.jobs()[0].id, JobState.COMPLETED)
    assert len(project.search("zebra", limit=100, group=True)) == 40


def test_a_run_that_another_thread_stops_says_how_to_go_on(folder: Path) -> None:
    held = Held()

    def stop() -> None:
        held.began.wait(60)
        stopping.set()
        held.goes_on.set()

    stopping = threading.Event()
    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Interrupted, match="Run again to resume"):
        instep.load(folder).run(progress=held, stopping=stopping)
