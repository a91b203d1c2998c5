"""The simulator itself: a seed decides everything, and the dead, the paused and the interrupted behave as such."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from .scheduler import Crash, Process, Scheduler, Stuck, Turns
from .simulation import Chance


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(Chance(Random(1), 0.0))


def started(scheduler: Scheduler, program: object, name: str = "p") -> Process:
    process = Process(name, "here", scheduler)
    process.start(lambda: program(process))  # type: ignore[operator]  # a function of the process
    return process


def test_time_advances_when_all_sleep(scheduler: Scheduler) -> None:
    seen: list[tuple[str, float]] = []

    def sleeper(process: Process) -> None:
        for _ in range(2):
            process.sleep(1_000 if process.name == "a" else 1_500)
            seen.append((process.name, scheduler.now))

    both = [started(scheduler, sleeper, name) for name in "ab"]
    scheduler.run(lambda: all(each.over for each in both))
    assert seen == [("a", 1_000), ("b", 1_500), ("a", 2_000), ("b", 3_000)]


def test_a_killed_process_does_nothing_more(scheduler: Scheduler) -> None:
    seen: list[str] = []

    def victim(process: Process) -> None:
        try:
            while True:
                process.step()
                seen.append("step")
        except Crash:
            seen.append("crash")
            with pytest.raises(Crash):
                process.step()
            raise

    process = started(scheduler, victim)
    scheduler.run(lambda: len(seen) >= 3)
    process.kill()
    with pytest.raises(Stuck):
        scheduler.run(lambda: False)
    assert process.over
    assert seen[-1] == "crash"
    assert seen.count("step") == 3


def test_a_paused_process_stands_still_and_its_background_too(scheduler: Scheduler) -> None:
    beats: list[float] = []

    def beating(process: Process) -> None:
        def beat() -> bool:
            beats.append(scheduler.now)
            return True

        stop = Turns(process).every(10, beat, "beat")
        process.sleep(100_000)
        stop()

    process = started(scheduler, beating)
    scheduler.run(lambda: len(beats) == 3)
    process.paused_until = 60_000.0
    scheduler.run(lambda: process.over)
    assert beats[:4] == [10_000, 20_000, 30_000, 60_000]


def test_an_interrupt_reaches_the_main_program_once(scheduler: Scheduler) -> None:
    seen: list[str] = []

    def program(process: Process) -> None:
        try:
            process.sleep(1_000_000)
        except KeyboardInterrupt:
            process.sleep(5)
            seen.append("cleared up")

    process = started(scheduler, program)
    other = started(scheduler, lambda process: process.sleep(10), "other")
    scheduler.run(lambda: other.over)
    process.interrupt()
    scheduler.run(lambda: process.over)
    assert seen == ["cleared up"]
    assert scheduler.now == 15


def test_an_endless_schedule_is_noticed(scheduler: Scheduler) -> None:
    def forever(process: Process) -> None:
        while True:
            process.sleep(1_000)

    started(scheduler, forever)
    with pytest.raises(Stuck):
        scheduler.run(lambda: False, deadline=60_000)
    scheduler.close()


@pytest.mark.proof
def test_a_seed_gives_the_same_schedule_in_every_process() -> None:
    """Whatever order sets of strings have there."""
    code = (
        "import hashlib; from tests.simulator.simulation import play;"
        "print(hashlib.sha256(repr([play(seed) for seed in range(12)]).encode()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": number},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for number in "12"
    }
    assert len(told) == 1
