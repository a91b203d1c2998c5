"""Jobs, slices and failures page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest

from instep.domain.events import WantCanceled, WantCreated
from instep.domain.jobs import JobState, Phase, SliceState
from instep.domain.refs import PartitionRef, Scope
from instep.domain.wants import Want
from instep.ledger.failures import FailureFilter, FailurePlace, FailureRecord
from instep.ledger.job_log import KEPT, SAID
from instep.ledger.jobs import JobPlace
from instep.ledger.ledger import Ledger
from instep.ledger.slices import SlicePlace
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    claim_all,
    fail,
    outcome,
    plan,
    plans,
    register,
    running,
    running_two,
)
from tests.contracts.ledger.fixtures import Fixtures

Item = TypeVar("Item")
Place = TypeVar("Place")


def walked(read: Callable[[Place | None], Sequence[Item]], place: Callable[[Item], Place]) -> list[Item]:
    """Page by page, to the end."""
    seen: list[Item] = []
    for _ in range(20):
        page = read(place(seen[-1]) if seen else None)
        if not page:
            return seen
        seen += page
    pytest.fail("the pages do not end")


def _two(read: Callable[..., list[Want]], after: str | None) -> list[Want]:
    return read(after=after, limit=2)


def location_of(failure: FailureRecord) -> FailurePlace:
    return FailurePlace(failure.failed_at, str(failure.ref), failure.generation, failure.document_id)


class Paging(Fixtures):
    def test_jobs_of_one_moment_are_on_one_page_each(self, ledger: Ledger, clock: VirtualClock) -> None:
        register(ledger, "ann")
        for number in range(5):
            ledger.jobs.begin(f"job{number}", "ann", {})
            clock.advance(number % 2)
        seen = walked(lambda at: ledger.jobs.page(after=at, limit=2), lambda each: JobPlace(each.created_at, each.id))
        assert [each.id for each in seen] == [each.id for each in ledger.jobs.newest()]
        assert len(seen) == 5

    def test_only_jobs_of_some_states(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        ledger.jobs.begin("made", "ann", {})
        fail(ledger, running(ledger, plans(1)))
        assert [each.id for each in ledger.jobs.page(states=[JobState.FAILED])] == ["job"]
        assert {each.id for each in ledger.jobs.page(states=[JobState.FAILED, JobState.INITIALIZING])} == {
            "job",
            "made",
        }

    def test_slices_page_by_page(self, ledger: Ledger) -> None:
        part, _ = running_two(ledger, plans(3), [plan(0, [7], work=5)])
        first, *_ = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        ledger.slices.complete(part, "ann", [outcome(first)], job_id="job")
        seen = walked(lambda at: ledger.slices.page("job", after=at, limit=3), lambda each: each.place)
        assert len({each.id for each in seen}) == 4
        assert seen == ledger.slices.page("job")
        (done,) = ledger.slices.page("job", state=SliceState.COMPLETED)
        assert (done.id, done.ref, done.worker_id, done.attempts) == (first.slice_id, REF, "ann", 0)
        assert done.claimed_at is not None
        assert done.finished_at is not None
        assert [each.ref for each in ledger.slices.page("job", refs=[OTHER])] == [OTHER]
        assert ledger.slices.page("job", refs=[]) == ledger.slices.page("other") == []
        assert ledger.slices.page("job", after=SlicePlace(*seen[-1].place)) == []

    def test_states_of_slices_in_the_same_order(self, ledger: Ledger) -> None:
        running_two(ledger, plans(3), plans(2))
        ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        listed = [(each.ref, each.number, each.state) for each in ledger.slices.page("job")]
        assert ledger.slices.states("job") == listed
        assert [state for *_, state in listed].count(SliceState.PROCESSING) == 1

    def test_pages_are_of_more_partitions_than_a_statement_has_variables(self, ledger: Ledger) -> None:
        """SQLite has 32,766 or 250,000, PostgreSQL 65,535."""
        running_two(ledger, plans(3), plans(2))
        many = [*(PartitionRef("Many", Scope(f"{number}/")) for number in range(260_000)), OTHER]
        assert {each.ref for each in ledger.slices.page("job", refs=many)} == {OTHER}
        assert [each.id for each in ledger.jobs.page(refs=many)] == ["job"]
        assert ledger.jobs.page(refs=many[:-1]) == []
        assert ledger.failures.page(only=FailureFilter(many)) == []

    def test_wants_page_by_page(self, ledger: Ledger) -> None:
        for number in range(5):
            refs = (str(REF), str(OTHER)) if number % 2 else (str(REF),)
            ledger.events.append([WantCreated(want=f"want{number}", refs=refs)])
        ledger.events.append([WantCanceled(want="want3")])
        for ref, open_only in ((None, False), (None, True), (REF, False), (REF, True), (OTHER, False)):
            read = partial(ledger.wants.newest, ref=ref, open_only=open_only)
            assert walked(partial(_two, read), lambda each: each.id) == read()
        assert ledger.wants.newest(after="nothing") == ledger.wants.newest(ref=REF, after="nothing") == []

    def test_failures_page_by_page(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(each, fail=range(8)) for each in claims[:2]], job_id="job")
        clock.advance(1)
        ledger.slices.complete(part, "ann", [outcome(each, fail=[4, 6]) for each in claims[2:]], job_id="job")
        seen = walked(lambda at: ledger.failures.page(after=at, limit=2), location_of)
        assert seen == ledger.failures.newest()
        assert len(seen) == 6
        assert ledger.failures.page(only=FailureFilter([REF])) == seen
        assert ledger.failures.page(only=FailureFilter([OTHER])) == []

    def test_failures_by_reason_the_most_first(self, ledger: Ledger) -> None:
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(each, fail=range(8)) for each in claims], job_id="job")
        every = ledger.failures.page(limit=1_000)
        groups = ledger.failures.groups()
        assert sum(each.number for each in groups) == len(every)
        assert [each.number for each in groups] == sorted((each.number for each in groups), reverse=True)
        for each in groups:
            only = FailureFilter([each.ref], "job", each.stage, each.reason)
            assert len(ledger.failures.page(only=only, limit=1_000)) == each.number
        assert ledger.failures.groups(offset=len(groups)) == []
        assert ledger.failures.groups(only=FailureFilter(job="another")) == []

    def test_jobs_on_a_partition(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        assert [each.id for each in ledger.jobs.page(refs=[REF])] == ["job"]
        assert ledger.jobs.page(refs=[OTHER]) == []

    def test_the_log_of_a_job_keeps_the_newest_lines_and_all_phases(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        ledger.job_log.add("job", Phase.CHECKS, "checks", ref=str(REF), worker_id="ann")
        for number in range(KEPT + 2):
            ledger.job_log.add("job", SAID, f"line {number}")
        ledger.job_log.add("another", SAID, "there is no such job")
        lines = ledger.job_log.page("job", limit=2 * KEPT)
        assert [each.text for each in (lines[0], lines[-2], lines[-1])] == [f"line {KEPT + 1}", "line 2", "checks"]
        assert lines[-1].ref == str(REF)
        assert ledger.job_log.page("job", before=lines[1].number, limit=1) == [lines[2]]
        assert ledger.job_log.page("another") == []

    def test_a_job_is_in_the_phase_that_its_finisher_told_last(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))

        def phase() -> Phase | None:
            job = ledger.jobs.get("job")
            assert job is not None
            return job.phase

        assert phase() is Phase.WAVES
        ledger.slices.complete(part, "ann", [outcome(each) for each in claim_all(ledger)], job_id="job")
        assert phase() is Phase.INDEXES
        ledger.job_log.add("job", Phase.PROMOTION, "promotion", ref=str(REF), worker_id="ann")
        assert phase() is Phase.PROMOTION
        assert ledger.parts.begin_finish("job", REF, "ann")
        ledger.parts.finish("job", part, JobState.COMPLETED, worker_id="ann", promote=True)
        assert phase() is None
