"""A worker that others have taken for dead registers anew, however often that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instep.domain.clock import TIMING
from instep.errors import InstepError, Transient, Unknown, UserError
from instep.jobs.heartbeat import Registration
from instep.ledger.liveness import LockFiles
from tests.doubles.through import replaced
from tests.jobs.progress_log import ProgressLog, context
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


def test_nobody_registers_without_a_proof_of_life() -> None:
    """Until its silence is noticed it would count as alive."""
    told = context(ProgressLog(), liveness=LockFiles(Path("/proc/instep/workers")))
    with pytest.raises(UserError, match="`state` cannot be written"):
        Registration(told, "run")
    assert told.ledger.workers.all() == []


def test_a_worker_whose_registration_got_no_reply_is_proved_dead(tmp_path: Path) -> None:
    def no_reply(real: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        raise Unknown("the connection was lost before the ledger answered")

    locks, told = LockFiles(tmp_path), ProgressLog()
    real = context(told, liveness=locks)
    with pytest.raises(Unknown):
        Registration(context(told, liveness=locks, ledger=replaced(real.ledger, {"workers.register": no_reply})), "run")
    assert locks.all_dead() == [each.id for each in real.ledger.workers.all()] != []
