"""Faults of the project's own code: what its functions and classes raise, told as an error of theirs."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def own_faults() -> Iterator[None]:
    """Raise what the project's code raises in here as its `own_fault`."""
    try:
        yield
    except Exception as error:
        if found := own_fault(error):
            raise found from error
        raise
