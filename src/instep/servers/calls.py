"""Calls to servers: how often they are tried again, and how long one may take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from stamina import Attempt

#: Tries of one request to a server that is away or overloaded, and seconds between them: the first and the longest.
_ATTEMPTS = 5
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0


def tries(
    on: type[Exception] | Callable[[Exception], bool | float],
    *,
    attempts: int = _ATTEMPTS,
    first_wait: float | None = None,
    longest_wait: float | None = None,
) -> Iterable[Attempt]:
    """Attempts, each for a `with`; an error of another kind, or of the last attempt, is raised on. Waits are in
    seconds.
    """
    import stamina

    _silence()
    first = _FIRST_WAIT if first_wait is None else first_wait
    return stamina.retry_context(
        on=on,
        attempts=attempts,
        timeout=None,
        wait_initial=first,
        wait_max=_LONGEST_WAIT if longest_wait is None else longest_wait,
        wait_jitter=first,
    )


@cache
def _silence() -> None:
    """Stamina logs each retry, to the terminal by default. The caller reports a longer outage itself."""
    import stamina

    stamina.instrumentation.set_on_retry_hooks(())


T = TypeVar("T")

#: For how long a server may say nothing at all to a small question, in seconds.
GREETING: Final = 10.0


class Greeting:
    """Asks each server something small before it is given work, whose own time-out is minutes; again after silence."""

    def __init__(self) -> None:
        self._heard: set[Hashable] = set()

    def demand(self, server: Hashable, ask: Callable[[], object]) -> None:
        """Check that a server answers. Raises `TimeoutError` when there is no answer; an error is one, and the work
        itself meets it again.
        """
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
        """Forget a server that has let something wait for too long."""
        self._heard.discard(server)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return or raise what the call does; raise `TimeoutError` when that takes longer. The call itself is left alone
    then, in a thread that keeps no process alive.
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
