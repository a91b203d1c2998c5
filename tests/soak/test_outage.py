"""The ledger's server dies under the servers that use it, for a moment or for longer than the lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.ledgers import LedgerDatabase, mariadb_ledger, postgres_ledger
from tests.soak.chaos import AWAY, FASTER
from tests.soak.fleet import Fleet, ServerProcess, fleet
from tests.soak.records import Records
from tests.soak.site import Site
from tests.soak.verdict import unique
from tests.soak.witness import COMPLETE, STAGED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "database",
        [
            pytest.param(postgres_ledger, id="postgres"),
            pytest.param(mariadb_ledger, id="mariadb", marks=pytest.mark.long),
        ],
    ),
]


@pytest.fixture
def ledger(database: Callable[[], LedgerDatabase]) -> LedgerDatabase:
    found = database()
    found.server.revive()
    found.empty()
    return found


@pytest.fixture
def site(ledger: LedgerDatabase, tmp_path: Path) -> Site:
    made = Site(tmp_path, ledger.url, seed=1)
    made.prepare(300, entity="buckets: 12")
    return made


def demand_exact(site: Site, servers: Fleet) -> None:
    records = Records(site.engine)
    assert records.open_jobs() == []
    assert records.failures() == 0
    assert list(unique(servers.events)) == []
    assert site.wrong().total == 0


def cut_off(ledger: LedgerDatabase, server: ServerProcess) -> float:
    """The ledger is gone when the server wants to record what it has just committed; returns the moment."""
    ledger.server.kill()
    gone = time.monotonic()
    server.resume()
    return gone


def test_a_ledger_restarted_after_a_kill_interrupts_no_process(site: Site, ledger: LedgerDatabase) -> None:
    with fleet(site, faster=5) as servers:
        run = servers.start(0, "run", ambush=STAGED)  # Until the worker is there too.
        servers.wait_until_still(run)
        worker = servers.start(1, "worker", ambush=COMPLETE)
        servers.wait_until_still(worker)
        run.resume()
        gone = cut_off(ledger, worker)
        servers.wait(lambda: worker.named("failed", after=gone), "the outage to be noticed")
        ledger.server.restart()
        servers.wait(lambda: run.ended, "the run to end")
        assert run.named("result")[0].facts["states"] == ["COMPLETED"]
        servers.end()
        assert len(Records(site.engine).jobs()) == 1
        demand_exact(site, servers)


@pytest.mark.long
def test_a_worker_whose_ledger_is_away_for_longer_than_its_lease_stops_writing_and_continues_when_it_is_back(
    site: Site, ledger: LedgerDatabase
) -> None:
    with fleet(site, faster=FASTER) as servers:
        run = servers.start(0, "run", ambush=STAGED)
        servers.wait_until_still(run)
        run.kill()  # It leaves a job, for the worker alone.
        worker = servers.start(1, "worker", ambush=COMPLETE)
        servers.wait_until_still(worker)
        gone = cut_off(ledger, worker)
        servers.wait(lambda: worker.named("refused", after=gone), "the worker to stop writing by itself")
        servers.wait(
            lambda: any("trying again" in each.facts["message"] for each in worker.named("said", after=gone)),
            "the worker to say so",
        )
        servers.wait(lambda: time.monotonic() - gone > servers.timing.lease / 1000, "the lease to expire")
        servers.read()
        assert {each.facts["by"] for each in worker.named("refused", after=gone)} == {"itself"}
        assert not worker.named("commit", after=gone)
        ledger.server.restart()
        servers.wait(lambda: not Records(site.engine).open_jobs(), "the job to be finished")
        servers.end()
        demand_exact(site, servers)


@pytest.mark.long
def test_a_run_whose_ledger_stays_away_says_so_and_the_next_one_resumes(site: Site, ledger: LedgerDatabase) -> None:
    with fleet(site, faster=FASTER) as servers:
        run = servers.start(0, "run", ambush=COMPLETE)
        servers.wait_until_still(run)
        cut_off(ledger, run)
        assert run.process.wait() == AWAY
        run.read()
        assert "Run again when it is back" in run.named("ended")[0].facts["why"]
        ledger.server.restart()
        again = servers.start(0, "run")
        servers.wait(lambda: again.ended, "the next run")
        assert again.named("result")[0].facts["states"] == ["COMPLETED"]
        assert len(Records(site.engine).jobs()) == 1
        demand_exact(site, servers)
