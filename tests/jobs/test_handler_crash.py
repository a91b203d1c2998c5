"""A handler that is killed between its work and its answer."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from instep.bus.bus import Bus
from instep.bus.open import open_bus
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.domain.status import IndexState
from instep.ledger.open import open_ledger
from instep.requests.handlers import Handler, Indexed
from instep.system import SystemClock
from tests.contracts.bus.fixtures import ask
from tests.jobs.handler_pools import QUICK, TIMES, Told, handler, pool

#: The process that is killed, by itself, when it would answer.
DOOMED = """
import os, signal, sys
from pathlib import Path
from instep.bus import ledger_bus
from tests.jobs.test_handler_crash import FileWork, open_at, serve
bus, work = open_at(Path(sys.argv[1])), FileWork(Path(sys.argv[1]))
change = ledger_bus._change  # what every answer calls, and so does who needs more time for its work

def answer(*args):
    if work.said():
        os.kill(os.getpid(), signal.SIGKILL)
    return change(*args)

ledger_bus._change = answer
serve(bus, work)
"""


class FileWork:
    """Implements `handlers.Indexer`: a line in a file for what is done, and nothing to do for what is there."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "done"

    def index(self, ref: PartitionRef, watermark: int, demand: Callable[[], None]) -> Indexed:
        line = f"{ref} {watermark}\n"
        if line not in self.said():
            with self.file.open("a") as file:
                file.write(line)
        return Indexed(IndexState.INDEXED)

    def said(self) -> str:
        return self.file.read_text() if self.file.exists() else ""


def open_at(folder: Path) -> Bus:
    clock = SystemClock()
    return open_bus(None, open_ledger(f"sqlite:///{folder}/ledger.db", clock=clock), clock=clock, timing=TIMES)


def serve(bus: Bus, work: FileWork) -> None:
    short = Policy(max_attempts=2, backoff=(1,), ack_wait=300)
    with pool(bus, work, Handler("Issue", Kind.NAMESPACE, short)) as mine:
        mine.wait()


def test_work_of_a_handler_killed_before_its_ack_is_redelivered_and_done_once(tmp_path: Path) -> None:
    bus, work, told = open_at(tmp_path), FileWork(tmp_path), Told()
    bus.publish(ask(1))
    died = subprocess.run(
        [sys.executable, "-c", DOOMED, str(tmp_path)], cwd=Path(__file__).parents[2], timeout=240, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert work.file.read_text() == "Issue@42/9970 1\n"
    consumer = bus.consumer("Issue", Kind.NAMESPACE, QUICK)
    again = consumer.next(60.0)  # after the ack wait
    assert again is not None
    assert again.attempt == 2
    consumer.postpone(again)
    with pool(bus, work, handler("Issue"), told=told, until_idle=True) as mine:
        mine.wait()
    assert ("Issue@42/9970", "in work, attempt 2") in told.lines
    assert ("Issue@42/9970", "Indexed") in told.lines
    assert work.file.read_text() == "Issue@42/9970 1\n"
    assert consumer.next(0.05) is None
    assert bus.dead_letters() == []
