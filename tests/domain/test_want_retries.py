"""Wants with several attempts: what spends one, the pause after it, and what is given up in the end."""

from __future__ import annotations

from instep.domain import events as e
from instep.domain.wants import Retries, Want, WantState
from tests.domain.book import REF, UP, Book

TWICE = Retries(max_attempts=2, backoff=(5_000,))


def fail(book: Book, ref: str = REF, *, retry: bool = False) -> None:
    uuid = book.build(ref).uuid
    book.do(e.InstanceFailed(instance=uuid, job="job", error="no such column", retry=retry))


def want(book: Book, id: str = "w") -> Want:
    return book.state.wants[id]


def test_a_build_that_fails_spends_an_attempt_and_the_last_one_gives_it_up() -> None:
    book = Book()
    book.want("once")
    book.want("w", retries=TWICE)
    book.make()
    fail(book)
    assert want(book, "once").state is WantState.FAILED
    assert not want(book, "once").given_up
    waiting = want(book)
    assert (waiting.state, waiting.attempts) == (WantState.IDLE, 1)
    assert waiting.error == f"the build of {REF} failed: no such column"
    due = waiting.due or 0
    assert due == waiting.not_before
    assert not waiting.can_begin(due - 1)
    assert waiting.can_begin(due)
    for _ in range(5):  # Until the pause is over.
        book.want(f"another {_}", UP)
    fail(book)
    assert (want(book).state, want(book).attempts) == (WantState.FAILED, 2)
    assert want(book).given_up


def test_what_fails_while_it_pauses_spends_nothing() -> None:
    """A job that a person has asked for, or another part of the same job."""
    book = Book()
    book.want("w", retries=TWICE)
    book.make()
    fail(book)
    fail(book)
    assert (want(book).state, want(book).attempts) == (WantState.IDLE, 1)
    assert book.refused(e.WantFailed(want="w", error="no source")) == "not-allowed"


def test_a_job_that_is_given_up_to_be_made_anew_spends_nothing() -> None:
    book = Book()
    book.want("w", retries=TWICE)
    book.make()
    fail(book, retry=True)
    assert (want(book).state, want(book).attempts, want(book).error) == (WantState.IDLE, 0, None)


def test_a_success_forgets_the_error_of_an_earlier_attempt() -> None:
    book = Book()
    book.want("w", retries=TWICE)
    book.make()
    fail(book)
    book.build()
    book.live()
    assert (want(book).state, want(book).error, want(book).given_up) == (WantState.SUCCESSFUL, None, False)


def test_what_cannot_be_planned_ends_a_want_or_spends_an_attempt() -> None:
    book = Book()
    book.want("once")
    book.want("w", retries=TWICE)
    for id in ("once", "w"):
        book.do(e.WantFailed(want=id, error="no source"))
    assert (want(book, "once").state, want(book, "once").error) == (WantState.FAILED, "no source")
    assert (want(book).state, want(book).attempts) == (WantState.IDLE, 1)
    assert book.refused(e.WantFailed(want="once", error="no source")) == "not-allowed"
    book.do(e.WantFailed(want="w", error="it can never be done", final=True))
    assert want(book).given_up


def test_a_want_that_a_job_works_on_is_not_failed_by_a_worker_that_could_not_plan_it() -> None:
    book = Book()
    book.want("w")
    book.make()
    book.build()
    assert book.refused(e.WantFailed(want="w", error="no source")) == "not-allowed"
    assert want(book).state is WantState.BUILDING


def test_an_error_that_stops_its_job_spends_an_attempt_of_a_want() -> None:
    book = Book()
    book.want("once")
    book.want("w", retries=TWICE)
    book.make()
    book.build()
    assert book.refused(e.WantFailed(want="w", error="no column", job="another")) == "not-allowed"
    for id in ("once", "w"):
        book.do(e.WantFailed(want=id, error="no column", job="job"))
    assert want(book, "once").state is WantState.FAILED
    assert (want(book).state, want(book).attempts, want(book).error) == (WantState.BUILDING, 1, "no column")
    assert book.refused(e.WantFailed(want="w", error="no column", job="job")) == "not-allowed", "it pauses"
    for number in range(5):  # Until the pause is over.
        book.want(f"another {number}", UP)
    book.do(e.WantFailed(want="w", error="no column", job="job"))
    assert want(book).given_up
    assert book.refused(e.WantFailed(want="w", error="no column", job="job")) == "not-allowed"


def test_a_want_that_fails_by_its_upstream_is_tried_again() -> None:
    book = Book()
    book.want("w", retries=TWICE)
    book.make()
    uuid = book.build().uuid
    book.do(e.DependencyMissed(job="job", instances=(uuid,), want="up", missing=(UP,)))
    book.do(e.WantFailed(want="up", error="no source"))
    assert (want(book).state, want(book).attempts) == (WantState.IDLE, 1)
    assert "no source" in (want(book).error or "")
    assert want(book).upstream == ()
