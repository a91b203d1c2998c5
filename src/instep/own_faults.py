"""Faults of the project's own code: what its functions and classes raise, told as an error of theirs."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

from instep.domain.texts import cleaned
from instep.errors import InstepError, UserError

#: The packages, or modules in none, that the project has named code of.
_packages: set[str] = set()


def note_code(module: str) -> None:
    """Take what is raised in this package for a fault of its own."""
    _packages.add(module.partition(".")[0])


def own_fault(error: Exception) -> UserError | None:
    """The error of the project's code that this is, with its place; None if it is none, or says itself what is to be
    done. What that code has called may have raised it, but for Instep itself.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    packages = {*_packages, "instep"}
    told = ((frame, line, str(frame.f_globals.get("__name__"))) for frame, line in reversed(frames))
    frame, line, module = next((each for each in told if each[2].partition(".")[0] in packages), (None, 0, "instep"))
    if frame is None or isinstance(error, InstepError) or module.partition(".")[0] == "instep":
        return None
    return UserError(
        cleaned(f"{frame.f_code.co_qualname} of {module} raised {type(error).__name__}: {error}"),
        where=f"{frame.f_code.co_filename}:{line}",
        hint="Fix it, and run again.",
    )


def is_stop(error: BaseException) -> bool:
    """Whether an exception that came out of the project's code is no fault of that: Ctrl-C, or what a signal handler of
    the program has raised in which Instep runs (an orchestrator ends a task like that).
    """
    if isinstance(error, Exception):
        return False  # Code that stops itself after a time raises such a one from a handler of its own.
    handlers = {_code(signal.getsignal(each)) for each in signal.valid_signals()} - {None}
    raised_in = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, KeyboardInterrupt) or not handlers.isdisjoint(raised_in)


def _code(handler: object) -> CodeType | None:
    for each in (handler, vars(type(handler)).get("__call__")):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


@contextmanager
def own_faults() -> Iterator[None]:
    """Raise what the project's code raises in here as its `own_fault`."""
    try:
        yield
    except Exception as error:
        if found := own_fault(error):
            raise found from error
        raise
