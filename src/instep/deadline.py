"""A bound on how long a call may take: the time-out of an HTTP library holds for each read, and drops renew it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final, TypeVar

T = TypeVar("T")

#: For how long a server may say nothing at all to a small question, in seconds.
GREETING: Final = 10.0


class Greeting:
    """Asks each server something small before it is given work, whose own time-out is minutes; again after silence."""

    def __init__(self) -> None:
        self._heard: set[Hashable] = set()

    def demand(self, server: Hashable, ask: Callable[[], object]) -> None:
        """Raises `TimeoutError` when there is no answer; an error is one, and the work itself meets it again."""
        if server in self._heard:
            return
        try:
            within(GREETING, ask)
        except TimeoutError:
            raise
        except Exception:
            return
        self._heard.add(server)

    def forget(self, server: Hashable) -> None:
        """It has let something wait for too long."""
        self._heard.discard(server)


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
