"""Workers of Instep on the cluster: one is killed with its JVM, and executors come and go as there is work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.e2e import corpus
from tests.e2e.cluster.held import HeldRun
from tests.e2e.cluster.hosts import TIMEOUT_SECONDS, Hosts, command, instep
from tests.servers.postgres import running_postgres
from tests.servers.spark_cluster import SparkCluster

#: What is lost with an executor, and with a worker, is seen in `test_faults.py` and in the soak of servers, too.
pytestmark = [pytest.mark.spark, pytest.mark.long]

_AS_NEEDED = {
    "spark.cores.max": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


def _want(folder: Path, *words: str) -> str:
    done = instep(folder, "want", "Document", "--json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["id"])


def _state(folder: Path, want: str) -> str:
    found = json.loads(instep(folder, "wants", "--all", "--json").stdout)
    return str(next(each["state"] for each in found if each["id"] == want))


def _driver(executor: psutil.Process, workers: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """The one of these workers whose JVM has this executor."""
    found = re.search(r"CoarseGrainedScheduler@[^:]+:(\d+)", " ".join(executor.cmdline()))
    assert found is not None

    def listens(process: psutil.Process) -> bool:
        return any(each.laddr.port == int(found[1]) for each in process.net_connections() if each.status == "LISTEN")

    return next(each for each in workers if any(map(listens, psutil.Process(each.pid).children())))


def test_another_worker_takes_over_and_executors_come_back_when_there_is_work(hosts: Hosts) -> None:
    ledger = running_postgres()
    ledger.execute("CREATE DATABASE workers")
    run = HeldRun(hosts, "workers", word="worker", extra=f"ledger: {ledger.url('workers')}", config=_AS_NEEDED)
    both = [run.process, run.start(command(run.folder, "worker"))]
    workers = [*both]
    try:
        want = _want(run.folder)
        victim = _driver(run.executor(), workers)
        workers.remove(victim)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        run.release()
        run.until(lambda: _state(run.folder, want) == "Successful", "the want succeeds", alive=False)
        assert not hosts.wrong(run.name, run.docs)
        assert "is dead" in run.log.read_text()

        run.until(lambda: not hosts.cluster.executors, "idle executors are given back", alive=False)
        corpus.write(run.docs, range(3), seed=1)
        corpus.path(run.docs, 7).unlink()
        want = _want(run.folder, "--fresh-within", "1s")
        run.until(lambda: _state(run.folder, want) == "Successful", "the next want succeeds", alive=False)
        assert not hosts.wrong(run.name, run.docs)
        assert json.loads(instep(run.folder, "failures", "--json").stdout) == []
        (other,) = workers
        other.send_signal(signal.SIGTERM)
        assert other.wait(TIMEOUT_SECONDS) == 0, run.log.read_text()
    finally:
        run.release()
        for each in both:
            each.kill()
            each.wait()


def test_a_master_that_has_forgotten_the_run_is_asked_anew(tmp_path: Path) -> None:
    """It is started again and keeps nothing: the application of the run gets no executor any more."""
    shared, laptop = tmp_path / "shared", tmp_path / "laptop"
    shared.mkdir()
    laptop.mkdir()
    cluster = SparkCluster([laptop], respawns=True)
    cluster.start()
    run = HeldRun(Hosts(cluster, shared, laptop, tmp_path, tmp_path), "forgotten", hasty=True)
    try:
        run.running()
        before = run.tasks()
        (master,) = cluster.masters
        master.kill()
        run.until(lambda: bool(cluster.masters) and master not in cluster.masters, "the master is back")
        for each in cluster.executors:
            each.kill()
        run.until(lambda: run.tasks() > before, "its tasks run again")
        run.finish()
        assert not run.hosts.wrong(run.name, run.docs)
        assert "has had no executor for 5 s" in run.log.read_text()
    finally:
        run.end()
        cluster.stop()
