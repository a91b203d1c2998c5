"""Eviction of dead workers, and the parts of jobs that others go on with."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from instep.jobs.recovery import recover, release_dead_processes
from instep.ledger.liveness import LockFiles
from tests.jobs.progress_log import ProgressLog
from tests.jobs.progress_log import context as real_context
from tests.jobs.quiet import PLAIN, REF, Quiet, built, indexed


class AllDead:
    """Locks of workers as they look on a file system that others share: no lock that is seen here is held."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def proved_dead(self, worker_id: str) -> bool:
        return True

    def forget(self, worker_id: str) -> None:
        self.forgotten.append(worker_id)


def test_only_workers_of_this_host_are_proved_dead() -> None:
    world, liveness = Quiet(), AllDead()
    context = world.context(world.process("run", []))
    context = replace(context, ledger=world.ledger, liveness=liveness)  # type: ignore[arg-type]  # as much as is used
    world.ledger.workers.register("near", kind="run", host=socket.gethostname(), pid=1)
    world.ledger.workers.register("far", kind="run", host=f"not-{socket.gethostname()}", pid=1)
    release_dead_processes(context)
    assert [each.id for each in world.ledger.workers.all()] == ["far"]
    assert liveness.forgotten == ["near"]


def test_recovery_clears_away_the_locks_of_the_dead_whom_other_hosts_have_evicted(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    context = real_context(ProgressLog(), liveness=locks)
    ends = {name: locks.begin(name) for name in ("evicted", "elsewhere", "starting")}
    context.ledger.workers.register("elsewhere", kind="run", host=f"not-{socket.gethostname()}", pid=1)
    ends["evicted"]()
    ends["elsewhere"]()
    recover(context)
    assert locks.all_dead() == ["elsewhere"], "of a worker that is registered it stays"
    assert (tmp_path / "starting.lock").exists()
    ends["starting"]()


def test_a_part_planned_under_other_settings_does_not_fit() -> None:
    world = built()
    (setup,) = world.setups(world.process("run", []), ["Document"])
    part = world.parts()[-1].part
    assert setup.misfit(part) is None
    assert setup.misfit(replace(part, buckets=99)) == "it was planned for 99 buckets, now there are 1"
    changed = setup.misfit(replace(part, fingerprint={"transform": "another"}))
    assert changed == "transform changed since it was planned"


@pytest.mark.parametrize("kind", ["run", "worker"])
def test_the_slices_of_a_process_that_dies_on_this_host_are_free_at_the_next_look(kind: str) -> None:
    world = Quiet()
    written: list[float] = []
    released: list[float] = []

    def dies() -> None:
        written.append(world.now)
        world.pause(15)
        world.kill()

    world.before(world.target, "commit", dies)
    world.before(world.ledger, "workers.evict", lambda: released.append(world.now))
    first = world.start_run([REF.entity], wait=0.0, options=PLAIN, exact=True)
    world.run_until(lambda: bool(written))
    if kind == "run":
        world.to_the_end(world.start_run([REF.entity], wait=60.0, options=PLAIN, exact=True))
    else:
        world.work()
    assert first.dead
    assert len(world.parts()) == 1, "both did the same job"
    assert indexed(world) == set(range(1, 13))
    assert released[0] - written[0] < 25_000, "it did not wait for the next sweep"
