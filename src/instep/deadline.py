"""A bound on how long a call may take: the time-out of an HTTP library holds for each read, and drops renew it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """What the call returns or raises; `TimeoutError` when that takes longer. The call itself is left alone then, in a
    thread that keeps no process alive.
    """
    answer: Future[T] = Future()
    context = copy_context()

    def body() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=body, name="with-a-deadline", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # It is the call's own.
            raise
        raise TimeoutError(f"no whole answer within {seconds:.0f} s") from None
