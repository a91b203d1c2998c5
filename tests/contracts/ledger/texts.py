"""Texts that databases do not take, or take for others: no one of them may keep anything else from being recorded."""

from __future__ import annotations

import pytest

from instep.domain.counts import Counts
from instep.domain.events import WantCreated
from instep.domain.jobs import JobPart, JobState
from instep.domain.key_leases import KeyLease
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.storable import storable, storable_key
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import Conflict
from instep.ledger.key_leases import KeyFailure
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from instep.ledger.slices import SlicePlace
from tests.contracts.ledger.building import (
    REF,
    claim_all,
    fail,
    job_of,
    lease_of,
    new_part,
    plan,
    plans,
    register,
    running,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures

#: All differ, and each can be kept as it is.
PLAIN = [
    *("a", "a ", " a", "a\t", "A", "á", "a\u0301", "ß", "ss", "ﬁ", "fi", "~", "0", "🎉", "日本語"),
    *(
        "'; DROP TABLE jobs; --",
        '"',
        "`",
        "\\",
        "\\'",
        "%",
        "_",
        ":name",
        "%(name)s",
        "{}",
        "$1",
        "?",
        "\x7f",
        "\ufeff",
    ),
]
#: All differ, and no database keeps them as they are.
ODD = ["nul\0", "nul\0 ", "nul\0\0", "cut \ud83d", "cut \udc00", "\ud83d cut", "x" * 300, "x" * 300 + " ", "🎉" * 300]
HOSTILE = PLAIN + ODD
LONG_TEXT = "a reason " * 20_000


def _complete(ledger: Ledger, job_id: str, outcome: dict[str, object], *, read: int) -> JobPart:
    """A job on the instance that is served (it is not ended), with one slice of this outcome."""
    part = running(ledger, [plan(0, range(read))], job_id=job_id, fresh=False)
    (claim,) = claim_all(ledger, job_id=job_id)
    failed = len(outcome.get("failures", ()))  # type: ignore[arg-type]  # one of three lists
    counts = Counts(read=read, written=read - failed, failed=failed)
    ledger.slices.complete(part, "ann", [SliceOutcome(claim.slice_id, claim.fence, counts, **outcome)], job_id=job_id)  # type: ignore[arg-type]  # the same
    ledger.parts.finish(job_id, part, JobState.COMPLETED_WITH_ERRORS, worker_id="ann", promote=True)
    return part


def _entry(text: str) -> ManifestEntry:
    return ManifestEntry(text, f"feed://Ticket/{text}", 10, text, text, 1, 3)


class Texts(Fixtures):
    def test_documents_with_any_id_and_version_are_stored(self, ledger: Ledger) -> None:
        part = _complete(ledger, "first", {"entries": [_entry(each) for each in HOSTILE]}, read=len(HOSTILE))
        found = {ledger.documents.get(part.instance, each) for each in HOSTILE}
        assert len(found) == len(HOSTILE), "none was taken for another"
        assert {each.version for each in found if each} == {storable_key(each, 255) for each in HOSTILE}
        for each in PLAIN:
            assert ledger.documents.get(part.instance, each) == _entry(each)
        count, _, _ = ledger.documents.totals(part.instance)
        assert count == len(HOSTILE)
        gone = HOSTILE[::2]
        _complete(ledger, "second", {"removed": gone}, read=len(gone))
        left = {each for each in HOSTILE if ledger.documents.get(part.instance, each)}
        assert left == set(HOSTILE) - set(gone)

    def test_failures_with_any_text_are_stored(self, ledger: Ledger) -> None:
        failures = [Failure(each, f"row {number}", each, "row", each) for number, each in enumerate(HOSTILE)]
        _complete(ledger, "first", {"failures": failures}, read=len(HOSTILE))
        found = ledger.failures.newest(limit=1_000)
        assert sorted(each.uri for each in found) == sorted(each.uri for each in failures)
        assert {each.reason for each in found} == set(map(storable, HOSTILE))
        assert len({each.document_id for each in found}) == len(HOSTILE)
        assert [each.document_id for each in found] == sorted(each.document_id for each in found)
        versions = ledger.failures.versions(REF)
        assert versions == {each.uri: storable_key(each.version, 255) for each in failures}

        _complete(ledger, "again", {"failures": failures}, read=len(HOSTILE))
        assert {each.attempts for each in ledger.failures.newest(limit=1_000)} == {2}
        _complete(ledger, "cured", {"entries": [_entry(each) for each in HOSTILE]}, read=len(HOSTILE))
        assert ledger.failures.newest() == []

    def test_a_failure_may_have_a_long_uri_and_a_long_reason(self, ledger: Ledger) -> None:
        _complete(ledger, "first", {"failures": [Failure("a", LONG_TEXT, "v", "row", LONG_TEXT)]}, read=1)
        [found] = ledger.failures.newest()
        assert (found.uri, found.reason) == (LONG_TEXT, LONG_TEXT)

    @pytest.mark.parametrize("text", [*HOSTILE, LONG_TEXT], ids=ascii)
    def test_reasons_are_kept_as_far_as_they_are_text(self, ledger: Ledger, text: str) -> None:
        part = running(ledger, plans(2))
        ledger.slices.give_back(claim_all(ledger), "ann", error=text, spent=True)
        assert {each.error for each in ledger.slices.of_part("job", REF)} == {storable(text)}
        fail(ledger, part, error=text)
        assert status_of(ledger).error == job_of(ledger).error == storable(text)
        lease_of(ledger, "ann", job_id="other")
        ledger.jobs.request_stop("other", text)
        assert job_of(ledger, "other").error == storable(text)
        lease_of(ledger, "bob", job_id="left")
        ledger.jobs.leave("left", "bob", stop=text)
        assert job_of(ledger, "left").error == storable(text)

    def test_a_job_may_be_about_thousands_of_partitions(self, ledger: Ledger) -> None:
        about = {"entities": [f"MergeRequest@42/{number}" for number in range(9_000, 12_600)], "by": "a\0\ud83d"}
        register(ledger, "ann")
        ledger.jobs.begin("job", "ann", about)
        assert job_of(ledger).configuration == about

    def test_a_part_may_be_made_by_much_code_and_from_many_inputs(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        part = new_part(ledger, lease)
        fingerprint = {f"part {number}": each for number, each in enumerate(PLAIN)} | {"code": "c" * 70_000}
        part = JobPart(**{name: getattr(part, name) for name in part.__slots__} | {"fingerprint": fingerprint})
        ledger.parts.plan("job", [NewPart(part, plans(1))])
        assert status_of(ledger).part.fingerprint == fingerprint

    def test_names_that_differ_by_a_space_or_by_case_are_different(self, ledger: Ledger) -> None:
        register(ledger, *PLAIN)
        for each in PLAIN:
            ledger.jobs.begin(f"job of {each}", each, {"name": each})
        assert sorted(each.id for each in ledger.workers.all()) == sorted(PLAIN)
        for each in PLAIN:
            assert job_of(ledger, f"job of {each}").configuration == {"name": each}
        ledger.workers.retire("a ")
        assert sorted(each.id for each in ledger.workers.all()) == sorted(set(PLAIN) - {"a "})

    def test_partitions_that_differ_by_case_have_leases_of_their_own(self, ledger: Ledger) -> None:
        refs = [PartitionRef.parse(each) for each in ("Note@global", "NOTE@global", "note@global", "Note_@global")]
        for number, ref in enumerate(refs):
            assert lease_of(ledger, "ann", ref, job_id=f"job-{number}").ref == ref

    def test_nothing_is_found_under_a_name_that_nothing_can_have(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        for each in ODD:
            assert ledger.jobs.get(each) is None
            assert ledger.wants.get(each) is None
            assert ledger.instances.get(each) is None
            assert ledger.documents.get(part.instance, each) is None
            assert ledger.slices.page(each) == []
            assert ledger.wants.newest(after=each) == []
            assert ledger.key_leases.held_by("queue", each) == ledger.key_leases.held(each, [1]) == {}
            with pytest.raises(Conflict):
                ledger.jobs.request_stop(each)

    def test_a_want_has_a_name_that_can_be_kept(self, ledger: Ledger) -> None:
        for each in PLAIN:
            ledger.events.append([WantCreated(want=each, refs=(str(REF),), by=each)])
        assert sorted(each.id for each in ledger.wants.newest()) == sorted(PLAIN)
        assert {each: found.by for each in PLAIN if (found := ledger.wants.get(each))} == {each: each for each in PLAIN}
        before = ledger.events.rows()
        for each in ("nul\0", "x" * 300):
            with pytest.raises(Conflict, match="stored"):
                ledger.events.append([WantCreated(want=each, refs=(str(REF),))])
        with pytest.raises(Conflict, match="stored"):
            ledger.events.append([WantCreated(want="long", refs=(f"Document@{'1' * 250}",))])
        assert ledger.events.rows() == before

    def test_the_requester_and_reason_may_be_any_text(self, ledger: Ledger) -> None:
        for number, each in enumerate([*ODD, LONG_TEXT]):
            ledger.events.append([WantCreated(want=f"want {number}", refs=(str(REF),), by=each)])
        assert len(ledger.wants.newest()) == len(ODD) + 1
        assert ledger.events.verify().differences == ()

    def test_keys_of_queues_fail_for_any_reason_and_for_any_consumer(self, ledger: Ledger) -> None:
        for number, each in enumerate(HOSTILE):
            [hold] = ledger.key_leases.lease("queue", [number], each, lasting=60_000).leased.values()
            failed = ledger.key_leases.fail("queue", [KeyFailure(number, hold.fence, each)])
            assert isinstance(failed[number], KeyLease)
        errors = [each.error for _, each in sorted(ledger.key_leases.held("queue", range(len(HOSTILE))).items())]
        assert errors == list(map(storable, HOSTILE))

    def test_consumers_that_differ_by_a_space_or_by_case_hold_keys_of_their_own(self, ledger: Ledger) -> None:
        for number, each in enumerate(HOSTILE):
            ledger.key_leases.lease("queue", [number], each, lasting=60_000)
            ledger.key_leases.lease(each, [1], "ann", lasting=60_000)
        for number, each in enumerate(HOSTILE):
            assert list(ledger.key_leases.held_by("queue", each)) == [number]
            assert list(ledger.key_leases.held_by(each, "ann")) == [1]

    def test_pages_are_in_the_order_of_characters(self, ledger: Ledger) -> None:
        """Whatever the order of the database's language is: who asks for the next page says where he was."""
        refs = [PartitionRef.parse(f"{name}@global") for name in ("note", "Note", "Zebra", "ant", "Note_b", "NoteA")]
        parts = [new_part(ledger, lease_of(ledger, "ann", ref)) for ref in refs]
        ledger.parts.plan("job", [NewPart(each, plans(12)) for each in parts])
        found = [(str(each.ref), each.number) for each in ledger.slices.page("job")]
        assert found == sorted(found)
        assert len(found) == 12 * len(refs)
        for ref in map(str, refs):
            page = ledger.slices.page("job", refs=[PartitionRef.parse(ref)], after=SlicePlace(ref, 3, "~"), limit=3)
            assert [each.number for each in page] == [4, 5, 6], "what is behind all ids of a number"
