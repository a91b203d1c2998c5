"""Entities made from others, through real runs and workers: what is missing is waited for, built and recorded.

The seed's own scenarios are named here: four wants on one build, a dependency that is missed, a rebuild, an expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.answers.answer import as_json
from instep.answers.plan import plan_answer
from instep.container import Container
from instep.domain.events import DependencyMissed, InstanceTainted, WantCanceled, WantCreated, read
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import Want, WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.jobs.acquisition import Acquisition
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.jobs.want_scheduler import WantScheduler
from instep.jobs.worker import Worker
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.planning.context import Context
from instep.planning.plan import plan_entity
from instep.planning.planner import Planner
from tests.doubles.clock import VirtualClock
from tests.doubles.container import workshop_of
from tests.doubles.ledger import MemoryLedger
from tests.doubles.through import replaced

from . import corpus
from .test_faults import NoProof
from .test_many_workers import Gone, Still, Told, _gone, pausing

SITE, PAGE, TOP = PartitionRef("Site"), PartitionRef("Page"), PartitionRef("Top")
ENTITY = """\
  {name}:
    source: {{type: files, path: "{docs}", include: ["**/*.md"]}}
    embed: {{type: hashing, dimensions: 32}}
    buckets: 2
    depends_on: [{upstream}]
    {more}
"""


class House:
    """A project of entities made from each other, one ledger, one clock; any number of servers."""

    def __init__(self, root: Path, ledger: Ledger, clock: VirtualClock) -> None:
        self.root = root
        self.ledger = ledger
        self.clock = clock
        self.told = Told()
        for name in ("Site", "Page", "Top"):
            corpus.write(self.docs(name), range(6))
        self.declare(Site="", Page="Site")

    def docs(self, name: str) -> Path:
        return self.root / "docs" / name

    def declare(self, more: str = "", **upstream: str) -> None:
        head = "name: test\ntargets: {index: {type: lance, uri: index}}\nentities:\n"
        entities = (
            ENTITY.format(name=name, docs=self.docs(name), upstream=others, more=more)
            for name, others in upstream.items()
        )
        (self.root / "instep.yaml").write_text(head + "".join(entities), encoding="utf-8")

    def empty(self, name: str) -> None:
        for file in self.docs(name).rglob("*.md"):
            file.unlink()

    def context(self, container: Container, **changes: Any) -> Context:
        context = replace(container.context(self.ledger, self.told), liveness=NoProof(), background=self.clock)
        return replace(context, **changes)

    def container(self) -> Container:
        return workshop_of(instep.load(self.root).project, self.ledger, clock=self.clock, engine="inline")

    def run(
        self,
        *names: str,
        breaks: Collection[PartitionRef] = (),
        options: PlanOptions | None = None,
        **changes: Any,
    ) -> list[EntityResult]:
        """`breaks`: partitions whose target does not hold what was recorded, so that their builds fail for good."""
        container = self.container()
        with closing(container):
            setups, upstream = (
                [replace(each, target=_broken(each.target)) if each.ref in breaks else each for each in some]
                for some in (container.setups(names), container.upstream(names))
            )
            context = self.context(container, **changes)
            return run_entities(setups, context, options or PlanOptions(), wait_seconds=0, upstream=upstream)

    def serve(self, *names: str, breaks: Collection[PartitionRef] = (), **changes: Any) -> None:
        container = self.container()
        with closing(container):
            setups = [
                replace(each, target=_broken(each.target)) if each.ref in breaks else each
                for each in container.setups(names)
            ]
            serve(setups, self.context(container, **changes), until_idle=True)

    def dies_waiting(self) -> None:
        """A run of Page that is gone as soon as its job waits for Site."""
        frozen = replaced(self.ledger, {"open_parts.on": _gone, "jobs.leave": _gone, "workers.retire": _gone})
        with pytest.raises(Gone):
            self.run("Page", ledger=frozen, background=Still())

    def want(self, name: str, ref: PartitionRef = PAGE, **values: Any) -> Want:
        self.ledger.events.append([WantCreated(want=name, refs=(str(ref),), by="ann", **values)])
        return self.wanted(name)

    def wanted(self, name: str) -> Want:
        found = self.ledger.wants.get(name)
        assert found is not None
        return found

    def states(self, *names: str) -> set[WantState]:
        return {self.wanted(name).state for name in names}

    def now(self, ref: PartitionRef) -> Instance:
        found = self.ledger.instances.canonical(ref)
        assert found is not None
        return found

    def derivative(self) -> Want:
        """The one want that a job has made and that has not ended."""
        (found,) = [each for each in self.ledger.wants.newest(open_only=True) if each.derivative_of]
        return found

    def misses(self) -> int:
        return sum(isinstance(each.event, DependencyMissed) for each in read(self.ledger.events.rows()))

    def intact(self) -> None:
        assert self.ledger.events.verify().differences == ()
        assert [each for each in self.ledger.jobs.newest() if not each.state.ended] == []


def _broken(target: Any) -> Any:
    return replaced(target, {"rows": lambda real, *args: real(*args) + 1})


@pytest.fixture
def house(tmp_path: Path) -> House:
    clock = VirtualClock()
    return House(tmp_path, MemoryLedger(clock), clock)


FAILED = f"{PAGE} waits for {SITE}, which failed: the build of {SITE} failed: the target holds "


# Runs.


def test_a_run_of_all_builds_dependencies_first_in_one_job(house: House) -> None:
    results = house.run()
    assert [(each.plan.ref, each.state) for each in results] == [
        (SITE, JobState.COMPLETED),
        (PAGE, JobState.COMPLETED),
    ]
    site, page = house.now(SITE), house.now(PAGE)
    assert site.live_at is not None
    assert page.inputs == (site.uuid,)
    assert len(house.ledger.jobs.newest()) == 1
    assert [each.state for each in house.run()] == [None, None], "nothing is left to do"
    house.intact()


def test_dependencies_are_not_looked_at_again_because_their_job_began_after_its_plan(house: House) -> None:
    def begin(real: Callable[..., Any], *args: Any) -> Any:
        house.clock.sleep(1)
        return real(*args)

    slow = replaced(house.ledger, {"jobs.begin": begin})
    house.run(ledger=slow)
    assert len(house.ledger.jobs.newest()) == 1
    for name in ("Site", "Page"):
        corpus.write(house.docs(name), range(6, 8))
    house.run(ledger=slow)
    assert len(house.ledger.jobs.newest()) == 2
    house.intact()


def test_a_run_of_one_entity_does_the_whole_job(house: House) -> None:
    house.declare(Site="", Page="Site", Top="Page, Site")
    results = house.run("Top")
    assert {(each.plan.ref, each.state) for each in results} == {
        (SITE, JobState.COMPLETED),
        (PAGE, JobState.COMPLETED),
        (TOP, JobState.COMPLETED),
    }
    assert results[-1].plan.ref == TOP
    site, page, top = house.now(SITE), house.now(PAGE), house.now(TOP)
    assert page.inputs == (site.uuid,)
    assert set(top.inputs) == {page.uuid, site.uuid}
    assert f"waits for {PAGE}, {SITE}" in house.told.said
    house.intact()


def test_a_live_dependency_is_neither_awaited_nor_rebuilt(house: House) -> None:
    (site,) = house.run("Site")
    (page,) = house.run("Page")
    assert (site.promoted, page.promoted) == (True, True)
    assert house.now(PAGE).inputs == (house.now(SITE).uuid,)
    assert house.misses() == 0


def test_a_refresh_of_all_refreshes_dependencies_first(house: House) -> None:
    house.run()
    house.clock.sleep(60)
    for name in ("Site", "Page"):
        corpus.write(house.docs(name), range(6, 8))
    claimed: list[PartitionRef] = []

    def claim(real: Callable[..., Any], job_id: str, ref: PartitionRef, *args: Any, **options: Any) -> Any:
        found = real(job_id, ref, *args, **options)
        claimed.extend(ref for _ in found[:1])
        return found

    results = house.run("Page", "Site", ledger=replaced(house.ledger, {"slices.claim": claim}))
    assert [each.state for each in results] == [JobState.COMPLETED] * 2
    assert claimed == sorted(claimed, key=[SITE, PAGE].index)
    assert house.now(PAGE).inputs == (house.now(SITE).uuid,)
    house.intact()


def test_plans_name_awaited_dependencies(house: House) -> None:
    house.declare(Site="", Page="Site", Top="Page, Site")
    container = house.container()
    plans = {
        setup.ref: plan_entity(setup, house.ledger, PlanOptions(), "", choose=container.engines.choose)
        for setup in container.setups()
    }
    assert [plans[ref].waits_for for ref in (SITE, PAGE, TOP)] == [(), (SITE,), (PAGE, SITE)]
    house.run("Site")
    (setup,) = container.setups(["Top"])
    plan = plan_entity(setup, house.ledger, PlanOptions(), "", choose=container.engines.choose)
    assert as_json(plan_answer(plan, explain=False))["waits_for"] == [str(PAGE)]


# Failures.


def test_an_upstream_failure_fails_its_dependents_with_the_chain_named(house: House) -> None:
    house.declare(Site="", Page="Site", Top="Page")
    user = house.want("user", TOP)
    assert user.state is WantState.IDLE
    results = house.run("Top", breaks=[SITE])
    assert {each.plan.ref: each.state for each in results} == dict.fromkeys((SITE, PAGE, TOP), JobState.FAILED)
    error = f"{TOP} waits for {PAGE}, which failed: {FAILED}"
    (status,) = [each for job in house.ledger.jobs.newest() for each in job.parts if each.part.ref == TOP]
    assert (status.error or "").startswith(error)
    assert any(note.startswith(error) for note in results[-1].notes)
    user = house.wanted("user")
    assert user.state is WantState.UPSTREAM_FAILED
    assert (user.error or "").startswith(error)
    for ref in (SITE, PAGE, TOP):
        assert (house.now(ref).state, house.now(ref).reason) == (InstanceState.MISSING, Reason.FAILURE)
    house.intact()
    assert {each.state for each in house.run("Top")} == {JobState.COMPLETED}
    house.intact()


def test_parts_of_one_job_fail_with_each_other(house: House) -> None:
    results = house.run(breaks=[SITE])
    assert [each.state for each in results] == [JobState.FAILED] * 2
    (job,) = house.ledger.jobs.newest()
    assert job.state is JobState.FAILED
    assert (job.part(PAGE).error or "").startswith(FAILED)
    house.intact()


def test_a_dependency_that_can_never_be_built_is_not_awaited_for_ever(house: House) -> None:
    house.empty("Site")
    (page,) = house.run("Page")
    assert page.state is JobState.FAILED
    why = "canceled: not indexed yet; there are no documents to index in "
    assert any(note.startswith(f"{PAGE} waits for {SITE}, and that wait was {why}") for note in page.notes)
    house.want("user")
    house.serve()
    assert house.wanted("user").state is WantState.UPSTREAM_FAILED
    house.intact()


def test_canceling_the_derivative_want_ends_the_wait(house: House) -> None:
    house.dies_waiting()
    house.ledger.events.append([WantCanceled(want=house.derivative().id, by="ann", why="not now")])
    house.clock.sleep(3600)
    house.serve("Page")
    (job,) = house.ledger.jobs.newest()
    assert job.part(PAGE).error == f"{PAGE} waits for {SITE}, and that wait was canceled by ann: not now"
    assert job.state is JobState.FAILED
    house.intact()


def test_a_refresh_that_waits_leaves_the_served_index_when_its_upstream_fails(house: House) -> None:
    house.run()
    served = house.ledger.checkpoints.get(PAGE)
    house.ledger.events.append([InstanceTainted(instance=house.now(SITE).uuid)])
    corpus.write(house.docs("Page"), range(6, 8))
    *_, page = house.run("Page", breaks=[SITE])
    assert page.state is JobState.FAILED
    assert (house.now(PAGE).state, house.ledger.checkpoints.get(PAGE)) == (InstanceState.LIVE, served)
    house.clock.sleep(1)
    *_, page = house.run("Page")
    assert (page.state, page.counts.written) == (JobState.COMPLETED, 2)
    assert house.now(SITE).uuid in house.now(PAGE).inputs
    house.intact()


# Crashes, and other workers.


def test_a_job_that_waits_is_continued_by_any_worker(house: House) -> None:
    house.dies_waiting()
    assert house.now(PAGE).waits == (house.derivative().id,)
    house.clock.sleep(3600)
    house.serve()
    assert house.now(PAGE).inputs == (house.now(SITE).uuid,)
    assert [job.state for job in house.ledger.jobs.newest()] == [JobState.COMPLETED] * 2
    house.intact()


def test_a_waiting_job_and_its_dependencies_are_resumed_by_the_next_run(house: House) -> None:
    house.dies_waiting()
    house.clock.sleep(3600)
    frozen = replaced(house.ledger, {"slices.claim": _gone, "jobs.leave": _gone, "workers.retire": _gone})
    with pytest.raises(Gone):
        house.run("Site", ledger=frozen, background=Still())
    house.clock.sleep(3600)
    (page,) = house.run("Page")
    assert (page.plan.ref, page.state) == (PAGE, JobState.COMPLETED)
    assert [job.state for job in house.ledger.jobs.newest()] == [JobState.COMPLETED] * 2
    house.intact()


def test_slices_of_a_waiting_part_are_not_claimed(house: House) -> None:
    house.dies_waiting()
    house.clock.sleep(3600)
    claims: list[Any] = []

    def claim(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        claims.append(args)
        return real(*args, **options)

    house.serve("Page", ledger=replaced(house.ledger, {"slices.claim": claim}))
    assert claims == [], "it has nothing to do, and leaves"
    assert house.ledger.workers.all() == []
    house.run("Site")
    house.serve("Page", ledger=replaced(house.ledger, {"slices.claim": claim}))
    assert claims
    assert house.now(PAGE).state is InstanceState.LIVE
    house.intact()


def test_a_job_that_was_stopped_while_it_waited_continues_with_the_next_run(house: House) -> None:
    house.dies_waiting()
    (job,) = house.ledger.jobs.newest()
    house.ledger.jobs.request_stop(job.id, "stopped by ann")
    house.clock.sleep(3600)
    assert {each.state for each in house.run("Page")} == {JobState.COMPLETED}
    house.intact()


def test_stopping_an_awaited_build_stops_the_waiting_run(house: House) -> None:
    def stop(real: Callable[..., Any], job_id: str, ref: PartitionRef, *args: Any, **options: Any) -> Any:
        if ref == SITE:
            house.ledger.jobs.request_stop(job_id, "stopped by ann")
        return real(job_id, ref, *args, **options)

    with pytest.raises(UserError, match=r"Site@global, for which this run waits: .* stopped by ann"):
        house.run("Page", ledger=replaced(house.ledger, {"slices.claim": stop}))
    assert {each.state for each in house.run("Page")} == {JobState.COMPLETED}
    house.intact()


def test_a_part_whose_instance_has_failed_is_ended_and_its_partition_built_anew(house: House) -> None:
    """A want of the next instance is begun after the old part has ended, and not again and again before that."""
    house.dies_waiting()
    house.ledger.events.append([WantCanceled(want=house.derivative().id)])
    house.want("user")
    house.clock.sleep(3600)
    house.serve()
    assert house.wanted("user").state is WantState.SUCCESSFUL
    assert [job.state for job in reversed(house.ledger.jobs.newest())] == [
        JobState.FAILED,
        JobState.COMPLETED,
        JobState.COMPLETED,
    ]
    house.intact()


def test_a_job_being_resumed_is_joined_once_and_then_awaited(house: House) -> None:
    """Until then it is STOPPED, and no part of it open: to join it again and again would be a loop without a pause."""
    container = house.container()
    setups = {each.ref: each for each in container.setups()}
    planner = Planner(setups, house.context(container), PlanOptions(), {})
    planning, resuming, idle = [Worker(setups, planner.context, "worker") for _ in range(3)]
    first = Acquisition({SITE: planner.plan(SITE)}, planner, planning.membership, deadline=0.0)
    first.get()
    job_id = first.taken[SITE]
    missed = DependencyMissed(job=job_id, instances=(house.now(SITE).uuid,), want="up", missing=(str(TOP),))
    house.ledger.events.append([missed, WantCanceled(want="up")])
    house.ledger.jobs.request_stop(job_id)
    planning.end()
    lease = house.ledger.leases.acquire(SITE, job_id, resuming.id)
    assert isinstance(lease, Lease)
    house.ledger.parts.adopt(lease)
    assert house.want("user", SITE).state is WantState.IDLE
    assert not house.ledger.open_parts.on({SITE})
    fulfiller = WantScheduler(planner)
    assert [fulfiller.begin(idle.membership) for _ in range(3)] == [True, False, False]


def test_a_part_held_by_another_worker_is_not_started_after_its_instance_failed(house: House) -> None:
    """Joining it again and again, without a slice to be had, would be a loop without a pause."""
    begun: list[bool] = []

    def before_it_goes_on() -> None:
        (job,) = house.ledger.jobs.newest()
        missed = DependencyMissed(job=job.id, instances=(house.now(SITE).uuid,), want="up", missing=(str(TOP),))
        house.ledger.events.append([missed, WantCanceled(want="up")])
        assert house.want("user", SITE).state is WantState.IDLE
        container = house.container()
        setups = {each.ref: each for each in container.setups()}
        planner = Planner(setups, house.context(container), PlanOptions(), {})
        worker = Worker(setups, planner.context, "worker")
        begun.append(WantScheduler(planner).begin(worker.membership))
        worker.end()

    (site,) = house.run("Site", engine=pausing(before_it_goes_on))
    assert (begun, site.state) == ([False], JobState.FAILED)
    house.serve()
    assert house.wanted("user").state is WantState.SUCCESSFUL
    house.intact()


# The seed's scenarios.


def test_four_wants_of_one_build_wait_for_its_dependency_and_succeed_with_it(house: House) -> None:
    names = ["w1", "w2", "w3", "w4"]
    assert house.want("w1").state is WantState.IDLE
    house.dies_waiting()
    page = house.now(PAGE)
    assert page.state is InstanceState.BUILDING
    for name in names[1:]:
        house.want(name)
    assert house.states(*names) == {WantState.UPSTREAM_BUILDING}
    derivative = house.derivative()
    assert (derivative.state, derivative.refs) == (WantState.IDLE, (str(SITE),))
    assert {house.wanted(name).upstream for name in names} == {(derivative.id,)}
    house.run("Site")
    assert house.wanted(derivative.id).state is WantState.SUCCESSFUL
    assert house.states(*names) == {WantState.BUILDING}
    house.clock.sleep(3600)
    house.serve()
    assert house.states(*names) == {WantState.SUCCESSFUL}
    assert {house.wanted(name).instances for name in names} == {(page.uuid,)}
    house.intact()


def test_a_missed_dependency_that_fails_fails_all_wants(house: House) -> None:
    names = ["w1", "w2", "w3", "w4"]
    for name in names:
        house.want(name)
    house.serve(breaks=[SITE])
    assert house.states(*names) == {WantState.UPSTREAM_FAILED}
    for name in names:
        assert (house.wanted(name).error or "").startswith(FAILED)
    house.intact()
    assert house.want("again").state is WantState.IDLE
    house.serve()
    assert house.wanted("again").state is WantState.SUCCESSFUL
    house.intact()


def test_after_a_rebuild_the_next_build_is_made_from_the_new_instance(house: House) -> None:
    house.run()
    first = house.now(SITE)
    assert house.now(PAGE).inputs == (first.uuid,)
    house.ledger.events.append([InstanceTainted(instance=first.uuid, why="a bad batch", by="ann")])
    old = house.now(PAGE)
    house.ledger.events.append([InstanceTainted(instance=old.uuid)])
    house.want("user")
    house.serve()
    site, page = house.now(SITE), house.now(PAGE)
    assert (site.previous, site.reason, page.inputs) == (first.uuid, Reason.TAINT, (site.uuid,))
    left = house.ledger.instances.get(old.uuid)
    assert left is not None
    assert (left.state, left.inputs) == (InstanceState.TAINTED, (first.uuid,)), "what was built from what stays known"
    assert house.wanted("user").state is WantState.SUCCESSFUL
    house.intact()


def test_an_expired_dependency_is_rebuilt_for_its_dependents(house: House) -> None:
    house.declare("ttl: 1h", Site="", Page="Site")
    house.run()
    before = house.now(SITE)
    house.clock.sleep(3600)
    results = house.run()
    assert [each.plan.found.why for each in results] == [["its time to live is over"]] * 2
    site, page = house.now(SITE), house.now(PAGE)
    assert (site.previous, site.reason) == (before.uuid, Reason.EXPIRY)
    assert page.inputs == (site.uuid,)
    house.intact()


# Wants.


def test_a_want_is_seen_behind_however_many_that_have_time(house: House) -> None:
    house.run()
    house.clock.sleep(60)
    house.want("now", fresh_within=0)
    house.want("there", SITE, fresh_within=0)
    later = house.clock.now() + 3_600_000
    house.ledger.events.append(
        [WantCreated(want=f"later {each}", refs=(str(SITE),), as_of=later) for each in range(150)]
    )
    house.serve()
    assert house.states("now", "there") == {WantState.SUCCESSFUL}
    assert house.states(*(f"later {each}" for each in range(150))) == {WantState.IDLE}
    house.clock.sleep(3600)
    house.serve()
    assert house.states(*(f"later {each}" for each in range(150))) == {WantState.SUCCESSFUL}
    house.intact()
