"""Plan files: each slice of a large plan does what was planned, or says that it cannot; nothing is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from instep.document_state.columns import ChangeColumns, listed_columns
from instep.document_state.cuts import cut_columns
from instep.document_state.difference import Record, difference
from instep.domain.jobs import JobState, SlicePlan
from instep.domain.manifest import DocumentChange, SourceDocument
from instep.domain.planning import SliceSizing
from instep.errors import Conflict, UserError
from instep.ledger import plans
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart, Parts
from instep.ledger.plans import PlanLost
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    fail,
    lease_of,
    new_part,
    outcome,
    running,
)
from tests.contracts.ledger.building import plans as plans_by_value
from tests.doubles.ledger import MemoryLedger

from .places import FolderPlace, Place, place, store_place

__all__ = ["place", "store_place"]

MANY = 40


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_FILE_ROWS", MANY)


def large(documents: int = MANY) -> Sequence[SlicePlan]:
    listed = listed_columns(SourceDocument(f"file:///docs/{number}.md", 100, "v1") for number in range(documents))
    found = difference(listed, Record.nothing(), {}, complete=True, buckets=3)
    assert isinstance(found.changes, ChangeColumns)
    return cut_columns(found.changes, SliceSizing(100, asked=5))


def planned(slices: Sequence[SlicePlan]) -> list[DocumentChange]:
    return sorted(change for each in slices for change in each.changes)


def read(ledger: Ledger) -> list[DocumentChange]:
    return sorted(change for each in claim_all(ledger) for change in ledger.plans.changes(each.payload))


def test_a_large_plan_is_a_file_which_goes_with_its_job(place: Place) -> None:
    ledger = place.open()
    part = running(ledger, slices := large())
    (file,) = place.names()
    assert file.startswith("job.")
    claims = claim_all(ledger)
    assert all(len(each.payload) < 200 for each in claims), "no documents are in the ledger"
    assert sorted(change for each in claims for change in ledger.plans.changes(each.payload)) == planned(slices)
    for each in claims:
        changes = ledger.plans.changes(each.payload)
        assert (len(changes), {change.bucket for change in changes}) == (each.units, {each.bucket})
    by_value = [replace(each, payload=ledger.plans.by_value(each.payload)) for each in claims]
    ledger.slices.complete(part, "ann", [outcome(each) for each in by_value], job_id="job")
    assert end(ledger, part) is JobState.COMPLETED
    assert place.names() == []


def test_a_small_plan_and_one_of_a_ledger_without_a_folder_have_no_file(place: Place) -> None:
    ledger = place.open()
    running(ledger, slices := large(MANY - 1))
    assert place.names() == []
    assert read(ledger) == planned(slices)
    memory = MemoryLedger(VirtualClock(START))
    running(memory, slices := large())
    assert read(memory) == planned(slices)


@pytest.mark.parametrize("harm", ["lost", "torn", "value"])
def test_a_lost_or_damaged_plan_is_reported(place: Place, harm: str) -> None:
    ledger = place.open()
    running(ledger, slices := large())
    (file,) = place.names()
    data = place.data(file)
    middle = len(data) // 2
    if harm == "lost":
        place.lose(file)
    else:
        place.put(file, data[:middle] + (b"" if harm == "torn" else bytes([data[middle] ^ 1]) + data[middle + 1 :]))
    found, lost = list[DocumentChange](), 0
    for claim in claim_all(ledger):
        try:
            found += ledger.plans.changes(claim.payload)
        except PlanLost:
            lost += 1
    assert lost == {"lost": len(slices), "torn": lost, "value": 1}[harm]
    assert lost
    assert set(found) < set(planned(slices))


@pytest.mark.parametrize("spent", [False, True], ids=["too long", "worn out"])
def test_a_slice_of_a_large_plan_is_cut_like_others(place: Place, *, spent: bool) -> None:
    ledger = place.open()
    part = running(ledger, slices := large())
    if spent:
        while len(ledger.slices.of_part("job", REF)) == len(slices):
            ledger.slices.give_back(claim_all(ledger), "ann", error="no luck", spent=True)
    else:
        (claim, *others) = claim_all(ledger)
        assert ledger.slices.split(claim, "ann")
        ledger.slices.give_back(others, "ann", spent=False)
    assert len(ledger.slices.of_part("job", REF)) > len(slices)
    found: list[DocumentChange] = []
    while claims := claim_all(ledger):
        found += [change for each in claims for change in ledger.plans.changes(each.payload)]
        values = [replace(each, payload=ledger.plans.by_value(each.payload)) for each in claims]
        ledger.slices.complete(part, "ann", list(map(outcome, values)), job_id="job")
    assert sorted(found) == planned(slices)


def test_more_slices_of_a_part_are_another_file(place: Place) -> None:
    ledger = place.open()
    part = running(ledger, plans_of_others := large())
    values = [replace(each, payload=ledger.plans.by_value(each.payload)) for each in claim_all(ledger)]
    ledger.slices.complete(part, "ann", list(map(outcome, values)), job_id="job")
    ledger.parts.extend(part, more := large(MANY + 7), job_id="job")
    assert len(place.names()) == 2
    assert read(ledger) == planned(more) != planned(plans_of_others)


def test_a_stopped_job_keeps_its_plan_and_others_do_not_remove_it(place: Place) -> None:
    ledger = place.open()
    running(ledger, slices := large())
    ledger.jobs.request_stop("job", "stopped by ann")
    lease = lease_of(ledger, "bob", OTHER, job_id="other")
    ledger.parts.plan("other", [NewPart(new_part(ledger, lease), large(MANY + 1))])
    assert {each.partition(".")[0] for each in place.names()} == {"job", "other"}
    ledger.jobs.start("job")
    lease_of(ledger, "ann")
    assert read(ledger) == planned(slices)


def test_what_was_written_and_not_stored_goes_when_its_job_has_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: between the file and the transaction, and in the middle of the file."""
    ledger = place.open()
    lease = lease_of(ledger, "ann")
    part = new_part(ledger, lease)
    with monkeypatch.context() as patched:
        patched.setattr(Parts, "_plan", _refused)
        with pytest.raises(Conflict):
            ledger.parts.plan("job", [NewPart(part, large())])
    (file,) = place.names()
    torn = "job.0.plan.torn"
    place.put(torn, b"some")
    ledger.plans.clear()
    assert place.names() == sorted([file, torn]), "the job may be stored yet"
    ledger.parts.plan("job", [NewPart(part, large(MANY + 1))])
    assert len(place.names()) == 3
    ledger.jobs.start("job")
    assert read(ledger) == planned(large(MANY + 1))
    fail(ledger, part)
    assert place.names() == []


def _refused(*_: object, **__: object) -> None:
    raise Conflict("the plan was outdated")


def test_a_plan_that_cannot_be_written_is_reported_with_its_place(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    ledger = place.open()
    part = new_part(ledger, lease_of(ledger, "ann"))
    folder = place.beside
    folder.write_bytes(b"a file")
    with pytest.raises(UserError, match="the plan of job job cannot be written: File exists") as told:
        ledger.parts.plan("job", [NewPart(part, large())])
    assert told.value.where == str(folder)
    folder.unlink()
    ledger.parts.plan("job", [NewPart(part, large())])
    assert len(place.names()) == 1


def test_files_that_are_no_plans_are_left_alone(place: Place) -> None:
    ledger = place.open()
    part = running(ledger, large())
    base = f"{'0' * 32}.arrow"
    place.put(base, b"a base")
    fail(ledger, part)
    assert place.names() == [base]


def test_an_open_job_of_an_older_instep_is_finished(place: Place) -> None:
    """It has the documents of all slices by value, however many they are."""
    ledger = place.open()
    part = running(ledger, plans_by_value(MANY))
    assert place.names() == []
    complete_all(ledger, part)
    assert end(ledger, part) is JobState.COMPLETED
