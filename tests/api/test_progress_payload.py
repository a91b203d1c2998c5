"""The progress of a job: the channel's names, and null for unknown values."""

from __future__ import annotations

import pytest

from instep.answers.jobs import one_job_answer
from instep.api.progress_feed import status_data
from instep.domain.instances import Reason
from instep.domain.jobs import JobPart, JobState, SlicePlan
from instep.domain.refs import PartitionRef
from instep.ledger.leases import Lease
from instep.ledger.parts import NewPart
from tests.cli import ledgers
from tests.cli.ledgers import ANN, JOB
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(clock: VirtualClock) -> MemoryLedger:
    return MemoryLedger(clock)


def test_progress_holds_the_rate_and_the_seconds_left(ledger: MemoryLedger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger, slices=4)
    ledgers.complete(ledger, part, 1, failed=1)
    clock.sleep(10)
    data = status_data(one_job_answer(ledger, JOB))
    assert (data["rate"], data["secondsLeft"]) == (0.5, 30)
    assert data["stats"]["jobStats"] == {"totalRecords": 20, "successRecords": 4, "failedRecords": 1}


def test_entities_are_reported_one_by_one_and_failed_ones_count(ledger: MemoryLedger) -> None:
    one, two = ledgers.begin(ledger, entities=["Document", "Ticket"], slices=1)
    ledgers.complete(ledger, one, 1)
    ledgers.complete(ledger, two, 1, failed=5)
    ledgers.finish(ledger, two, JobState.FAILED)
    data = status_data(one_job_answer(ledger, JOB))
    assert data["stats"] == {
        "jobStats": {"totalRecords": 10, "successRecords": 5, "failedRecords": 5},
        "entityStats": {
            "Document": {"totalRecords": 5, "successRecords": 5, "failedRecords": 0},
            "Ticket": {"totalRecords": 5, "successRecords": 0, "failedRecords": 5},
        },
    }


def test_namespaces_of_an_entity_are_summed_and_unknown_totals_are_null(ledger: MemoryLedger) -> None:
    ledgers.register(ledger, ANN)
    ledger.jobs.begin(JOB, ANN, {})
    assert status_data(one_job_answer(ledger, JOB))["stats"] == {
        "jobStats": {"totalRecords": None, "successRecords": 0, "failedRecords": 0},
        "entityStats": {},
    }
    planned = [
        NewPart(_part(ledger, "Ticket@1"), [ledgers.a_slice(0)]),
        NewPart(_part(ledger, "Ticket@2"), [ledgers.a_slice(0)]),
        NewPart(_part(ledger, "Event@1"), [ledgers.a_slice(0)]),
        NewPart(_part(ledger, "Event@2"), [SlicePlan(0, 0, "", "", 0, 1, 40, b"")]),
    ]
    ledger.parts.plan(JOB, planned)
    stats = status_data(one_job_answer(ledger, JOB))["stats"]
    assert {name: each["totalRecords"] for name, each in stats["entityStats"].items()} == {"Ticket": 10, "Event": None}
    assert stats["jobStats"]["totalRecords"] is None
    ledger.jobs.start(JOB)
    for each in planned[:2]:
        ledgers.complete(ledger, each.part, 1, failed=2)
    stats = status_data(one_job_answer(ledger, JOB))["stats"]
    assert stats["entityStats"]["Ticket"] == {"totalRecords": 10, "successRecords": 6, "failedRecords": 4}


def _part(ledger: MemoryLedger, ref: str) -> JobPart:
    lease = ledger.leases.acquire(PartitionRef.parse(ref), JOB, ANN)
    assert isinstance(lease, Lease)
    instance = ledger.instances.new(lease, Reason.FIRST)
    return JobPart(lease.ref, instance, f"{instance}-index", {}, 1, lease.epoch, 0, True)
