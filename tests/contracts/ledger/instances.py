"""Instances: made under a lease, and followed through the jobs that build and refresh them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.events import (
    Collected,
    InstanceBuilding,
    InstanceCreated,
    InstanceExpired,
    InstanceFailed,
    InstanceLive,
    InstanceRefreshed,
    InstanceRefreshing,
    InstanceServed,
    InstanceTainted,
    RefreshFailed,
    WantCreated,
)
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobPart, JobState
from instep.domain.refs import event_instance_id
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    fail,
    imported,
    lease_of,
    logged,
    new_part,
    part_of,
    plans,
    register,
    running,
    state_of_everything,
    status_of,
    take_over,
    upstream_fails,
)
from tests.contracts.ledger.fixtures import Fixtures


def _built(ledger: Ledger, job_id: str = "first") -> JobPart:
    part = running(ledger, plans(1), job_id=job_id)
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)
    return part


def _up_to(ledger: Ledger, job_id: str, target: int, *, fresh: bool = False) -> JobPart:
    """A running job that brings the instance up to this watermark."""
    lease = lease_of(ledger, "ann", job_id=job_id)
    part = replace(new_part(ledger, lease, fresh=fresh), target=target)
    ledger.parts.plan(job_id, [NewPart(part, plans(1))])
    ledger.jobs.start(job_id)
    return part


def _served(ledger: Ledger) -> str | None:
    """What readers get, which is what the checkpoint says."""
    reading, checkpoint = ledger.events.state().reading(str(REF)), ledger.checkpoints.get(REF)
    uuid = None if reading is None else reading.uuid
    assert (None if checkpoint is None else checkpoint.instance) == uuid
    return uuid


def _instance(ledger: Ledger, uuid: str) -> Instance:
    instance = ledger.instances.get(uuid)
    assert instance is not None
    return instance


class Instances(Fixtures):
    # New ones.

    def test_the_first_instance_of_a_partition_is_made_by_an_event(self, ledger: Ledger) -> None:
        uuid = ledger.instances.new(lease_of(ledger, "ann"), Reason.REBUILD, by="ann")
        assert logged(ledger) == [InstanceCreated(ref=str(REF), reason=Reason.FIRST, by="ann")]
        assert uuid == event_instance_id(str(REF), "", 1, ledger.naming()), "a replay gives the same one"
        instance = canonical_of(ledger)
        assert (instance.uuid, instance.state, instance.reason) == (uuid, InstanceState.MISSING, Reason.FIRST)
        assert (instance.created_at, instance.by, instance.previous) == (START, "ann", None)

    def test_an_instance_that_is_missing_is_the_one_to_build(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease = lease_of(ledger, "ann")
        first = ledger.instances.new(lease, Reason.FIRST)
        clock.advance(1)
        assert ledger.instances.new(lease, Reason.REBUILD) == first
        assert len(ledger.events.rows()) == 1

    def test_after_a_failure_the_same_instance_is_built(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1), job_id="first")
        fail(ledger, part, "first")
        before = ledger.events.rows()
        uuid = ledger.instances.new(lease_of(ledger, "ann", job_id="second"), Reason.REBUILD)
        assert ledger.events.rows() == before
        instance = canonical_of(ledger)
        assert (instance.uuid, instance.reason, instance.previous) == (uuid, Reason.FAILURE, part.instance)

    @pytest.mark.parametrize("reason", [Reason.REBUILD, Reason.FINGERPRINT])
    def test_a_live_instance_is_left_for_a_reason(self, ledger: Ledger, clock: VirtualClock, reason: Reason) -> None:
        old = _built(ledger)
        clock.advance(1)
        after = len(ledger.events.rows())
        uuid = ledger.instances.new(lease_of(ledger, "ann", job_id="second"), reason, by="bob")
        assert logged(ledger, after) == [InstanceCreated(ref=str(REF), reason=reason, by="bob")]
        new = canonical_of(ledger)
        assert (new.uuid, new.reason, new.previous) == (uuid, reason, old.instance)
        assert _instance(ledger, old.instance).ended_at == START + 1
        assert _served(ledger) == old.instance, "until there is something better"

    @pytest.mark.parametrize("reason", [Reason.FIRST, Reason.TAINT, Reason.FAILURE])
    def test_not_for_any_reason(self, ledger: Ledger, reason: Reason) -> None:
        part = _built(ledger)
        lease = lease_of(ledger, "ann", job_id="second")
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict):
            ledger.instances.new(lease, reason)
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("fresh", [True, False])
    def test_an_instance_in_work_is_not_left(self, ledger: Ledger, fresh: bool) -> None:
        part = running(ledger, plans(1), fresh=fresh)
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict):
            ledger.instances.new(Lease(REF, "job", part.epoch, 0), Reason.REBUILD)
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("loss", ["taken over", "released", "handed over"])
    def test_a_new_instance_needs_the_lease(self, ledger: Ledger, clock: VirtualClock, loss: str) -> None:
        lease = lease_of(ledger, "ann")
        ledger.jobs.begin("next", "ann", {})
        if loss == "released":
            ledger.leases.release(lease)
        elif loss == "handed over":
            ledger.leases.transfer(lease, "next")
        else:
            clock.advance(TIMING.lease)
            lease_of(ledger, "bob", job_id="next")
        with pytest.raises(Fenced):
            ledger.instances.new(lease, Reason.FIRST)
        assert ledger.events.rows() == []

    # Planning.

    def test_planning_begins_a_build(self, ledger: Ledger, clock: VirtualClock) -> None:
        upstream = imported(ledger, OTHER)
        lease = lease_of(ledger, "ann")
        part = replace(new_part(ledger, lease), revision="abc123", inputs=(upstream.uuid,))
        clock.advance(7)
        after = len(ledger.events.rows())
        ledger.parts.plan("job", [NewPart(part, plans(1))])
        assert logged(ledger, after) == [
            InstanceBuilding(
                instance=part.instance,
                job="job",
                target=START + 7,
                fingerprint={"chunker": "c1"},
                revision="abc123",
                inputs=(upstream.uuid,),
            )
        ]
        assert status_of(ledger).part == part, "the part knows it too"
        instance = canonical_of(ledger)
        assert (instance.state, instance.started_at, instance.job) == (InstanceState.BUILDING, START + 7, "job")

    def test_planning_begins_a_refresh_from_where_the_last_job_ended(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = _built(ledger)
        clock.advance(50)
        refresh = new_part(ledger, lease_of(ledger, "ann", job_id="second"), fresh=False)
        clock.advance(7)
        after = len(ledger.events.rows())
        ledger.parts.plan("second", [NewPart(refresh, plans(1))])
        assert logged(ledger, after) == [
            InstanceRefreshing(instance=part.instance, job="second", floor=START, target=START + 57)
        ]
        instance = canonical_of(ledger)
        assert (instance.state, instance.refreshed_by) == (InstanceState.REFRESHING, "second")
        assert _served(ledger) == part.instance

    def test_parts_are_started_in_their_order(self, ledger: Ledger) -> None:
        parts = [new_part(ledger, lease_of(ledger, "ann", ref)) for ref in (OTHER, REF)]
        after = len(ledger.events.rows())
        ledger.parts.plan("job", [NewPart(each, []) for each in parts])
        begun = [event.instance for event in logged(ledger, after) if isinstance(event, InstanceBuilding)]
        assert begun == [each.instance for each in parts]

    @pytest.mark.parametrize("wrong", ["unknown", "left", "live", "missing", "input"])
    def test_a_job_whose_instance_cannot_be_built_is_not_planned(self, ledger: Ledger, wrong: str) -> None:
        old = _built(ledger)
        good = new_part(ledger, lease_of(ledger, "ann", OTHER))
        lease = lease_of(ledger, "ann")
        if wrong == "unknown":
            bad = part_of(lease, instance="unknown")
        elif wrong == "live":
            bad = part_of(lease, instance=old.instance)
        else:
            bad = new_part(ledger, lease)
            if wrong == "left":
                bad = part_of(lease, instance=old.instance, fresh=False)
            elif wrong == "missing":
                bad = replace(bad, fresh=False)
            else:
                bad = replace(bad, inputs=("unknown",))
        before = (
            ledger.events.rows(),
            ledger.instances.newest(REF),
            ledger.instances.newest(OTHER),
            ledger.jobs.get("job"),
        )
        with pytest.raises(Conflict):
            ledger.parts.plan("job", [NewPart(good, plans(1)), NewPart(bad, plans(1))])
        assert (
            ledger.events.rows(),
            ledger.instances.newest(REF),
            ledger.instances.newest(OTHER),
            ledger.jobs.get("job"),
        ) == before
        ledger.parts.plan("job", [NewPart(good, plans(1))])

    # Finishing.

    def test_a_build_that_is_promoted_is_live_and_served(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        complete_all(ledger, part)
        clock.advance(9)
        after = len(ledger.events.rows())
        end(ledger, part)
        counts = Counts(read=2, written=2, rows_written=6)
        assert logged(ledger, after) == [
            InstanceLive(instance=part.instance, job="job", watermark=START, physical=part.physical, counts=counts),
            InstanceServed(instance=part.instance),
        ]
        instance = canonical_of(ledger)
        assert (instance.state, instance.watermark, instance.live_at) == (InstanceState.LIVE, START, START + 9)
        assert _served(ledger) == part.instance

    def test_a_first_build_that_is_served_though_nothing_went_in_is_live(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        ledger.parts.finish("job", part, JobState.FAILED, worker_id="ann", promote=True, error="every document failed")
        assert canonical_of(ledger).state is InstanceState.LIVE
        assert _served(ledger) == part.instance

    @pytest.mark.parametrize("retry", [True, False])
    def test_a_build_that_fails_leaves_a_new_instance_to_build(self, ledger: Ledger, retry: bool) -> None:
        part = running(ledger, plans(1))
        after = len(ledger.events.rows())
        ledger.parts.finish("job", part, JobState.FAILED, worker_id="ann", error="no luck", retry=retry)
        assert logged(ledger, after) == [
            InstanceFailed(instance=part.instance, job="job", error="no luck", retry=retry)
        ]
        failed, new = _instance(ledger, part.instance), canonical_of(ledger)
        assert (failed.state, failed.error) == (InstanceState.FAILED, "no luck")
        assert (new.state, new.previous, new.reason) == (InstanceState.MISSING, part.instance, Reason.FAILURE)
        assert _served(ledger) is None

    def test_a_build_that_is_not_promoted_has_failed(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        ledger.parts.finish("job", part, JobState.COMPLETED, worker_id="ann", error="it is empty")
        failed = _instance(ledger, part.instance)
        assert (failed.state, failed.error) == (InstanceState.FAILED, "it is empty")
        assert status_of(ledger).state is JobState.COMPLETED

    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED])
    def test_a_failure_without_a_reason_names_the_state(self, ledger: Ledger, state: JobState) -> None:
        part = running(ledger, [])
        ledger.parts.finish("job", part, state, worker_id="ann")
        failed = _instance(ledger, part.instance)
        assert failed.state is InstanceState.FAILED
        assert failed.error

    def test_a_refresh_that_is_promoted_moves_the_watermark(self, ledger: Ledger, clock: VirtualClock) -> None:
        _built(ledger)
        clock.advance(50)
        part = running(ledger, plans(1), fresh=False)
        complete_all(ledger, part)
        after = len(ledger.events.rows())
        end(ledger, part)
        counts = Counts(read=2, written=2, rows_written=6)
        assert logged(ledger, after) == [
            InstanceRefreshed(instance=part.instance, job="job", watermark=START + 50, counts=counts)
        ]
        instance = canonical_of(ledger)
        assert (instance.state, instance.watermark, instance.refreshes) == (InstanceState.LIVE, START + 50, 1)
        assert _served(ledger) == part.instance

    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED])
    def test_a_refresh_that_is_not_promoted_has_failed_and_the_instance_is_live_as_before(
        self, ledger: Ledger, clock: VirtualClock, state: JobState
    ) -> None:
        _built(ledger)
        clock.advance(50)
        part = running(ledger, [], fresh=False)
        after = len(ledger.events.rows())
        ledger.parts.finish("job", part, state, worker_id="ann", error="rows are missing", retry=True)
        assert logged(ledger, after) == [
            RefreshFailed(instance=part.instance, job="job", error="rows are missing", retry=True)
        ]
        instance = canonical_of(ledger)
        assert (instance.uuid, instance.state) == (part.instance, InstanceState.LIVE)
        assert (instance.watermark, instance.error) == (START, "rows are missing")
        assert _served(ledger) == part.instance

    def test_a_job_that_waited_for_its_lease_takes_no_watermark_back(self, ledger: Ledger, clock: VirtualClock) -> None:
        _built(ledger)
        register(ledger, "bob")
        clock.advance(10)
        ledger.jobs.begin("early", "bob", {})
        clock.advance(10)
        late = running(ledger, plans(1), job_id="late", fresh=False)
        complete_all(ledger, late, job_id="late")
        end(ledger, late, "late")
        lease = ledger.leases.acquire(REF, "early", "bob")
        assert isinstance(lease, Lease)
        part = new_part(ledger, lease, fresh=False)
        ledger.parts.plan("early", [NewPart(part, [])])
        ledger.jobs.start("early")
        end(ledger, part, "early", "bob")
        checkpoint = ledger.checkpoints.get(REF)
        assert checkpoint is not None
        assert canonical_of(ledger).watermark == checkpoint.watermark == START + 20
        assert canonical_of(ledger).refreshes == 2

    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_part_taken_over_finishes_the_same_instance(self, ledger: Ledger, fresh: bool) -> None:
        part = running(ledger, plans(1), fresh=fresh)
        before = ledger.events.rows()
        adopted = take_over(ledger)
        assert ledger.events.rows() == before
        complete_all(ledger, adopted, "bob")
        end(ledger, adopted, worker="bob")
        assert (canonical_of(ledger).uuid, canonical_of(ledger).state) == (part.instance, InstanceState.LIVE)

    # Changes during a build.

    @pytest.mark.parametrize("how", [InstanceTainted, InstanceExpired])
    @pytest.mark.parametrize("fresh", [True, False])
    def test_an_instance_in_work_is_neither_tainted_nor_expired(self, ledger: Ledger, fresh: bool, how: type) -> None:
        """A user who wants that stops the job first, or waits for it."""
        _built(ledger)
        part = running(ledger, plans(1), fresh=fresh)
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict, match="would have to be Live"):
            ledger.events.append([how(instance=part.instance)])
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("before", [False, True])
    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_part_of_an_instance_that_failed_is_not_promoted(self, ledger: Ledger, fresh: bool, before: bool) -> None:
        """What it waited for failed while its last slices were done."""
        old = _built(ledger).instance if before else None
        part = running(ledger, plans(1), fresh=fresh)
        complete_all(ledger, part)
        upstream_fails(ledger, part)
        untouched = state_of_everything(ledger, part), ledger.events.rows()
        for _ in range(2):
            with pytest.raises(Conflict, match="left" if fresh else "Refreshing"):
                end(ledger, part)
        assert (state_of_everything(ledger, part), ledger.events.rows()) == untouched
        checkpoint = ledger.checkpoints.get(REF)
        assert fail(ledger, part) is JobState.FAILED, "its finisher ends it so, when it has looked after the target"
        assert ledger.events.rows() == untouched[1], "nothing is said of an instance that is not this job's any more"
        assert ledger.checkpoints.get(REF) == checkpoint
        assert canonical_of(ledger).state is (InstanceState.MISSING if fresh else InstanceState.LIVE)
        if fresh:
            assert _instance(ledger, part.instance).state is InstanceState.FAILED
            assert ledger.documents.entries(part.instance) == {}
            assert _served(ledger) == old
        assert isinstance(lease_of(ledger, "bob", job_id="next"), Lease), "the lease is free"
        assert ledger.events.verify().differences == ()

    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_part_whose_instance_is_not_in_work_can_be_given_up(self, ledger: Ledger, fresh: bool) -> None:
        _built(ledger)
        part = running(ledger, plans(1), fresh=fresh)
        upstream_fails(ledger, part)
        log = ledger.events.rows()
        assert fail(ledger, part) is JobState.FAILED
        assert ledger.events.rows() == log

    def test_a_tainted_instance_is_served_until_the_next_build_is_promoted(self, ledger: Ledger) -> None:
        old = _built(ledger)
        checkpoint = ledger.checkpoints.get(REF)
        ledger.events.append([InstanceTainted(instance=old.instance, why="wrong model", by="ann")])
        assert ledger.checkpoints.get(REF) == checkpoint
        assert _served(ledger) == old.instance
        part = running(ledger, plans(1))
        new = canonical_of(ledger)
        assert (part.instance, new.reason, new.previous) == (new.uuid, Reason.TAINT, old.instance)
        complete_all(ledger, part)
        end(ledger, part)
        assert _served(ledger) == part.instance

    def test_an_abandoned_instance_is_not_refreshed(self, ledger: Ledger) -> None:
        old = _built(ledger)
        ledger.events.append([InstanceTainted(instance=old.instance)])
        lease = lease_of(ledger, "ann")
        with pytest.raises(Conflict, match="left"):
            ledger.parts.plan("job", [NewPart(part_of(lease, instance=old.instance, fresh=False), plans(1))])

    # Looking.

    def test_instances_of_a_partition_are_listed_newest_first(self, ledger: Ledger) -> None:
        imported(ledger, OTHER)
        uuids = []
        for number in range(3):
            part = running(ledger, plans(1), job_id=f"job-{number}")
            uuids.append(part.instance)
            fail(ledger, part, f"job-{number}")
        ledger.events.append([InstanceCreated(ref=str(REF), reason=Reason.GENERATION, generation="v2")])
        found = ledger.instances.newest(REF)
        assert [each.uuid for each in found[2:]] == uuids[::-1]
        assert [(each.generation, each.state) for each in found[:2]] == [
            ("v2", InstanceState.MISSING),
            ("", InstanceState.MISSING),
        ]
        assert ledger.instances.newest(REF, 3) == found[:3]
        assert [each.sequence for each in found] == sorted((each.sequence for each in found), reverse=True)

    def test_each_generation_has_its_canonical_instance(self, ledger: Ledger) -> None:
        first = imported(ledger)
        ledger.events.append([InstanceCreated(ref=str(REF), reason=Reason.GENERATION, generation="v2")])
        second = ledger.instances.canonical(REF, "v2")
        assert second is not None
        assert (second.generation, second.reason) == ("v2", Reason.GENERATION)
        assert canonical_of(ledger) == first
        assert ledger.instances.canonical(REF, "v3") is None
        assert ledger.instances.canonical(OTHER) is None

    def test_unknown_instances_are_none(self, ledger: Ledger) -> None:
        assert ledger.instances.get("unknown") is None
        assert ledger.instances.canonical(REF) is None
        assert ledger.instances.newest(REF) == []

    def test_the_part_that_wrote_under_an_epoch_is_found(self, ledger: Ledger) -> None:
        assert ledger.parts.of_epoch(REF, 1) is None
        first = _built(ledger, "first")
        running(ledger, plans(1), job_id="second")
        second = take_over(ledger, job_id="second")
        assert (first.epoch, second.epoch) == (1, 3)
        assert ledger.parts.of_epoch(REF, 1) == ("first", first)
        for epoch in (2, 3):
            assert ledger.parts.of_epoch(REF, epoch) == ("second", second), "it began under 2"
        assert ledger.parts.of_epoch(REF, 4) is None
        assert ledger.parts.of_epoch(OTHER, 1) is None

    def test_the_part_that_brought_a_watermark_in_is_found(self, ledger: Ledger) -> None:
        first = _up_to(ledger, "first", 100, fresh=True)
        complete_all(ledger, first, job_id="first")
        end(ledger, first, "first")
        assert ledger.parts.reaching(REF, first.instance, 0) == ("first", first)
        assert ledger.parts.reaching(REF, first.instance, 100) == ("first", first)
        assert ledger.parts.reaching(REF, first.instance, 101) is None
        lost = _up_to(ledger, "lost", 200)
        assert ledger.parts.reaching(REF, first.instance, 101) == ("lost", lost), "it has begun"
        fail(ledger, lost, "lost")
        assert ledger.parts.reaching(REF, first.instance, 101) == ("lost", lost), "no other part has reached it yet"
        last = _up_to(ledger, "last", 300)
        complete_all(ledger, last, job_id="last")
        end(ledger, last, "last")
        for watermark in (101, 200, 201, 300):
            assert ledger.parts.reaching(REF, first.instance, watermark) == ("last", last)
        assert ledger.parts.reaching(REF, "another", 0) is None
        assert ledger.parts.reaching(OTHER, first.instance, 0) is None

    # Collecting.

    def test_abandoned_instances_can_be_forgotten(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        ledger.events.append([WantCreated(want="a", refs=(str(REF),))])
        fail(ledger, part)
        after = len(ledger.events.rows())
        ledger.events.collect([part.instance], ["a"])
        assert logged(ledger, after) == [Collected(instances=(part.instance,), wants=("a",))]
        assert ledger.instances.get(part.instance) is None
        assert ledger.instances.newest(REF) == [canonical_of(ledger)]
        assert (ledger.wants.get("a"), ledger.wants.newest(), ledger.wants.newest(ref=REF)) == (None, [], [])
        assert ledger.jobs.get("job") is not None, "jobs stay"
        assert ledger.events.verify().differences == ()

    def test_nothing_to_forget_is_no_event(self, ledger: Ledger) -> None:
        ledger.events.collect([], [])
        assert ledger.events.rows() == []

    @pytest.mark.parametrize("what", ["canonical", "served", "unknown", "an open want", "an unknown want"])
    def test_forgetting_an_instance_in_use_is_refused_as_a_whole(self, ledger: Ledger, what: str) -> None:
        built = _built(ledger)
        failed = running(ledger, plans(1), job_id="second")
        fail(ledger, failed, "second")
        ledger.events.append([WantCreated(want="open", refs=(str(OTHER),))])
        instances, wants = [failed.instance], list[str]()
        if what == "canonical":
            instances.append(canonical_of(ledger).uuid)
        elif what == "served":
            instances.append(built.instance)
        elif what == "unknown":
            instances.append("unknown")
        else:
            wants.append("open" if what == "an open want" else "unknown")
        before = state_of_everything(ledger, built)
        with pytest.raises(Conflict):
            ledger.events.collect(instances, wants)
        assert state_of_everything(ledger, built) == before
