"""SIGTERM and Ctrl-C as a clean stop."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: After how many seconds an interrupt that Python dropped is given again.
AGAIN_SECONDS = 0.05


@contextmanager
def terminate_like_ctrl_c() -> Iterator[None]:
    """A service manager's SIGTERM stops as cleanly as Ctrl-C does, and neither is ever lost.

    Python drops an exception that a finalizer or the callback of a weak reference raises, and a signal may come just
    then: it is told of by `sys.unraisablehook` only. Such an interrupt is given once more.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    def dropped(what: UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            # A timer, as what is raised in this hook is dropped too.
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            hook_before(what)

    # A logger's filters are not asked for records of loggers below it: those go up to the last resort.
    quiet = [each for each in (logging.getLogger(), logging.lastResort) if each is not None]
    for each in quiet:
        each.addFilter(_is_no_interrupt)
    before = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGALRM)}
    hook_before, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook_before
        for each in quiet:
            each.removeFilter(_is_no_interrupt)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Py4J, which Spark's driver talks through, and SQLAlchemy's pool hand an interrupt on, but log it first, with a
    traceback.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))
