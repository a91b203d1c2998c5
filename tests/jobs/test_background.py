"""Threads in the background: no error ends one but its own end, and what went wrong is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from instep.system import Threads

TIMEOUT_SECONDS = 60.0


def test_an_unexpected_error_ends_no_thread_and_is_reported_once() -> None:
    said: list[tuple[str, str]] = []
    again = threading.Event()
    answers: Iterator[Exception | bool] = iter(
        [RuntimeError("WSREP"), RuntimeError("WSREP"), True, ValueError("api_key=s3cret1234"), True, True]
    )

    def task() -> bool:
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            again.set()
        return True

    stop = Threads(lambda name, what: said.append((name, what))).every(0.001, task, "heartbeat-1")
    assert again.wait(TIMEOUT_SECONDS)
    stop()
    assert said == [
        ("heartbeat-1", "unexpected RuntimeError: WSREP; going on"),
        ("heartbeat-1", "unexpected ValueError: api_key=***; going on"),
    ]


def test_a_report_that_fails_ends_no_thread_either() -> None:
    again = threading.Event()
    calls = iter(range(3))

    def report(name: str, what: str) -> None:
        raise OSError("closed pipe")

    def task() -> bool:
        if next(calls, None) is None:
            again.set()
            return False
        raise RuntimeError("no luck")

    stop = Threads(report).every(0.001, task, "heartbeat-1")
    assert again.wait(TIMEOUT_SECONDS)
    stop()


def test_what_runs_beside_the_caller_is_waited_for_and_says_how_it_ended() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def task() -> str:
        begun.set()
        assert go_on.wait(TIMEOUT_SECONDS)
        return "done"

    result = Threads().beside(task, "upkeep")
    assert begun.wait(TIMEOUT_SECONDS), "it runs while its caller goes on"
    go_on.set()
    assert (result(), result()) == ("done", "done")


def test_an_error_beside_the_caller_is_its_own_where_it_waits() -> None:
    def task() -> None:
        raise OSError("the disk is full")

    result = Threads().beside(task, "upkeep")
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is full"):
            result()
