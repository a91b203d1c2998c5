"""What is indexed, and which documents could not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from instep.document_state.entries import EntryColumns
from instep.domain.counts import Counts
from instep.domain.identity import document_id
from instep.domain.jobs import Claim, JobPart
from instep.domain.manifest import ManifestEntry
from instep.domain.waves import SKIPPED, Failure, SliceOutcome
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    change,
    claim_all,
    end,
    outcome,
    plans,
    running,
    running_two,
)
from tests.contracts.ledger.fixtures import Fixtures


class Documents(Fixtures):
    def _run(self, ledger: Ledger, job_id: str, make: Callable[[Claim], SliceOutcome]) -> JobPart:
        """One more job over documents 0 and 1 of the same instance."""
        part = running(ledger, plans(1), job_id=job_id, fresh=False)
        (claim,) = claim_all(ledger, job_id=job_id)
        ledger.slices.complete(part, "ann", [make(claim)], job_id=job_id)
        end(ledger, part, job_id)
        return part

    def test_entries_replace_those_of_the_same_document(self, ledger: Ledger) -> None:
        self._run(ledger, "first", outcome)
        part = self._run(ledger, "second", lambda claim: outcome(claim, version="v2"))
        assert [each.version for each in ledger.documents.entries(part.instance).values()] == ["v2", "v2"]

    def test_an_entry_is_found_by_its_document(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)
        entries = ledger.documents.entries(part.instance)
        for each in entries.values():
            assert ledger.documents.get(part.instance, each.document_id) == each
        assert ledger.documents.get(part.instance, "doc_9999") is None
        assert ledger.documents.get("another", next(iter(entries.values())).document_id) is None

    def test_entries_come_in_columns_as_they_come_in_rows(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = ("uri", "document_id", "size", "version", "document_hash", "chunks", "bucket", "digest")
        part = self._run(ledger, "first", outcome)
        entries = ledger.documents.entries(part.instance)
        expected = [{name: getattr(each, name) for name in names} for each in entries.values()]
        for page in (50_000, 2, 1):  # That the last page is full, too.
            monkeypatch.setattr("instep.ledger.document_pages._PAGE", page)
            assert ledger.documents.columns(part.instance, names).to_pylist() == expected
            assert ledger.documents.columns(part.instance, ("chunks", "uri")).column_names == ["chunks", "uri"]
            assert ledger.documents.columns("another", names).num_rows == 0

    @pytest.mark.parametrize("few", [0, 5_000])
    def test_entries_of_some_uris_come_in_columns(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        monkeypatch.setattr("instep.ledger.documents._FEW", few)
        part = self._run(ledger, "first", outcome)
        first, second = (each.uri for each in ledger.documents.entries(part.instance).values())

        def found(*uris: str) -> list[str | None]:
            table = ledger.documents.named(part.instance, pa.array(uris, pa.string()), ("uri", "document_id"))
            return table["document_id"].to_pylist()

        assert found(first) == ["doc_0000"]
        assert found(second, "file:///unknown", "no uri") == ["doc_0001"]
        assert found("file:///unknown") == found() == []

    def test_entries_under_the_ids_of_their_uris_come_in_columns(self, ledger: Ledger) -> None:
        uris = [f"file:///docs/{number}" for number in range(2)]
        entries = [ManifestEntry(document_id(uri), uri, 1, "v", "hash", 1, 0) for uri in uris]

        def make(claim: Claim) -> SliceOutcome:
            return SliceOutcome(claim.slice_id, claim.fence, Counts(2, 2), entries)

        part = self._run(ledger, "first", make)
        for wanted in (uris[:1], uris, [*uris, "file:///unknown"]):
            table = ledger.documents.named(part.instance, pa.array(wanted, pa.string()), ("document_hash", "uri"))
            assert sorted(map(str, table["uri"].to_pylist())) == [each for each in wanted if each in uris]

    def test_entries_are_found_by_their_ids(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)
        some = ledger.documents.of_ids(part.instance, ["doc_0001", "doc_9999"])
        assert some == {"doc_0001": ledger.documents.get(part.instance, "doc_0001")}
        assert ledger.documents.of_ids(part.instance, []) == ledger.documents.of_ids("another", ["doc_0001"]) == {}

    def test_columns_of_entries_are_found_by_their_ids(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)
        some = ledger.documents.with_ids(part.instance, ["doc_0001", "doc_9999"], ("uri", "chunks"))
        entry = ledger.documents.get(part.instance, "doc_0001")
        assert entry is not None
        assert some.to_pylist() == [{"uri": entry.uri, "chunks": entry.chunks}]
        nothing = ledger.documents.with_ids("another", ["doc_0001"], ("uri",))
        assert ledger.documents.with_ids(part.instance, [], ("uri",)) == nothing
        assert nothing.num_rows == 0

    def test_entries_are_read_by_ranges_of_their_ids(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)
        every = {each.document_id: each for each in ledger.documents.entries(part.instance).values()}

        def between(*bounds: Any) -> list[ManifestEntry]:
            return [*EntryColumns(ledger.documents.between(part.instance, bounds, ManifestEntry._fields))]

        assert between("", "") == [every[each] for each in sorted(every)]
        (first, second), rest = sorted(every)[:2], sorted(every)[2:]
        assert between("", second) == [every[first]]
        assert [each.document_id for each in between(second, "")] == [second, *rest]
        assert between(first, first) == []
        assert ledger.documents.between("another", ("", ""), ("uri",)).num_rows == 0
        assert ledger.documents.between(part.instance, ("", first), ("chunks", "uri")).column_names == ["chunks", "uri"]

    def test_documents_below_a_folder_are_found_by_its_uri(self, ledger: Ledger) -> None:
        uris = ["file:///docs/a/b.md", "file:///docs/100%25/c_d.md"]
        entries = [ManifestEntry(document_id(uri), uri, 1, "v", "hash", 1, 0) for uri in uris]

        def make(claim: Claim) -> SliceOutcome:
            return SliceOutcome(claim.slice_id, claim.fence, Counts(2, 2), entries)

        part = self._run(ledger, "first", make)

        def below(*uris: str) -> bool:
            return ledger.documents.any_below(part.instance, uris)

        assert below("file:///docs/a")
        assert below("file:///docs/none", "file:///docs")
        assert below("file:///docs/100%25")
        for other in ("file:///docs/a/b.md", "file:///docs/a/b", "file:///doc", "file:///docs/_", "file:///docs/%"):
            assert not below(other), other
        assert not below()
        assert not ledger.documents.any_below("another", ["file:///docs"])

    def test_some_documents_are_found_by_ids_that_need_not_be_there(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)

        def found(*ids: str) -> list[str]:
            return [each.document_id for each in ledger.documents.sampled(part.instance, ids)]

        assert found("doc_0000") == found("", "doc_") == ["doc_0000"]
        assert found("doc_00005", "doc_0", "doc_0001") == ["doc_0000", "doc_0001"]
        assert found("doc_0002", "e") == found() == []
        assert ledger.documents.sampled("another", ["doc_0000"]) == []
        assert ledger.documents.sampled(part.instance, ["doc_0001"]) == [
            ledger.documents.get(part.instance, "doc_0001")
        ]

    def test_documents_over_a_size_or_a_number_of_chunks(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)
        first, second = sorted(ledger.documents.entries(part.instance).values(), key=lambda each: each.size)
        assert (first.size + 1, first.chunks) == (second.size, second.chunks)
        assert ledger.documents.oversized(part.instance, size=second.size, chunks=None, limit=5) == (0, [])
        assert ledger.documents.oversized(part.instance, size=first.size, chunks=second.chunks, limit=5) == (
            1,
            [second],
        )
        assert ledger.documents.oversized(part.instance, size=1 << 40, chunks=0, limit=1) == (2, [second])
        assert ledger.documents.oversized("another", size=0, chunks=0, limit=5) == (0, [])

    def test_removed_documents_leave_the_manifest_and_others_stay(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)

        def remove(claim: Claim) -> SliceOutcome:
            counts = Counts(read=2, deleted=2)
            return SliceOutcome(claim.slice_id, claim.fence, counts, removed=["doc_0000", "doc_9999"])

        self._run(ledger, "second", remove)
        assert list(ledger.documents.entries(part.instance)) == [change(1).uri]

    def test_a_failing_document_keeps_its_indexed_chunks(self, ledger: Ledger) -> None:
        self._run(ledger, "first", outcome)
        part = self._run(ledger, "second", lambda claim: outcome(claim, fail=[0], version="v2"))
        versions = {uri: each.version for uri, each in ledger.documents.entries(part.instance).items()}
        assert versions == {change(0).uri: "v1", change(1).uri: "v2"}

    def test_each_failure_of_a_document_is_one_more_attempt(self, ledger: Ledger, clock: VirtualClock) -> None:
        for attempt, version in enumerate(["v1", "v1", "v2"], start=1):
            clock.advance(10)
            self._run(ledger, f"job-{attempt}", lambda claim, v=version: outcome(claim, fail=[0], version=v))  # type: ignore[misc]  # a default argument binds the loop variable
        (failure,) = ledger.failures.newest()
        assert (failure.attempts, failure.version, failure.job_id) == (3, "v2", "job-3")
        assert failure.failed_at == START + 30

    def test_the_entry_of_a_document_that_failed_cures_nothing(self, ledger: Ledger) -> None:
        def left(claim: Claim) -> SliceOutcome:
            whole, failed = outcome(claim, version=""), outcome(claim, fail=[0], version="v2")
            return replace(
                failed, entries=[*failed.entries, *(each for each in whole.entries if each.uri == change(0).uri)]
            )

        self._run(ledger, "first", outcome)
        for attempt in (1, 2):
            part = self._run(ledger, f"failing-{attempt}", left)
            assert ledger.documents.entries(part.instance)[change(0).uri].version == ""
            (failure,) = ledger.failures.newest()
            assert (failure.uri, failure.version, failure.attempts) == (change(0).uri, "v2", attempt)

    @pytest.mark.parametrize("how", ["written", "removed"])
    def test_a_document_that_was_written_or_removed_has_no_failure(self, ledger: Ledger, how: str) -> None:
        self._run(ledger, "first", lambda claim: outcome(claim, fail=[0, 1]))
        assert ledger.failures.count(REF) == 2

        def cure(claim: Claim) -> SliceOutcome:
            if how == "written":
                return outcome(claim, fail=[1])
            counts, failures = Counts(read=2, deleted=1, failed=1), outcome(claim, fail=[1]).failures
            return SliceOutcome(claim.slice_id, claim.fence, counts, removed=["doc_0000"], failures=failures)

        self._run(ledger, "second", cure)
        assert [(each.document_id, each.attempts) for each in ledger.failures.newest()] == [("doc_0001", 2)]
        self._run(ledger, "third", outcome)
        assert ledger.failures.newest() == []
        assert ledger.failures.count(REF) == 0

    def test_skipped_documents_are_stored_with_failures_but_are_none(self, ledger: Ledger) -> None:
        def left_out(claim: Claim) -> SliceOutcome:
            found = outcome(claim, fail=[0, 1])
            failed, *others = found.failures
            return replace(found, failures=[failed, *(each._replace(stage=SKIPPED) for each in others)])

        self._run(ledger, "first", left_out)
        assert (ledger.failures.count(REF), ledger.failures.count(REF, skipped=True)) == (1, 1)
        assert len(ledger.failures.newest()) == len(ledger.failures.versions(REF)) == 2

    def test_failures_are_listed_newest_first_by_partition(self, ledger: Ledger, clock: VirtualClock) -> None:
        part, other = running_two(ledger, plans(2, units=1), plans(1, units=1))
        for each in (part, other):
            for claim in ledger.slices.claim("job", each.ref, "ann", work=99, limit=99):
                clock.advance(1)
                ledger.slices.complete(each, "ann", [outcome(claim, fail=[0, 1])], job_id="job")
        assert [(each.ref, each.document_id) for each in ledger.failures.newest()] == [
            (OTHER, "doc_0000"),
            (REF, "doc_0001"),
            (REF, "doc_0000"),
        ]
        assert [each.document_id for each in ledger.failures.newest(REF)] == ["doc_0001", "doc_0000"]
        assert [each.document_id for each in ledger.failures.newest(REF, limit=1)] == ["doc_0001"]
        assert (ledger.failures.count(REF), ledger.failures.count(OTHER)) == (2, 1)
        assert ledger.failures.versions(OTHER) == {change(0).uri: "v1"}

    def test_text_comes_back_as_it_went_in(self, ledger: Ledger) -> None:
        strange = 'file:///o\'Brien "quoted" 100%/ünïcode/\N{PILE OF POO};DROP TABLE documents--.md'
        odd = ManifestEntry("doc_0000", strange, 2**62, "", "hash", 0, 15)

        def make(claim: Claim) -> SliceOutcome:
            failure = Failure("doc_0001", strange, "v:1", "parse", "line one\nline 'two'")
            return SliceOutcome(claim.slice_id, claim.fence, Counts(2, 1, failed=1), [odd], failures=[failure])

        part = self._run(ledger, "job", make)
        assert ledger.documents.entries(part.instance) == {strange: odd}
        assert ledger.failures.newest()[0].reason == "line one\nline 'two'"

    def test_an_unknown_instance_is_empty(self, ledger: Ledger) -> None:
        assert ledger.documents.entries("nothing") == {}
        assert ledger.documents.totals("nothing") == (0, 0, 0)
        assert ledger.failures.versions(REF) == {}
        assert ledger.checkpoints.get(REF) is None
