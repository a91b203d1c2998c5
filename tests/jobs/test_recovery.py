"""Who is buried, and which parts of jobs can be gone on with."""

from __future__ import annotations

import socket
from dataclasses import replace

from instep.jobs.recovery import bury_the_dead
from tests.jobs.quiet import Quiet, built


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
    bury_the_dead(context)
    assert [each.id for each in world.ledger.workers.all()] == ["far"]
    assert liveness.forgotten == ["near"]


def test_a_part_planned_under_other_settings_does_not_fit() -> None:
    world = built()
    (setup,) = world.setups(world.process("run", []), ["Document"])
    part = world.parts()[-1].part
    assert setup.misfit(part) is None
    assert setup.misfit(replace(part, buckets=99)) == "it was planned for 99 buckets, now there are 1"
    changed = setup.misfit(replace(part, fingerprint={"transform": "another"}))
    assert changed == "transform changed since it was planned"
