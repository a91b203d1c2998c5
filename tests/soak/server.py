"""One server of the soak: the product with faster times, its own state folder, and a log.

    python -m tests.soak.server PROJECT HOME --role run|worker|runs

`run` is `instep run`, `worker` is `instep worker`; `runs` runs once for every line of standard input. Ends
when its standard input does: no server outlives its harness (unless it was stopped: that is killed by it).
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import instep
from instep.cli.signals import terminate_like_ctrl_c
from instep.container import Container
from instep.domain.clock import TIMING, Timing
from instep.domain.refs import PartitionRef
from instep.entities import setup
from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.errors import Fenced, InstepError, UserError
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.ledger.ledger import Ledger
from instep.ledger.liveness import LockFiles
from instep.pipeline.engine.choice import EngineChoice
from instep.pipeline.engine.engine import Engine
from instep.planning.context import Context
from instep.system import Threads
from instep.targets.document_target import DocumentTarget
from tests.soak.witness import Ambush, LogProgress, watched_engine, watched_ledger, watched_target

#: Looking for work does not get faster with the rest: it would keep the processors busy.
POLL_MS = 50
#: The name of the file in a server's home that says where it is to stand still.
AMBUSH = "ambush"


def timing_of(faster: float) -> Timing:
    return replace(TIMING.faster(faster), poll=POLL_MS)


class Uninterrupted(Threads):
    """Heartbeats that an ambush does not cut in two."""

    def __init__(self, ambush: Ambush) -> None:
        self._ambush = ambush

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        def whole() -> bool:
            with self._ambush.heartbeat:
                return task()

        return super().every(seconds, whole, name)


@dataclass(frozen=True)
class Server:
    setups: Sequence[EntitySetup]
    context: Context
    log: LogProgress

    def run(self) -> None:
        results = run_entities(self.setups, self.context, PlanOptions(), wait_seconds=600)
        self.log.note("result", states=[str(each.state) if each.state else None for each in results])

    def work(self) -> None:
        serve(self.setups, self.context)


def open_server(project: Path, home: Path, ledger: Ledger, container: Container, log: LogProgress) -> Server:
    ambush = Ambush(home / AMBUSH, log)
    _note_own_refusals(log)

    def engine(choice: EngineChoice) -> Engine:
        return cast("Engine", watched_engine(container.engines.engine(choice), log, ambush))

    seen = cast("Ledger", watched_ledger(ledger, log, ambush))
    context = replace(
        container.context(seen, log),
        # No other server has these files: a dead one is found by its silence, as on another host.
        liveness=LockFiles(home / "workers"),
        background=Uninterrupted(ambush),
        engine=engine,
    )
    setups = [
        replace(each, target=cast("DocumentTarget", watched_target(each.target, log, ambush)))
        for each in container.setups()
    ]
    return Server(setups, context, log)


def _note_own_refusals(log: LogProgress) -> None:
    """A worker that cannot prove its heartbeat or lease refuses itself."""
    real = Heartbeat.require

    def require(heartbeat: Heartbeat, ref: PartitionRef) -> None:
        try:
            real(heartbeat, ref)
        except Fenced as error:
            log.note("refused", by="itself", call="require", why=str(error))
            raise

    Heartbeat.require = require  # type: ignore[method-assign, assignment]  # to be told of it, for all heartbeats


def _lines() -> queue.SimpleQueue[str]:
    """Of standard input, read aside; its end is the end of this process."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        # Not by sys.stdin: its lock would be held when the interpreter ends.
        while text := os.read(0, 1024):
            for _ in range(text.count(b"\n")):
                lines.put("run")
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _serve(server: Server, role: str, lines: queue.SimpleQueue[str]) -> None:
    server.log.note("ready")
    if role == "worker":
        server.work()
    elif role == "run":
        server.run()
    else:
        while lines.get():
            server.run()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("home", type=Path)
    parser.add_argument("--role", choices=["run", "worker", "runs"], required=True)
    parser.add_argument("--faster", type=float, required=True)
    parser.add_argument("--claim", type=int, required=True, help="slices in one wave")
    options: Any = parser.parse_args(arguments)
    options.home.mkdir(parents=True, exist_ok=True)
    log, lines = LogProgress(options.home / "log"), _lines()
    setup.MOST_CLAIMS = options.claim
    try:
        container = Container(instep.load(options.project).project, engine="inline", timing=timing_of(options.faster))
        with closing(container), closing(container.ledger()) as ledger, terminate_like_ctrl_c():
            _serve(open_server(options.project, options.home, ledger, container, log), options.role, lines)
    except KeyboardInterrupt:
        log.note("ended", kind="KeyboardInterrupt", why="interrupted")
    except InstepError as error:
        # As the command line does.
        log.note("ended", kind=type(error).__name__, why=str(error))
        return error.exit_code if isinstance(error, UserError) else 1
    else:
        log.note("ended", kind=None, why="done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
