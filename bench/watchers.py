"""What watching a large job costs the server: `python -m bench.watchers`.

`instep serve` on a job of 50,000 slices of which another process completes some hundred a second, on SQLite, where the
server pays for what it asks of the ledger. 100 WebSocket clients listen for half a minute. What counts is the server's
own processor time, and how old what a client has is when it gets the next: from the reading of the ledger until then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import psutil
from websockets.asyncio.client import connect

from bench import report
from bench.queues import REF, fill_ledger
from bench.run import say
from instep.domain.counts import Counts
from instep.domain.jobs import JobPart
from instep.domain.waves import SliceOutcome
from instep.ledger.open import open_ledger
from instep.system import SystemClock

SLICES, CLIENTS, SECONDS = 50_000, 100, 30.0
GOAL_CPU, GOAL_AGE = 0.20, 2.5

_JOB: Final = "job"
#: Slices of a completion, and seconds from one to the next: 500 slices a second.
_WAVE, _PAUSE = 50, 0.1
_PROJECT = """name: bench
targets: {index: {type: lance, uri: .instep/index}}
entities: {Document: {source: {type: files, path: docs}, embed: {type: hashing}}}
"""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one client heard: how many messages, and how old each had become when the next came."""

    messages: int
    ages: Sequence[float]


@dataclass(frozen=True, slots=True)
class Watched:
    """`idle` and `busy` are the server's processor time over the wall time, without and with clients."""

    idle: float
    busy: float
    heard: Sequence[Heard]


def watch(folder: Path, *, slices: int, clients: int, seconds: float) -> Watched:
    (folder / "docs").mkdir()
    (folder / "instep.yaml").write_text(_PROJECT, encoding="utf-8")
    url = f"sqlite:///{folder / '.instep' / 'ledger.db'}"
    with closing(open_ledger(url, clock=SystemClock())) as ledger:
        say(f"a job of {slices:,} slices")
        part = fill_ledger(ledger, _JOB, slices)
    with _working(url, part), _served(folder) as (process, address):
        say(f"{clients} clients, {seconds:g} s")
        before = _measured(process)
        time.sleep(seconds / 3)
        between = _measured(process)
        heard = asyncio.run(_listen(address, clients, seconds))
        after = _measured(process)
    return Watched(_share(before, between), _share(between, after), heard)


def _measured(process: psutil.Process) -> tuple[float, float]:
    """Wall and processor seconds."""
    times = process.cpu_times()
    return time.monotonic(), times.user + times.system


def _share(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])


@contextmanager
def _working(url: str, part: JobPart) -> Iterator[None]:
    """A process that completes slices at the same time."""
    context = multiprocessing.get_context("spawn")
    enough = context.Event()
    worker = context.Process(target=_work, args=(url, part, enough), daemon=True)
    worker.start()
    try:
        yield
        if worker.exitcode is not None:
            raise SystemExit("the worker ended: there was no progress to watch")
    finally:
        enough.set()
        worker.join()


def _work(url: str, part: JobPart, enough: Event) -> None:
    worker = f"planner-{_JOB}"
    with closing(open_ledger(url, clock=SystemClock())) as ledger:
        while not enough.wait(_PAUSE):
            claims = ledger.slices.claim(_JOB, REF, worker, work=2**40, limit=_WAVE)
            if not claims:
                return
            outcomes = [SliceOutcome(each.slice_id, each.fence, Counts(read=1, written=1)) for each in claims]
            ledger.slices.complete(part, worker, outcomes, job_id=_JOB)


@contextmanager
def _served(folder: Path) -> Iterator[tuple[psutil.Process, str]]:
    """The server's process, and where its channel is."""
    command = [sys.executable, "-m", "instep", "serve", "--port", "0", "--project", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as served:
        try:
            assert served.stdout is not None
            found = re.search(r"http://([^/]+)/", served.stdout.readline())
            if not found:
                raise SystemExit("the server did not start")
            yield psutil.Process(served.pid), f"ws://{found[1]}/ws"
        finally:
            served.terminate()


async def _listen(address: str, clients: int, seconds: float) -> list[Heard]:
    until = time.monotonic() + seconds
    return await asyncio.gather(*(_client(address, until) for _ in range(clients)))


async def _client(address: str, until: float) -> Heard:
    async with connect(address, open_timeout=60) as client:
        await client.send('{"subscribe": "searchIndexJobStatus"}')
        first = last = json.loads(await client.recv())
        ages = []
        while time.monotonic() < until:
            message = json.loads(await client.recv())
            ages.append(time.time() - last["at"] / 1_000)
            if message["seq"] != last["seq"] + 1:
                raise SystemExit("a message was left out")
            last = message
    if _done(last) <= _done(first):
        raise SystemExit("no progress was seen")
    return Heard(len(ages) + 1, ages)


def _done(message: dict[str, Any]) -> int:
    return int(message["data"]["slices"]["COMPLETED"])


def rows(found: Watched) -> list[list[str]]:
    ages = sorted(age for each in found.heard for age in each.ages)
    messages = sorted(each.messages for each in found.heard)
    return [
        ["server's processor time, no clients", "-", f"{found.idle:.1%} of a core", ""],
        [
            f"server's processor time, {len(found.heard)} clients",
            f"under {GOAL_CPU:.0%}",
            f"{found.busy:.1%} of a core",
            "met" if found.busy < GOAL_CPU else "MISSED",
        ],
        ["age of what a client has, median", "-", f"{statistics.median(ages):.2f} s", ""],
        [
            "age of what a client has, oldest",
            f"at most {GOAL_AGE:g} s",
            f"{ages[-1]:.2f} s",
            "met" if ages[-1] <= GOAL_AGE else "MISSED",
        ],
        ["messages to a client", "-", f"{messages[0]} to {messages[-1]}", ""],
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=SLICES)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = watch(Path(folder), slices=options.slices, clients=options.clients, seconds=options.seconds)
    shown = rows(found)
    report.show(f"{options.slices:,} slices", ["what", "goal", "reached", ""], shown)
    if any("MISSED" in row for row in shown):
        sys.exit(1)


if __name__ == "__main__":
    main()
