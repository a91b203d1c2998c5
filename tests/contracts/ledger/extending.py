"""What comes into a job after it was planned: more slices of a part, and what no slice stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.counts import Counts
from instep.domain.jobs import JobState, SliceState
from instep.domain.waves import SliceOutcome
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    REF,
    change,
    claim_all,
    complete_all,
    end,
    job_of,
    joined,
    outcome,
    plans,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures


class Extending(Fixtures):
    def test_a_part_is_extended_by_slices_like_others(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        complete_all(ledger, part)
        assert ledger.parts.begin_finish("job", REF, "ann")
        joined(ledger, "bob")
        for _ in range(2):
            ledger.parts.extend(part, plans(2), job_id="job")
            assert job_of(ledger).slices[SliceState.PENDING] == 2
            claims = claim_all(ledger, "bob")
            ledger.slices.complete(part, "bob", list(map(outcome, claims)), job_id="job")
        assert len({each.index for each in ledger.slices.of_part("job", REF)}) == 6
        assert job_of(ledger).counts.read == 12
        assert ledger.parts.begin_finish("job", REF, "bob"), "no finisher was elected any more"
        assert end(ledger, part, worker="bob") is JobState.COMPLETED

    def test_a_part_that_had_no_slices_is_extended_too(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        ledger.parts.extend(part, plans(1), job_id="job")
        (claim,) = claim_all(ledger)
        assert claim.index == 0

    def test_a_part_with_open_slices_or_a_stopped_job_is_not_extended(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        with pytest.raises(Conflict):
            ledger.parts.extend(part, plans(1), job_id="job")
        complete_all(ledger, part)
        ledger.jobs.request_stop("job")
        with pytest.raises(Fenced):
            ledger.parts.extend(part, plans(1), job_id="job")

    def test_a_live_refresh_is_recorded_for_its_instance_and_counted_by_no_slice(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        (claim,) = claim_all(ledger)
        served = replace(part, instance="served", generation="v1")
        for _ in range(2):
            ledger.documents.absorb(served, [outcome(claim, fail=[1])], job_id="job")
        assert [each.document_id for each in ledger.documents.entries("served").values()] == ["doc_0000"]
        sizes = {uri: (each.size, each.version) for uri, each in ledger.documents.entries("served").items()}
        assert ledger.documents.versions("served") == sizes
        assert ledger.documents.some("served", sizes) == ledger.documents.entries("served")
        assert ledger.documents.some("served", []) == {}
        assert (ledger.documents.entries(part.instance), ledger.documents.versions(part.instance)) == ({}, {})
        assert ledger.failures.versions(REF, "v1") == {change(1).uri: "v1"}
        assert (ledger.failures.versions(REF), job_of(ledger).counts) == ({}, Counts())
        ledger.documents.absorb(served, [SliceOutcome("", 0, Counts(), removed=["doc_0000", "doc_0001"])], job_id="job")
        assert (ledger.documents.entries("served"), ledger.failures.versions(REF, "v1")) == ({}, {})

    def test_nothing_comes_in_under_an_epoch_that_is_over(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        (claim,) = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(claim)], job_id="job")
        ledger.leases.transfer(Lease(REF, "job", part.epoch, 0), "job")
        with pytest.raises(Fenced):
            ledger.documents.absorb(replace(part, instance="served"), [outcome(claim)], job_id="job")
        with pytest.raises(Fenced):
            ledger.parts.extend(part, plans(1), job_id="job")
        assert (ledger.documents.entries("served"), job_of(ledger).slices) == ({}, {SliceState.COMPLETED: 1})
