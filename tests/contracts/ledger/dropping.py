"""A partition is dropped: as if it had never been indexed, but for its history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.events import InstanceCreated, InstanceServed, PartitionDropped, WantCreated
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobPart, JobState, SliceState
from instep.domain.lineage import collectable
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    job_of,
    lease_of,
    logged,
    new_part,
    outcome,
    part_of,
    plans,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures


def _running(ledger: Ledger, job_id: str, ref: PartitionRef = REF, generation: str = "") -> JobPart:
    lease = lease_of(ledger, "ann", ref, job_id=job_id)
    part = part_of(lease, instance=ledger.instances.new(lease, Reason.REBUILD, generation=generation))
    part = replace(part, generation=generation)
    ledger.parts.plan(job_id, [NewPart(part, plans(2))])
    ledger.jobs.start(job_id)
    return part


def _built(ledger: Ledger, job_id: str, ref: PartitionRef = REF, generation: str = "") -> JobPart:
    """With a document that could not be indexed."""
    part = _running(ledger, job_id, ref, generation)
    claims = claim_all(ledger, job_id=job_id, ref=ref)
    ledger.slices.complete(part, "ann", [outcome(each, fail=[0]) for each in claims], job_id=job_id)
    end(ledger, part, job_id)
    return part


def _drop(ledger: Ledger, ref: PartitionRef = REF, by: str = "ann") -> Lease:
    lease = lease_of(ledger, "ann", ref, job_id="drop")
    ledger.partitions.drop(lease, by=by)
    return lease


def _all_of(ledger: Ledger, ref: PartitionRef, part: JobPart) -> object:
    return (
        [ledger.instances.canonical(ref, each) for each in ("", "v2")],
        ledger.checkpoints.of_partition(ref),
        ledger.partitions.promoted(ref),
        ledger.documents.entries(part.instance),
        ledger.failures.count(ref),
        ledger.failures.newest(ref),
    )


class Dropping(Fixtures):
    def test_nothing_of_it_is_indexed_any_more_and_the_rest_stays(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = _built(ledger, "first")
        second = _built(ledger, "second", generation="v2")
        other = _built(ledger, "other", OTHER)
        before = _all_of(ledger, OTHER, other)
        clock.advance(5)
        after = ledger.events.rows()[-1][0]
        _drop(ledger)
        assert logged(ledger, after) == [PartitionDropped(ref=str(REF), generations=("", "v2"), by="ann")]
        assert _all_of(ledger, REF, first) == ([None, None], [], None, {}, 0, [])
        assert ledger.documents.entries(second.instance) == {}
        assert ledger.partitions.indexes(REF.entity) == set()
        assert ledger.checkpoints.of_entity(REF.entity) == []
        assert _all_of(ledger, OTHER, other) == before
        assert ledger.events.state().served.keys() == {(str(OTHER), "")}
        assert ledger.events.verify().differences == ()

    def test_its_history_stays_until_it_is_collected(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = _built(ledger, "first")
        clock.advance(5)
        _drop(ledger)
        (left,) = ledger.instances.newest(REF)
        assert (left.uuid, left.state, left.watermark) == (part.instance, InstanceState.LIVE, START)
        assert (left.ended_at, left.why) == (START + 5, "dropped by ann")
        assert job_of(ledger, "first").state is JobState.COMPLETED_WITH_ERRORS
        assert collectable(ledger.events.state(), clock.now(), 1) == []
        assert collectable(ledger.events.state(), clock.now(), 0) == [part.instance]
        ledger.events.collect([part.instance], [])
        assert ledger.instances.newest(REF) == []

    def test_a_dropped_partition_can_be_built_again(self, ledger: Ledger) -> None:
        old = _built(ledger, "first")
        lease = _drop(ledger)
        after = ledger.events.rows()[-1][0]
        ledger.leases.release(lease)
        part = _built(ledger, "again")
        assert part.instance != old.instance
        assert part.epoch > old.epoch
        assert logged(ledger, after)[0] == InstanceCreated(ref=str(REF), reason=Reason.FIRST)
        assert ledger.partitions.promoted(REF) == ""
        checkpoint = ledger.checkpoints.get(REF)
        assert checkpoint is not None
        assert checkpoint.instance == part.instance
        (failure,) = ledger.failures.newest(REF)
        assert failure.attempts == 1, "those of before do not count"
        assert [each.uuid for each in ledger.instances.newest(REF)] == [part.instance, old.instance]
        assert ledger.instances.newest(REF)[0].previous is None
        assert ledger.events.verify().differences == ()

    def test_a_dropped_instance_is_not_served_again(self, ledger: Ledger) -> None:
        old = _built(ledger, "first")
        _drop(ledger)
        with pytest.raises(Conflict, match="was dropped"):
            ledger.events.append([InstanceServed(instance=old.instance)])
        assert ledger.partitions.promoted(REF) is None

    def test_dropping_and_building_again_is_possible_at_once(self, ledger: Ledger) -> None:
        """In one transaction: what goes and what comes must not be taken for each other."""
        _built(ledger, "first")
        new = InstanceCreated(ref=str(REF), reason=Reason.FIRST)
        ledger.events.append([PartitionDropped(ref=str(REF)), new, PartitionDropped(ref=str(REF)), new])
        (current, *left) = ledger.instances.newest(REF)
        assert ledger.instances.canonical(REF) == current
        assert [(each.state, each.ended_at is None) for each in left] == [
            (InstanceState.MISSING, False),
            (InstanceState.LIVE, False),
        ]
        assert ledger.partitions.promoted(REF) is None
        assert ledger.events.verify().differences == ()

    def test_wants_on_it_are_canceled(self, ledger: Ledger) -> None:
        _built(ledger, "first")
        ahead = START + 1_000_000
        for want, refs, generation in (
            ("its", (REF,), ""),
            ("both", (REF, OTHER), ""),
            ("v2", (REF,), "v2"),
            ("other", (OTHER,), ""),
        ):
            named = tuple(map(str, refs))
            ledger.events.append([WantCreated(want=want, refs=named, generation=generation, as_of=ahead)])
        _drop(ledger)
        states = {each.id: (each.state, each.error) for each in ledger.wants.newest()}
        canceled = (WantState.CANCELED, f"canceled: {REF} was dropped by ann")
        assert states == {"its": canceled, "both": canceled, "v2": canceled, "other": (WantState.IDLE, None)}
        assert [each.id for each in ledger.wants.newest(open_only=True)] == ["other"]
        assert ledger.events.verify().differences == ()

    def test_wants_on_a_partition_that_never_was_are_canceled_too(self, ledger: Ledger) -> None:
        ledger.events.append([WantCreated(want="want", refs=(str(REF),))])
        _drop(ledger, by="")
        want = ledger.wants.get("want")
        assert want is not None
        assert (want.state, want.error) == (WantState.CANCELED, f"canceled: {REF} was dropped")

    def test_nothing_is_appended_where_nothing_is(self, ledger: Ledger) -> None:
        _drop(ledger)
        assert ledger.events.rows() == []
        _built(ledger, "other", OTHER)
        lease = lease_of(ledger, "ann", OTHER, job_id="again")
        ledger.partitions.drop(lease)
        before = ledger.events.rows()
        ledger.partitions.drop(lease)
        assert ledger.events.rows() == before

    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_job_that_was_stopped_is_not_resumed(self, ledger: Ledger, clock: VirtualClock, fresh: bool) -> None:
        if not fresh:
            _built(ledger, "first")
        lease = lease_of(ledger, "ann", job_id="stopped")
        beside = lease_of(ledger, "ann", OTHER, job_id="stopped")
        part, other = new_part(ledger, lease, fresh=fresh), new_part(ledger, beside)
        ledger.parts.plan("stopped", [NewPart(part, plans(3)), NewPart(other, plans(1))])
        ledger.jobs.start("stopped")
        (done,) = ledger.slices.claim("stopped", REF, "ann", work=1, limit=1)
        ledger.slices.complete(part, "ann", [outcome(done)], job_id="stopped")
        ledger.jobs.request_stop("stopped", "enough")
        clock.advance(9)
        _drop(ledger)
        assert ledger.jobs.unfinished(REF) is None
        assert ledger.documents.entries(part.instance) == {}
        status = status_of(ledger, REF, "stopped")
        assert (status.state, status.finished_at, status.error) == (
            JobState.FAILED,
            START + 9,
            f"{REF} was dropped",
        )
        assert status.slices == {SliceState.COMPLETED: 1, SliceState.CANCELLED: 2}
        left = ledger.instances.get(part.instance)
        assert left is not None
        assert (left.state, left.left) == (InstanceState.FAILED if fresh else InstanceState.LIVE, True)
        assert left.worked_on_by is None
        assert job_of(ledger, "stopped").state is JobState.STOPPED, "its other part can be resumed"
        again = ledger.parts.adopt(lease_of(ledger, "ann", OTHER, job_id="stopped"))
        ledger.jobs.start("stopped")
        complete_all(ledger, again, job_id="stopped")
        assert end(ledger, again, "stopped") is JobState.COMPLETED_WITH_ERRORS
        assert ledger.events.verify().differences == ()

    def test_a_job_of_nothing_else_has_failed(self, ledger: Ledger) -> None:
        _running(ledger, "stopped")
        ledger.jobs.request_stop("stopped", "enough")
        lease = _drop(ledger)
        job = job_of(ledger, "stopped")
        assert (job.state, job.error) == (JobState.FAILED, f"{REF} was dropped")
        assert ledger.leases.renew(lease).epoch == lease.epoch, "who dropped it still has its lease"

    def test_dropping_needs_the_lease(self, ledger: Ledger) -> None:
        part = _built(ledger, "first")
        lease = lease_of(ledger, "ann", job_id="drop")
        ledger.leases.release(lease)
        lease_of(ledger, "bob", job_id="next")
        before = _all_of(ledger, REF, part), ledger.events.rows()
        with pytest.raises(Fenced):
            ledger.partitions.drop(lease)
        assert (_all_of(ledger, REF, part), ledger.events.rows()) == before

    def test_a_replay_and_a_snapshot_say_the_same(self, ledger: Ledger) -> None:
        _built(ledger, "first")
        _drop(ledger)
        assert ledger.events.rebuild_projections().differences == ()
        state = ledger.events.state()
        assert (state.canonical, state.served, state.promoted) == ({}, {}, {})
        assert ledger.instances.canonical(REF) is None
