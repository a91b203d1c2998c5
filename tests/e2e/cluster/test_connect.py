"""A Connect server in a process of its own, with a cluster behind it whose executors are on other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.held import HeldRun, demand_truth
from tests.e2e.cluster.hosts import SETTINGS, Hosts, instep
from tests.servers.connect import ConnectServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]


@pytest.fixture
def server(hosts: Hosts) -> Iterator[ConnectServer]:
    made = ConnectServer(hosts.cluster.master, SETTINGS)
    made.start()
    yield made
    made.stop()


def test_code_and_faults_are_the_same_through_a_connect_server(hosts: Hosts, server: ConnectServer) -> None:
    run = HeldRun(hosts, "connected", remote=server.address)
    try:
        task = run.running()
        task.kill()
        run.until(lambda: run.tasks() > {task.pid}, "the task is tried again")
        run.executor().kill()
        before = run.tasks()
        run.until(lambda: run.tasks() > before, "the task of the lost executor is tried again")
        run.finish()
        demand_truth(run)
    finally:
        run.end()
    done = instep(run.folder, "check", "--cluster", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {each["host"] for each in found["executors"]} == {"worker-0", "worker-1"}
    assert found["findings"] == []
