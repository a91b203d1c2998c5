"""Generations: instances of one partition side by side, each with its own checkpoint, manifest and failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.events import GenerationPromoted, InstanceCreated, InstanceServed
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobPart, JobState, tries_of
from instep.domain.refs import event_instance_id
from instep.errors import Conflict
from instep.ledger.leases import Holder
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    canonical_of,
    change,
    claim_all,
    complete_all,
    end,
    fail,
    lease_of,
    logged,
    outcome,
    part_of,
    plans,
    register,
)
from tests.contracts.ledger.fixtures import Fixtures


def _running(ledger: Ledger, generation: str, job_id: str) -> JobPart:
    """A running job of worker `ann` that builds this generation."""
    lease = lease_of(ledger, "ann", job_id=job_id)
    uuid = ledger.instances.new(lease, Reason.REBUILD, generation=generation)
    part = part_of(lease, instance=uuid, generation=generation)
    ledger.parts.plan(job_id, [NewPart(part, plans(2))])
    ledger.jobs.start(job_id)
    return part


def _built(ledger: Ledger, generation: str, job_id: str) -> JobPart:
    part = _running(ledger, generation, job_id)
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)
    return part


def _served(ledger: Ledger, generation: str = "") -> str | None:
    checkpoint = ledger.checkpoints.get(REF, generation)
    return None if checkpoint is None else checkpoint.instance


class Generations(Fixtures):
    def test_the_first_instance_of_a_generation_is_made_by_an_event(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        one = ledger.instances.new(lease, Reason.FIRST)
        two = ledger.instances.new(lease, Reason.FIRST, generation="v2", by="ann")
        made = InstanceCreated(ref=str(REF), reason=Reason.GENERATION, generation="v2", by="ann")
        assert logged(ledger, 1) == [made]
        assert two == event_instance_id(str(REF), "v2", 2, ledger.naming()), "a replay gives the same one"
        assert ledger.instances.new(lease, Reason.REBUILD, generation="v2") == two, "it is Missing: that is to be built"
        assert canonical_of(ledger).uuid == one
        there = ledger.instances.canonical(REF, "v2")
        assert there is not None
        assert (there.uuid, there.generation, there.previous) == (two, "v2", None)

    def test_each_generation_has_its_own_checkpoint_and_manifest(self, ledger: Ledger, clock: VirtualClock) -> None:
        one = _built(ledger, "", "first")
        clock.advance(5)
        two = _built(ledger, "v2", "second")
        assert (_served(ledger), _served(ledger, "v2"), _served(ledger, "v3")) == (one.instance, two.instance, None)
        assert [each.generation for each in ledger.checkpoints.of_partition(REF)] == ["", "v2"]
        assert ledger.checkpoints.of_partition(REF) == [ledger.checkpoints.get(REF), ledger.checkpoints.get(REF, "v2")]
        assert ledger.checkpoints.of_partition(OTHER) == []
        assert len(ledger.documents.entries(one.instance)) == len(ledger.documents.entries(two.instance)) == 4
        three = _built(ledger, "v2", "third")
        assert (_served(ledger), _served(ledger, "v2")) == (one.instance, three.instance)
        assert ledger.documents.entries(two.instance) == {}, "it was replaced, and the other generation was not"
        assert len(ledger.documents.entries(one.instance)) == 4
        assert ledger.events.verify().differences == ()

    def test_documents_removed_from_one_generation_stay_in_the_others(self, ledger: Ledger) -> None:
        one, two = _built(ledger, "", "first"), _built(ledger, "v2", "second")
        documents = sorted(each.document_id for each in ledger.documents.entries(one.instance).values())
        lease = lease_of(ledger, "ann", job_id="third")
        part = part_of(lease, instance=two.instance, fresh=False, generation="v2")
        ledger.parts.plan("third", [NewPart(part, plans(1))])
        ledger.jobs.start("third")
        (claim,) = claim_all(ledger, job_id="third")
        gone = replace(outcome(claim), entries=(), removed=documents[:1])
        ledger.slices.complete(part, "ann", [gone], job_id="third")
        assert sorted(each.document_id for each in ledger.documents.entries(two.instance).values()) == documents[1:]
        assert sorted(each.document_id for each in ledger.documents.entries(one.instance).values()) == documents

    def test_a_refresh_continues_from_the_checkpoint_of_its_generation(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        _built(ledger, "", "first")
        clock.advance(5)
        two = _built(ledger, "v2", "second")
        before = ledger.checkpoints.get(REF, "v2")
        assert before is not None
        clock.advance(5)
        lease = lease_of(ledger, "ann", job_id="third")
        part = part_of(lease, instance=two.instance, fresh=False, generation="v2")
        ledger.parts.plan("third", [NewPart(part, plans(1))])
        there = ledger.instances.canonical(REF, "v2")
        assert there is not None
        assert (there.state, there.floor) == (InstanceState.REFRESHING, before.watermark)
        ledger.jobs.start("third")
        complete_all(ledger, part, job_id="third")
        end(ledger, part, "third")
        after, other = ledger.checkpoints.get(REF, "v2"), ledger.checkpoints.get(REF)
        assert after is not None
        assert other is not None
        assert (after.job_id, after.sequence) == ("third", before.sequence)
        assert after.watermark > before.watermark > other.watermark

    def test_jobs_are_looked_up_by_generation(self, ledger: Ledger, clock: VirtualClock) -> None:
        _built(ledger, "", "first")
        clock.advance(5)
        part = _running(ledger, "v2", "second")
        unfinished = ledger.jobs.unfinished(REF, "v2")
        assert unfinished is not None
        assert unfinished.id == "second"
        assert unfinished.part(REF).part == part
        assert ledger.jobs.unfinished(REF) is None
        assert [each.part.generation for each in ledger.open_parts.on([REF])] == ["v2"]
        assert [job.id for job in (ledger.jobs.latest(REF), ledger.jobs.latest(REF, "v2")) if job] == [
            "first",
            "second",
        ]
        assert ledger.jobs.latest(REF, "v3") is None
        assert ledger.parts.of_epoch(REF, part.epoch) == ("second", part)

    def test_one_job_builds_a_partition_for_all_generations(self, ledger: Ledger) -> None:
        one = _running(ledger, "", "first")
        register(ledger, "bob")
        ledger.jobs.begin("second", "bob", {})
        holder = ledger.leases.acquire(REF, "second", "bob")
        assert isinstance(holder, Holder)
        assert holder.job_id == "first"
        complete_all(ledger, one, job_id="first")
        end(ledger, one, "first")
        assert lease_of(ledger, "bob", job_id="second").epoch > one.epoch

    def test_a_stopped_job_of_one_generation_does_not_keep_others_from_being_built(self, ledger: Ledger) -> None:
        _running(ledger, "v2", "first")
        ledger.jobs.leave("first", "ann", stop="enough")
        other = _built(ledger, "", "second")
        assert _served(ledger) == other.instance
        part = ledger.parts.adopt(lease_of(ledger, "ann", job_id="first"))
        assert part.generation == "v2"
        ledger.jobs.start("first")
        complete_all(ledger, part, job_id="first")
        assert end(ledger, part, "first") is JobState.COMPLETED
        assert _served(ledger, "v2") == part.instance

    def test_each_generation_has_its_own_failures(self, ledger: Ledger, clock: VirtualClock) -> None:
        for generation, failing in (("", [0, 1]), ("v2", [1])):
            part = _running(ledger, generation, f"job{generation}")
            first, second = claim_all(ledger, job_id=f"job{generation}")
            outcomes = [outcome(first, fail=failing), outcome(second)]
            ledger.slices.complete(part, "ann", outcomes, job_id=f"job{generation}")
            end(ledger, part, f"job{generation}")
            clock.advance(1)
        assert (ledger.failures.count(REF), ledger.failures.count(REF, "v2")) == (2, 1)
        assert ledger.failures.versions(REF, "v2") == {change(1).uri: "v1"}
        assert ledger.failures.versions(REF, "v3") == {}
        assert [(each.generation, each.document_id) for each in ledger.failures.newest(REF)] == [
            ("v2", "doc_0001"),
            ("", "doc_0000"),
            ("", "doc_0001"),
        ]

    def test_documents_of_a_slice_that_failed_are_failures_of_its_generation(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease = lease_of(ledger, "ann")
        uuid = ledger.instances.new(lease, Reason.FIRST, generation="v2")
        part = part_of(lease, instance=uuid, generation="v2")
        ledger.parts.plan("job", [NewPart(part, plans(1, units=1))])
        ledger.jobs.start("job")
        for _ in range(tries_of(1) + 1):
            ledger.slices.give_back(claim_all(ledger), "ann", error="it kills", spent=True)
            clock.advance(60_000)
            ledger.workers.heartbeat("ann", [])
        assert (ledger.failures.count(REF), ledger.failures.count(REF, "v2")) == (0, 1)

    def test_a_build_that_failed_takes_nothing_of_another_generation_along(self, ledger: Ledger) -> None:
        one = _built(ledger, "", "first")
        part = _running(ledger, "v2", "second")
        complete_all(ledger, part, job_id="second")
        fail(ledger, part, "second")
        assert ledger.documents.entries(part.instance) == {}
        assert len(ledger.documents.entries(one.instance)) == 4
        assert (_served(ledger), _served(ledger, "v2")) == (one.instance, None)

    # Promotion.

    def test_the_first_built_generation_is_promoted_under_any_name(self, ledger: Ledger) -> None:
        assert ledger.partitions.promoted(REF) is None
        part = _running(ledger, "v2", "first")
        assert ledger.partitions.promoted(REF) is None
        complete_all(ledger, part, job_id="first")
        end(ledger, part, "first")
        assert ledger.partitions.promoted(REF) == "v2"
        assert ledger.partitions.promoted(OTHER) is None
        _built(ledger, "", "second")
        assert ledger.partitions.promoted(REF) == "v2"

    def test_a_generation_is_promoted_by_an_event(self, ledger: Ledger) -> None:
        one = _built(ledger, "", "first")
        two = _built(ledger, "v2", "second")
        assert InstanceServed(instance=two.instance) in logged(ledger)
        assert ledger.partitions.promoted(REF) == ""
        before = len(ledger.events.rows())
        for generation in ("v2", "v2", "", "v2"):
            ledger.events.append([GenerationPromoted(ref=str(REF), generation=generation, by="ann")])
            assert ledger.partitions.promoted(REF) == generation
        state = ledger.events.state()
        reading = [state.reading(str(REF)), state.reading(str(REF), ""), state.reading(str(REF), "v2")]
        assert [each.uuid for each in reading if each] == [two.instance, one.instance, two.instance]
        past = ledger.events.state(sequence=before).reading(str(REF))
        assert past is not None
        assert past.uuid == one.instance
        assert ledger.events.verify().differences == ()

    def test_a_generation_that_is_not_served_is_not_promoted(self, ledger: Ledger) -> None:
        _built(ledger, "", "first")
        _running(ledger, "v2", "second")
        before = ledger.events.rows()
        for generation in ("v2", "v3"):
            with pytest.raises(Conflict, match=generation):
                ledger.events.append([GenerationPromoted(ref=str(REF), generation=generation)])
        assert (ledger.partitions.promoted(REF), ledger.events.rows()) == ("", before)

    def test_a_promotion_that_was_lost_is_restored_from_the_log(self, ledger: Ledger) -> None:
        _built(ledger, "", "first")
        _built(ledger, "v2", "second")
        ledger.events.append([GenerationPromoted(ref=str(REF), generation="v2")])
        ledger.events.rebuild_projections()
        assert ledger.partitions.promoted(REF) == "v2"
        assert ledger.events.verify().differences == ()

    # What may be dropped.

    def test_indexes_of_checkpoints_and_of_open_parts_are_needed(self, ledger: Ledger) -> None:
        assert ledger.partitions.indexes(REF.entity) == set()
        one = _built(ledger, "", "first")
        two = _built(ledger, "v2", "second")
        begun = _running(ledger, "v3", "third")
        ledger.jobs.leave("third", "ann", stop="enough")
        assert ledger.partitions.indexes(REF.entity) == {one.physical, two.physical, begun.physical}
        three = _built(ledger, "v2", "fourth")
        assert ledger.partitions.indexes(REF.entity) == {one.physical, three.physical, begun.physical}
        assert ledger.partitions.indexes(OTHER.entity) == set()
