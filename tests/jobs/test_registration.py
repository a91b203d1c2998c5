"""A worker that others have taken for dead registers anew, however often that fails."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.errors import InstepError, Transient, Unknown
from tests.jobs.quiet import REF, built


@pytest.mark.parametrize("error", [Transient, Unknown])
def test_a_worker_that_fails_to_register_anew_retries(error: type[InstepError]) -> None:
    """It would say no more that it lives, be evicted for good, and have every call refused."""

    def fail() -> None:
        raise error("no answer")

    world = built()
    world.world.watch = lambda _: None  # It would miss the registration that came through.
    world.start_worker([REF.entity])
    scheduler, ledger = world._scheduler, world.ledger
    scheduler.run(lambda: bool(ledger.workers.all()))
    (first,) = ledger.workers.all()
    (world.before if error is Transient else world.after)(ledger, "workers.register", fail)
    ledger.workers.evict(first.id)
    end = scheduler.now + 3 * TIMING.stale
    scheduler.run(lambda: scheduler.now > end)
    (again,) = ledger.workers.all()
    assert again.id != first.id
    assert ledger.now() - again.heartbeat_at <= 2 * TIMING.heartbeat
    scheduler.close()
