"""A worker lives for months: it keeps nothing of jobs that have ended."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.jobs.worker import Worker
from instep.system import SystemClock
from tests.doubles.ledger import MemoryLedger
from tests.jobs.progress_log import ProgressLog, context

NOTHING: Mapping[PartitionRef, EntitySetup] = {}


def test_a_worker_leaves_only_jobs_that_it_takes_part_in(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    ledger = MemoryLedger(clock)
    worker = Worker(NOTHING, context(ProgressLog(), clock=clock, ledger=ledger), "worker")
    for number in range(20):
        ledger.jobs.begin(str(number), worker.id, {})
        worker.membership._jobs.add(str(number))
    for number in range(19):
        ledger.jobs.request_stop(str(number))
    worker.serve(lambda: False, until_idle=True)
    assert worker.membership.jobs == {"19"}
    left: list[str] = []

    def leave(job_id: str, worker_id: str, *, stop: str | None = None) -> JobState | None:
        left.append(job_id)
        return None

    monkeypatch.setattr(ledger.jobs, "leave", leave)
    worker.end()
    assert left == ["19"]
