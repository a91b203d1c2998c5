"""What a finished part makes of the partition's checkpoint and manifests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.jobs import JobPart, JobState
from instep.errors import Conflict
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    fail,
    job_of,
    part_of,
    plans,
    running,
    running_two,
    state_of_everything,
)
from tests.contracts.ledger.fixtures import Fixtures


def _built(ledger: Ledger, job_id: str) -> JobPart:
    """A first build or a rebuild that ended well."""
    part = running(ledger, plans(1), job_id=job_id)
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)
    return part


class Promotion(Fixtures):
    def test_a_promoted_part_becomes_the_checkpoint_complete_up_to_the_jobs_creation(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(1))
        clock.advance(100)
        complete_all(ledger, part)
        end(ledger, part)
        checkpoint = ledger.checkpoints.get(REF)
        assert checkpoint is not None
        assert (checkpoint.ref, checkpoint.instance, checkpoint.sequence) == (
            REF,
            part.instance,
            canonical_of(ledger).sequence,
        )
        assert (checkpoint.physical, checkpoint.fingerprint) == (part.physical, {"chunker": "c1"})
        assert (checkpoint.buckets, checkpoint.job_id) == (16, "job")
        assert (checkpoint.watermark, checkpoint.updated_at) == (START, START + 100)
        assert job_of(ledger).finished_at == START + 100

    def test_a_checkpoint_is_described_better_as_long_as_its_instance_is_served(self, ledger: Ledger) -> None:
        _built(ledger, "j1")
        known = ledger.checkpoints.get(REF)
        assert known is not None
        better = {**known.fingerprint, "target": "lance in index"}
        ledger.checkpoints.describe(known, better)
        assert ledger.checkpoints.get(REF) == replace(known, fingerprint=better)
        _built(ledger, "j2")
        rebuilt = ledger.checkpoints.get(REF)
        ledger.checkpoints.describe(known, better)
        assert ledger.checkpoints.get(REF) == rebuilt

    def test_a_part_that_is_not_promoted_leaves_the_checkpoint(self, ledger: Ledger) -> None:
        built = _built(ledger, "first")
        served = ledger.checkpoints.get(REF)
        part = running(ledger, [], job_id="second")
        ledger.parts.finish("second", part, JobState.COMPLETED, worker_id="ann")
        assert ledger.checkpoints.get(REF) == served
        assert len(ledger.documents.entries(built.instance)) == 2

    def test_a_rebuild_replaces_the_manifest_and_a_refresh_keeps_it(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = _built(ledger, "first")
        clock.advance(1)
        refresh = running(ledger, [], job_id="refresh", fresh=False)
        end(ledger, refresh, "refresh")
        after_refresh = ledger.checkpoints.get(REF)
        assert after_refresh is not None
        assert (after_refresh.instance, after_refresh.watermark, after_refresh.job_id) == (
            first.instance,
            START + 1,
            "refresh",
        )
        assert len(ledger.documents.entries(first.instance)) == 2

        second = running(ledger, plans(1), job_id="second")
        complete_all(ledger, second, job_id="second")
        assert len(ledger.documents.entries(first.instance)) == 2, "what is served stays until the new one is"
        end(ledger, second, "second")
        after_rebuild = ledger.checkpoints.get(REF)
        assert after_rebuild is not None
        assert (after_rebuild.instance, after_rebuild.sequence) == (second.instance, canonical_of(ledger).sequence)
        assert ledger.documents.entries(first.instance) == {}
        assert len(ledger.documents.entries(second.instance)) == 2

    def test_a_failed_rebuild_leaves_the_served_index_unchanged(self, ledger: Ledger) -> None:
        first = _built(ledger, "first")
        served = ledger.checkpoints.get(REF)
        rebuild = running(ledger, plans(1), job_id="second")
        complete_all(ledger, rebuild, job_id="second")
        assert len(ledger.documents.entries(rebuild.instance)) == 2
        fail(ledger, rebuild, "second")
        assert ledger.checkpoints.get(REF) == served
        assert len(ledger.documents.entries(first.instance)) == 2
        assert ledger.documents.entries(rebuild.instance) == {}

    def test_a_failed_refresh_keeps_the_manifest_of_the_served_index(self, ledger: Ledger) -> None:
        first = _built(ledger, "first")
        refresh = running(ledger, plans(1), job_id="second", fresh=False)
        fail(ledger, refresh, "second")
        assert len(ledger.documents.entries(first.instance)) == 2

    def test_a_failed_part_does_not_touch_the_manifest_of_the_other(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        for each in (part, other):
            complete_all(ledger, each)
        end(ledger, other)
        fail(ledger, part)
        assert ledger.documents.entries(part.instance) == {}
        assert len(ledger.documents.entries(other.instance)) == 2
        assert (ledger.checkpoints.get(REF), ledger.checkpoints.get(OTHER) is None) == (None, False)

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
    def test_only_a_jobs_own_part_can_be_ended(self, ledger: Ledger, state: JobState) -> None:
        part = running(ledger, [])
        before = state_of_everything(ledger, part)
        foreign = part_of(Lease(REF, "job", part.epoch, 0), instance="instance-9")
        with pytest.raises(Conflict):
            ledger.parts.finish("job", foreign, state, worker_id="ann", promote=state is JobState.COMPLETED)
        assert state_of_everything(ledger, part) == before
