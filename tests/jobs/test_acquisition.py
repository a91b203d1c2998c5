"""A run begins with what is there now, not with what was there when it was planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.events import InstanceBuilding, InstanceCreated, InstanceExpired, InstanceLive
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind, PlanOptions
from instep.errors import UserError
from instep.jobs import acquisition
from instep.jobs.heartbeat import Registration
from instep.jobs.run import run_entities
from tests.jobs.quiet import REF, Quiet, built
from tests.simulator.scheduler import Process

#: Calls between planning and the stored job.
BETWEEN = ["jobs.begin", "leases.acquire", "parts.plan"]


def leave(world: Quiet, how: str) -> None:
    if how == "taint":
        world.taint()
    elif how == "expire":
        world.ledger.events.append([InstanceExpired(instance=world.current.uuid)])
    else:
        world.ledger.events.append([InstanceCreated(ref=str(REF), reason=Reason.REBUILD)])


@pytest.mark.parametrize("how", ["taint", "expire", "rebuild"])
@pytest.mark.parametrize("call", BETWEEN)
def test_an_instance_abandoned_between_plan_and_job_is_rebuilt(call: str, how: str) -> None:
    world = built()
    old = world.served
    world.edit(1)
    world.before(world.ledger, call, lambda: leave(world, how))
    assert world.run_once().promoted
    assert world.served == world.current.uuid != old
    assert len(world.parts()) == 2, "one job, that builds all anew"
    world.sound()


@pytest.mark.parametrize("call", ["leases.acquire", "instances.new", "parts.plan"])
def test_a_rebuild_that_was_planned_is_made_when_the_index_it_replaces_is_left(call: str) -> None:
    world = built()
    world.transform(2)

    def leave_what_is_live() -> None:
        if world.current.state is InstanceState.LIVE:
            world.taint()

    world.before(world.ledger, call, leave_what_is_live)
    assert world.run_once().promoted
    assert world.served == world.current.uuid
    world.sound()


def test_an_interrupted_run_is_resumed_unless_a_full_refresh_is_asked_for() -> None:
    world = built()
    world.edit(1)
    world.before(world.ledger, "slices.complete", world.kill)
    world.crashes()
    resumed = world.run_once()
    assert (resumed.plan.kind, resumed.job_id) == (Kind.RESUME, world.ledger.jobs.newest(1)[0].id)
    assert len(world.parts()) == 2
    world.edit(2)
    world.before(world.ledger, "slices.complete", world.kill)
    world.crashes()
    assert world.run_once(PlanOptions(full_refresh=True)).plan.kind is Kind.REBUILD
    world.sound()


def test_a_run_disturbed_at_every_try_gives_up_with_a_reason() -> None:
    """Its wish is refused, whatever it plans: after some tries it says so, and frees what it had."""
    world = built()
    world.edit(1)
    tries = 0

    def taint_or_mend() -> None:
        """What was planned to be refreshed is tainted; what was planned to be built is Live before that begins."""
        nonlocal tries
        tries += 1
        if world.current.state is InstanceState.LIVE:
            world.taint()
        else:
            build_elsewhere(world)

    world.before(world.ledger, "parts.plan", taint_or_mend, times=100)
    with pytest.raises(UserError, match="was outdated 5 times") as caught:
        world.run_once()
    assert caught.value.hint
    assert tries == 5
    assert world.ledger.jobs.unfinished(REF) is None
    world.sound()


def build_elsewhere(world: Quiet) -> None:
    """As if another run had done it: the events alone."""
    uuid, job = world.current.uuid, f"job of {world.current.sequence}"
    counts = Counts()
    world.ledger.events.append(
        [
            InstanceBuilding(instance=uuid, job=job, target=1, fingerprint={}),
            InstanceLive(instance=uuid, job=job, watermark=1, physical="elsewhere", counts=counts),
        ]
    )


def test_a_part_fenced_while_planned_is_not_fenced_again_by_its_first_wave() -> None:
    world = built()
    world.edit(1)
    fences: list[int] = []
    world.before(world.target, "fence", lambda: fences.append(len(world.parts())), times=9)
    world.run_once()
    assert len(fences) == 2, "when it was planned, and for its last steps"
    world.sound()


def test_a_full_refresh_joins_no_other_job() -> None:
    """Those who refresh do not do what it was asked for."""
    world = built()
    before = world.served
    world.edit(1)
    others: list[Process] = []
    options = PlanOptions(full_refresh=True)
    world.after(
        world.ledger,
        "parts.plan",
        lambda: others.append(world.start_run([REF.entity], wait=3_600.0, options=options, exact=True)),
    )
    assert world.run_once().promoted
    (other,) = others
    world.to_the_end(other)
    result: Any = other.result
    assert world.served != before, "it has built a new one"
    assert result[0].counts.read == 12, "and has taken no part in the refresh"
    world.sound()


def test_a_run_of_another_generation_joins_no_other_job() -> None:
    world = built()
    world.edit(1)
    others: list[Process] = []
    options = PlanOptions(generation="v2")
    world.after(
        world.ledger,
        "parts.plan",
        lambda: others.append(world.start_run([REF.entity], wait=3_600.0, options=options, exact=True)),
    )
    assert world.run_once().promoted
    (other,) = others
    world.to_the_end(other)
    result: Any = other.result
    assert result[0].counts.read == 12, "it has built its own, and has taken no part in the refresh"
    assert world.ledger.checkpoints.get(REF, "v2") is not None


def test_a_job_of_another_declaration_is_left_alone_for_the_orphan_time() -> None:
    """A server that still has that declaration may come back for it."""
    world = built()
    world.edit()
    world.after(world.ledger, "parts.plan", world.kill)
    world.crashes()
    world.transform(2)
    began = world.now
    world.work()
    assert world.parts()[-1].state is JobState.FAILED
    assert world.now - began >= TIMING.orphan
    world.sound()


@pytest.mark.parametrize("own", [True, False])
def test_half_of_a_new_job_is_left_for_workers_of_other_processes_only(own: bool) -> None:
    """A process that left it for its own threads would wait for nobody."""
    world, left = Quiet(), list[bool]()
    real = world.ledger.parts.plan
    process = world.process("worker", [REF.entity], exact=True)
    setups, context = world.setups(process, [REF.entity]), world.context(process)

    def plan(*given: Any, stagger: bool) -> None:
        left.append(stagger)
        real(*given, stagger=stagger)

    def work() -> None:
        if own:
            Registration(replace(context), "worker")
        else:
            world.ledger.workers.register("another", kind="worker", host="elsewhere", pid=1)
        run_entities(setups, context, PlanOptions(), wait_seconds=0.0)

    world.ledger.parts.plan = plan  # type: ignore[assignment,method-assign]  # to see what is asked of it
    process.start(work)
    world.to_the_end(process)
    assert left == [not own]
    world.sound()


@pytest.mark.parametrize(("large", "counted"), [(1, [1, 1, 2]), (1_000, [1, 2, 3])])
def test_the_rows_of_a_large_index_are_not_counted_for_each_of_many_jobs(
    large: int, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process begins three: the second at once, the third after a while."""
    monkeypatch.setattr(acquisition, "_LARGE", large)
    monkeypatch.setattr(acquisition, "_SOUND_AGAIN", 300.0)
    world = built()
    process = world.process("run", [REF.entity], exact=True)
    setups, context = world.setups(process, [REF.entity]), world.context(process)
    calls, found = list[str](), list[int]()
    world.before(world.target, "rows", lambda: calls.append("rows"), times=100)

    def run() -> None:
        for pause in (0, 0, 300):
            context.clock.sleep(pause)
            world.edit(1)
            run_entities(setups, context, PlanOptions(), wait_seconds=0.0)
            found.append(len(calls))

    process.start(run)
    world.to_the_end(process)
    assert found == counted
    world.sound()
