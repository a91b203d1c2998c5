"""Faults while a wave is on a cluster: nothing is lost, double or stale, and no task outlives its run."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.cluster.held import HeldRun, demand_truth
from tests.e2e.cluster.hosts import TIMEOUT_SECONDS, Hosts, instep
from tests.servers.postgres import running_postgres

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]


def test_lost_executors_killed_tasks_and_a_restarted_ledger_lose_nothing(hosts: Hosts) -> None:
    ledger = running_postgres()
    ledger.execute("CREATE DATABASE faults")
    config = {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.25"}
    run = HeldRun(hosts, "faults", extra=f"ledger: {ledger.url('faults')}", config=config)
    try:
        task = run.running()
        task.kill()  # It is tried again, by another process.
        run.until(lambda: run.tasks() > {task.pid}, "the task is tried again")
        run.executor().kill()
        before = run.tasks()
        run.until(lambda: run.tasks() > before, "the task of the lost executor is tried again")
        ledger.restart()
        slow = run.executor()
        slow.suspend()
        time.sleep(1.0)
        slow.resume()
        run.finish()
        demand_truth(run)
    finally:
        run.end()
        ledger.revive()


def test_the_tasks_of_a_driver_that_is_killed_end_and_the_next_run_completes(hosts: Hosts) -> None:
    run = HeldRun(hosts, "orphaned")
    try:
        run.running()
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        run.demand_tasks_end()
        run.release()
        done = instep(run.folder, "run", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        demand_truth(run)
    finally:
        run.end()


def test_ctrl_c_ends_the_tasks_and_the_next_run_completes(hosts: Hosts) -> None:
    run = HeldRun(hosts, "interrupted")
    try:
        run.running()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(TIMEOUT_SECONDS) == 130, run.log.read_text()
        run.demand_tasks_end()
        run.release()
        done = instep(run.folder, "run", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        demand_truth(run)
    finally:
        run.end()
