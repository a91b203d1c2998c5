"""Threads in the background: no error ends one but its own end, and what went wrong is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator

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
