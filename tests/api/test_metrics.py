"""`/metrics`, scraped from a real server and read by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from prometheus_client import generate_latest

from instep.api import metrics
from instep.api.application import create_app
from instep.api.metrics import Kept, LedgerSample, registry_of
from instep.app import Instep, load
from instep.errors import Away, Transient
from instep.ledger.open import open_ledger
from instep.project import Project
from instep.system import SystemClock
from tests.api.conftest import PROJECT, TOKEN, served, write
from tests.cli.queue_tables import sqlite_tables
from tests.contracts.ledger.building import plans, running
from tests.telemetry.scrape import values_of

QUEUES = """\
queues:
  bills:
    on: sqlite:///shop.db
    key: id
    keys: {from: 1, below: 1000000}
    source: {table: items, event_time: at}
    covered_by: [{table: done, where: ok = 1}, {table: also}]
"""
OF = "entity=Document"


@pytest.fixture
def busy(instep: Instep) -> Iterator[Instep]:
    """Indexed once, with a queue beside it; and a job of three slices is under way, one of which was tried before."""
    folder = instep.project.root
    write(folder, 2)
    sqlite_tables(folder)
    (folder / "instep.yaml").write_text(PROJECT + QUEUES)
    found = load(folder)
    with found.queue("bills") as queue:
        queue.create()
        queue.backfill()
    found.run(engine="inline")
    with closing(open_ledger(found.project.ledger_url, clock=SystemClock())) as ledger:
        part = running(ledger, plans(3), fresh=False)
        claims = ledger.slices.claim("job", part.ref, "ann", work=1, limit=1)
        ledger.slices.give_back(claims, "ann", error="once more", spent=True)
        ledger.slices.claim("job", part.ref, "ann", work=1, limit=1)
        yield found


def test_a_scrape_holds_the_figures_of_ledger_bus_and_queues(busy: Instep) -> None:
    with served(create_app(busy, token=TOKEN, loopback=True)) as address:
        answer = httpx.get(f"{address}/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        found = values_of(answer.text)
        refused = httpx.get(f"{address}/metrics", headers={"host": "evil.example.org"})
        assert refused.status_code == 421
    assert [found["instep_up", f"part={each}"] for each in ("ledger", "bus", "queue bills")] == [1, 1, 1]
    assert found["instep_jobs", "state=RUNNING"] == 1
    assert [found["instep_slices", OF, f"state={each}"] for each in ("PENDING", "PROCESSING", "FAILED")] == [2, 1, 0]
    assert (found["instep_job_units_planned", OF], found["instep_slice_attempts", OF]) == (6, 1)
    assert (found["instep_leases", OF], found["instep_workers", "pulse=steady"]) == (1, 1)
    assert 0 <= found["instep_lease_age_seconds", OF] < found["instep_lease_left_seconds", OF] <= 300
    assert 0 <= found["instep_lag_seconds", OF] < 300
    assert (found["instep_partitions", OF], found["instep_failures", OF], found["instep_dead_letters", OF]) == (1, 0, 0)
    assert found["instep_queue_keys", "queue=bills", "state=offered"] == 10
    assert found["instep_queue_keys", "queue=bills", "state=parked"] == 0
    assert found["instep_queue_oldest_seconds", "queue=bills"] > 0
    # A project of one entity and one queue has so many series, whatever is in its ledger.
    assert sum(name.startswith("instep_") for name, *_ in found) < 60


def test_many_scrapes_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reads = [0.0], []
    kept = Kept(lambda: reads.append(now[0]), 5.0, lambda: now[0])
    for now[0] in (0.0, 1.0, 4.9, 5.0, 6.0):
        kept.get()
    assert reads == [0.0, 5.0]


def test_an_unreadable_figure_is_missing_and_not_zero(instep: Instep, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_project: Project) -> LedgerSample:
        raise Away("the ledger does not answer")

    monkeypatch.setattr(metrics, "sample_ledger", away)
    found = values_of(generate_latest(registry_of(instep)).decode())
    assert (found["instep_up", "part=ledger"], found["instep_up", "part=bus"]) == (0, 1)
    assert not any(name in ("instep_slices", "instep_jobs", "instep_lag_seconds") for name, *_ in found)


def test_a_figure_that_became_unreadable_does_not_keep_its_old_value() -> None:
    now, there = [0.0], [True]

    def read() -> int:
        if not there[0]:
            raise Transient("the ledger is away")
        return 7

    kept = Kept(read, 5.0, lambda: now[0])
    assert kept.get() == 7
    there[0] = False
    now[0] = 4.0
    assert kept.get() == 7, "it is not asked again so soon"
    now[0] = 5.0
    assert kept.get() is None, "unknown is not what it was"
    there[0] = True
    assert kept.get() is None
    now[0] = 10.0
    assert kept.get() == 7
