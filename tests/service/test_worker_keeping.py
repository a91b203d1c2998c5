"""A worker lives for months: it keeps nothing of jobs that have ended."""

from __future__ import annotations

from collections.abc import Mapping

from instep.domain.refs import PartitionRef
from instep.ledger.memory import MemoryLedger
from instep.service.setup import EntitySetup
from instep.service.worker import Worker
from instep.system import SystemClock
from tests.service.crews import Told, context

NOTHING: Mapping[PartitionRef, EntitySetup] = {}


def test_a_worker_leaves_only_jobs_that_it_takes_part_in() -> None:
    clock = SystemClock()
    ledger = MemoryLedger(clock)
    worker = Worker(NOTHING, context(Told(), clock=clock, ledger=ledger), "worker")
    for number in range(20):
        ledger.begin_job(str(number), worker.id, {})
        worker._jobs.add(str(number))
    for number in range(19):
        ledger.request_stop(str(number))
    left: list[str] = []
    leave = ledger.leave_job
    ledger.leave_job = lambda job_id, *args, **more: (left.append(job_id), leave(job_id, *args, **more))[1]  # type: ignore[method-assign]  # watched
    worker.serve(lambda _: False, until_idle=True)
    assert worker._jobs == {"19"}
    worker.end()
    assert left == ["19"]
