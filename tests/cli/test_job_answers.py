"""Answers about jobs and workers, on a ledger in memory with a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.answers import jobs
from instep.answers.answer import as_json
from instep.answers.jobs import Pulse, Slices, find_job, job_answers, one_job_answer, worker_answers
from instep.cli.jobs import _units, percent_text
from instep.domain.clock import TIMING
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from tests.cli import ledgers
from tests.cli.ledgers import ANN, BOB, JOB
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger

OTHER = "1f0c9999-bbbb-4000-8000-000000000002"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(clock: VirtualClock) -> MemoryLedger:
    return MemoryLedger(clock)


def error_of(act: Callable[[], object]) -> UserError:
    with pytest.raises(UserError) as caught:
        act()
    return caught.value


def test_an_empty_ledger_has_no_jobs_and_no_workers(ledger: MemoryLedger) -> None:
    assert job_answers(ledger) == []
    assert worker_answers(ledger) == []


def test_a_running_job_shows_progress_speed_and_workers(ledger: MemoryLedger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger, slices=4)
    ledgers.register(ledger, BOB, host="server-2")
    ledger.jobs.join(JOB, BOB)
    ledgers.complete(ledger, part, 1, failed=1)
    clock.sleep(10)
    ledgers.claim(ledger, part, 1, worker=BOB)
    (view,) = job_answers(ledger)
    assert (view.id, view.state, view.refs) == (JOB, JobState.RUNNING, (PartitionRef("Document"),))
    assert (view.done, view.units, view.counts.failed) == (5, 20, 1)
    assert view.slices == Slices(PENDING=2, PROCESSING=1, COMPLETED=1, FAILED=0, CANCELLED=0)
    assert (view.duration_seconds, view.units_per_second, view.seconds_left) == (10.0, 0.5, 30.0)
    assert [each.id for each in view.workers] == [ANN, BOB]
    assert not view.waits_for_workers


def test_a_job_says_whether_it_counts_documents_or_rows(ledger: MemoryLedger) -> None:
    ledgers.begin(ledger)
    assert one_job_answer(ledger, JOB).unit == "document"
    view = one_job_answer(ledger, JOB, tables={"Document"})
    assert view.unit == "row"
    assert _units(view) == f"0 of {view.units} rows"


def test_before_the_first_slice_there_is_no_speed_to_go_by(ledger: MemoryLedger, clock: VirtualClock) -> None:
    ledgers.begin(ledger)
    clock.sleep(5)
    view = one_job_answer(ledger, JOB)
    assert (view.duration_seconds, view.units_per_second, view.seconds_left) == (5.0, None, None)


def test_a_job_that_is_being_planned_has_nothing_yet(ledger: MemoryLedger) -> None:
    ledgers.register(ledger, ANN)
    ledger.jobs.begin(JOB, ANN, {})
    view = one_job_answer(ledger, JOB)
    assert (view.state, view.refs, view.units, view.duration_seconds, view.seconds_left) == (
        JobState.INITIALIZING,
        (),
        0,
        None,
        None,
    )


def test_each_part_of_a_job_is_reported_separately(ledger: MemoryLedger) -> None:
    documents, tickets = ledgers.begin(ledger, entities=["Document", "Ticket"], slices=2)
    ledgers.complete(ledger, documents, 2)
    ledgers.finish(ledger, documents, JobState.COMPLETED)
    ledgers.complete(ledger, tickets, 1, failed=2)
    first, second = sorted(one_job_answer(ledger, JOB).parts, key=lambda part: part.ref)
    assert (first.state, first.units, first.counts.written, first.failed_slices) == (JobState.COMPLETED, 10, 10, 0)
    assert (second.state, second.units, second.counts.failed) == (None, 10, 2)


def test_an_ended_job_took_as_long_as_it_ran(ledger: MemoryLedger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger, slices=1)
    clock.sleep(7)
    ledgers.complete(ledger, part, 1)
    ledgers.finish(ledger, part, JobState.COMPLETED)
    clock.sleep(3600)
    view = one_job_answer(ledger, JOB)
    assert (view.state, view.duration_seconds, view.units_per_second, view.seconds_left) == (
        JobState.COMPLETED,
        7.0,
        None,
        None,
    )


def test_a_job_without_workers_is_said_to_wait(ledger: MemoryLedger) -> None:
    ledgers.begin(ledger)
    ledger.jobs.leave(JOB, ANN)
    assert one_job_answer(ledger, JOB).waits_for_workers


def test_workers_show_their_activity_and_its_start(ledger: MemoryLedger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger)
    ledgers.register(ledger, BOB, host="server-2", pid=7)
    clock.sleep(3)
    ledgers.claim(ledger, part, 2)
    since = clock.now()
    clock.sleep(2)
    ann, bob = sorted(worker_answers(ledger), key=lambda each: each.id)
    assert (ann.kind, ann.refs, ann.jobs, ann.slices, ann.busy_since) == ("run", (part.ref,), (JOB,), 2, since)
    assert (bob.kind, bob.host, bob.pid, bob.refs, bob.slices, bob.busy_since) == ("worker", "server-2", 7, (), 0, None)


@pytest.mark.parametrize(
    ("silence", "pulse"),
    [
        (0, Pulse.STEADY),
        (2 * TIMING.heartbeat - 1, Pulse.STEADY),
        (2 * TIMING.heartbeat, Pulse.LATE),
        (TIMING.stale - 1, Pulse.LATE),
        (TIMING.stale, Pulse.STALE),
    ],
)
def test_two_missed_heartbeats_are_late_and_silence_is_stale(
    ledger: MemoryLedger, clock: VirtualClock, silence: int, pulse: Pulse
) -> None:
    ledgers.register(ledger, ANN)
    clock.sleep(silence / 1000)
    (worker,) = worker_answers(ledger)
    assert worker.pulse is pulse
    assert as_json(worker)["pulse"] == str(pulse)


def test_a_job_is_found_by_its_id_or_a_beginning_that_no_other_has(ledger: MemoryLedger) -> None:
    ledgers.begin(ledger)
    ledgers.begin(ledger, job_id=OTHER, entities=["Ticket"])
    assert find_job(ledger, JOB).id == JOB
    assert find_job(ledger, OTHER[:8]).id == OTHER


def test_a_beginning_that_several_have_is_answered_with_them(ledger: MemoryLedger) -> None:
    ledgers.begin(ledger)
    ledgers.begin(ledger, job_id=OTHER, entities=["Ticket"])
    error = error_of(lambda: find_job(ledger, "1f0c"))
    assert "2 jobs" in error.what
    assert error.hint is not None
    assert f"{JOB} (Document@global)" in error.hint
    assert f"{OTHER} (Ticket@global)" in error.hint


def test_an_unknown_job_is_answered_with_a_hint(ledger: MemoryLedger) -> None:
    assert "nothing has run yet" in error_of(lambda: find_job(ledger, "abcd")).what
    ledgers.begin(ledger)
    error = error_of(lambda: find_job(ledger, "abcd"))
    assert "no job begins with 'abcd'" in error.what
    assert "instep jobs" in str(error.hint)
    assert "at least 4" in str(error_of(lambda: find_job(ledger, "1f0")).hint)


def test_stopping_an_idle_job_stops_it_at_once(ledger: MemoryLedger, clock: VirtualClock) -> None:
    ledgers.begin(ledger)
    assert jobs.stop_job(ledger, JOB, "enough", clock=clock) is JobState.STOPPED
    assert one_job_answer(ledger, JOB).error == "stopped by request: enough"


def test_stopping_waits_only_when_asked(ledger: MemoryLedger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger)
    ledgers.claim(ledger, part, 1)
    before = clock.now()
    assert jobs.stop_job(ledger, JOB, "enough", clock=clock) is JobState.STOPPING
    assert clock.now() == before


def test_waiting_for_a_stop_ends_after_the_grace_time_even_if_all_workers_are_dead(
    ledger: MemoryLedger, clock: VirtualClock
) -> None:
    (part,) = ledgers.begin(ledger)
    ledgers.claim(ledger, part, 1)
    before = clock.now()
    assert jobs.stop_job(ledger, JOB, "enough", clock=clock, wait=True) is JobState.STOPPED
    assert TIMING.grace <= clock.now() - before <= TIMING.grace + 1000 * jobs.STOP_POLL_SECONDS
    assert one_job_answer(ledger, JOB).slices == Slices.of({SliceState.PENDING: 4})


def test_an_ended_job_is_not_stopped(ledger: MemoryLedger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger, slices=1)
    ledgers.complete(ledger, part, 1)
    ledgers.finish(ledger, part, JobState.COMPLETED)
    assert jobs.stop_job(ledger, JOB, "enough", clock=clock, wait=True) is JobState.COMPLETED


def test_a_resumed_job_is_open_to_any_worker_and_keeps_its_progress(ledger: MemoryLedger) -> None:
    (part,) = ledgers.begin(ledger)
    ledgers.complete(ledger, part, 1)
    ledgers.stop(ledger)
    assert ledger.open_parts.on([part.ref]) == []
    jobs.resume_job(ledger, ledgers.job_of(ledger))
    (offered,) = ledger.open_parts.on([part.ref])
    assert (offered.job_id, offered.pending, offered.held) == (JOB, 3, False)
    view = one_job_answer(ledger, JOB)
    assert (view.state, view.done, view.error) == (JobState.RUNNING, 5, None)


def test_resuming_a_running_job_changes_nothing(ledger: MemoryLedger) -> None:
    ledgers.begin(ledger)
    jobs.resume_job(ledger, ledgers.job_of(ledger))
    assert ledgers.job_of(ledger).state is JobState.RUNNING


def test_a_job_that_cannot_be_resumed_gives_the_reason(ledger: MemoryLedger) -> None:
    (part,) = ledgers.begin(ledger, slices=2)
    ledgers.claim(ledger, part, 1)
    ledger.jobs.request_stop(JOB)
    assert "--wait" in str(error_of(lambda: jobs.resume_job(ledger, ledgers.job_of(ledger))).hint)
    (ticket,) = ledgers.begin(ledger, job_id=OTHER, entities=["Ticket"], slices=1)
    ledgers.complete(ledger, ticket, 1, job_id=OTHER, failed=1)
    ledgers.finish(ledger, ticket, JobState.COMPLETED_WITH_ERRORS, job_id=OTHER)
    assert f"job retry {OTHER}" in str(error_of(lambda: jobs.resume_job(ledger, ledgers.job_of(ledger, OTHER))).hint)


def test_a_job_that_is_being_planned_cannot_be_resumed(ledger: MemoryLedger) -> None:
    ledgers.register(ledger, ANN)
    ledger.jobs.begin(JOB, ANN, {})
    assert "still being planned" in error_of(lambda: jobs.resume_job(ledger, ledgers.job_of(ledger))).what


def test_retrying_means_the_entities_in_which_something_failed(ledger: MemoryLedger) -> None:
    parts = ledgers.begin(ledger, entities=["Document", "Note", "Ticket"], slices=1)
    for part, failed, state in zip(
        parts, [1, 0, 5], [JobState.COMPLETED_WITH_ERRORS, JobState.COMPLETED, JobState.FAILED], strict=True
    ):
        ledgers.complete(ledger, part, 1, failed=failed)
        ledgers.finish(ledger, part, state)
    assert jobs.entities_to_retry(ledgers.job_of(ledger)) == {"": ["Document", "Ticket"]}


def test_nothing_is_retried_where_nothing_failed(ledger: MemoryLedger) -> None:
    (part,) = ledgers.begin(ledger, slices=1)
    ledgers.complete(ledger, part, 1)
    ledgers.finish(ledger, part, JobState.COMPLETED)
    assert jobs.entities_to_retry(ledgers.job_of(ledger)) == {}


def test_a_job_that_may_continue_by_itself_is_not_retried(ledger: MemoryLedger) -> None:
    ledgers.begin(ledger)
    assert "has not ended" in error_of(lambda: jobs.entities_to_retry(ledgers.job_of(ledger))).what
    ledgers.stop(ledger)
    assert "job resume" in str(error_of(lambda: jobs.entities_to_retry(ledgers.job_of(ledger))).hint)


def test_a_job_that_failed_before_it_was_planned_is_run_again(ledger: MemoryLedger, clock: VirtualClock) -> None:
    ledgers.register(ledger, ANN)
    ledger.jobs.begin(JOB, ANN, {})
    clock.sleep(TIMING.stale / 1000)
    ledger.sweep()
    assert "instep run" in str(error_of(lambda: jobs.entities_to_retry(ledgers.job_of(ledger))).hint)


def test_a_job_is_not_all_done_before_it_has_ended(ledger: MemoryLedger) -> None:
    (part,) = ledgers.begin(ledger, slices=2)
    ledgers.complete(ledger, part, 2)
    read = one_job_answer(ledger, ledgers.JOB)
    assert (read.phase, percent_text(read)) == ("indexes", "99%")
    ledgers.finish(ledger, part, JobState.COMPLETED)
    ended = one_job_answer(ledger, ledgers.JOB)
    assert (ended.phase, percent_text(ended)) == (None, "100%")


def test_progress_counts_what_was_read_before_its_wave_is_committed(ledger: MemoryLedger) -> None:
    (part,) = ledgers.begin(ledger, slices=4)
    ledgers.complete(ledger, part, 1)
    assert percent_text(one_job_answer(ledger, ledgers.JOB)) == "25%"
    claimed = ledgers.claim(ledger, part, 2)
    ledger.slices.tell(claimed[0], ANN, ledgers.UNITS)
    read = one_job_answer(ledger, ledgers.JOB)
    assert (read.done, read.counts.read) == (2 * ledgers.UNITS, ledgers.UNITS)
    assert (read.phase, percent_text(read)) == ("waves", "50%")
