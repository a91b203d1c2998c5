"""`instep run` on the cluster, held in the middle of a wave, and what has to be so afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from tests.e2e import corpus
from tests.e2e.cluster.hosts import TIMEOUT_SECONDS, Hosts, command, instep
from tests.servers.spark_cluster import outside

#: Says that it runs, and goes on only when it may.
_TRANSFORM = """
import os
import pathlib
import time

HERE = pathlib.Path({folder!r})

def held(batches):
    (HERE / f"task-{{os.getpid()}}").touch()
    while (HERE / "hold").exists():
        time.sleep(0.05)
    yield from batches

def hold(rows):
    return rows.mapInArrow(held, rows.schema)
"""


#: Waits for less long for an executor.
_HASTY = (
    "import sys; from instep.pipeline.engine import spark_job; spark_job.ALONE_SECONDS = 5.0; "
    "from instep.__main__ import main; sys.exit(main())"
)


class HeldRun:
    """`instep run`, or another command, whose tasks wait until they may go on."""

    def __init__(
        self,
        hosts: Hosts,
        name: str,
        *,
        word: str = "run",
        extra: str = "",
        config: Mapping[str, str] | None = None,
        remote: str = "",
        hasty: bool = False,
        amend: Callable[[HeldRun], None] = lambda _: None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`amend` is called before it starts."""
        self.hosts, self.name = hosts, name
        self.docs, self.gate = hosts.shared / f"{name}-docs", hosts.shared / f"{name}-gate"
        corpus.write(self.docs, range(60))
        self.gate.mkdir()
        entity = "buckets: 4\ntransform: held:hold"
        self.folder = hosts.declare(name, self.docs, entity=entity, extra=extra, config=config, remote=remote)
        (self.folder / "held.py").write_text(_TRANSFORM.format(folder=str(self.gate)))
        (self.gate / "hold").touch()
        self.log = hosts.laptop / f"{name}.log"
        self._env = env
        amend(self)
        line = command(self.folder, word)
        self.process = self.start([sys.executable, "-c", _HASTY, *line[3:]] if hasty else line)

    def start(self, line: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start one more process that works on it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                line, cwd="/", env=outside(self._env), stdout=log, stderr=log, start_new_session=True
            )

    def tasks(self) -> set[int]:
        """Processes of Python that have run a task of this run."""
        return {int(each.name.partition("-")[2]) for each in self.gate.glob("task-*")}

    def running(self) -> psutil.Process:
        """The one that runs a task now."""
        self.until(lambda: any(map(_runs, self.tasks())), "a task runs")
        return psutil.Process(next(filter(_runs, self.tasks())))

    def executor(self) -> psutil.Process:
        """The executor that runs it."""
        parents = self.running().parents()
        executors = set(self.hosts.cluster.executors)
        return next(each for each in parents if each in executors)

    def release(self) -> None:
        (self.gate / "hold").unlink(missing_ok=True)

    def until(self, is_so: Callable[[], bool], what: str, *, alive: bool = True) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_so():
            assert not alive or self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.log.read_text()}"
            time.sleep(0.1)

    def finish(self) -> None:
        self.release()
        assert self.process.wait(TIMEOUT_SECONDS) == 0, self.log.read_text()

    def demand_tasks_end(self) -> None:
        """Check that its tasks end though they are held for ever."""
        self.until(lambda: not any(map(_runs, self.tasks())), "its tasks end", alive=False)
        assert (self.gate / "hold").exists()

    def end(self) -> None:
        self.release()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def demand_truth(run: HeldRun) -> None:
    """Check the index, then that the next run sees what has changed: nothing of the run before is in its way."""
    assert not run.hosts.wrong(run.name, run.docs)
    corpus.write(run.docs, range(3), seed=1)
    corpus.path(run.docs, 7).unlink()
    done = instep(run.folder, "run", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not run.hosts.wrong(run.name, run.docs)
