"""Check, before the first job, that executors have what all tasks import and see the paths that tasks need."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, NamedTuple

from instep.errors import UserError
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.executor_probe import BRING_LIBRARIES, LIBRARIES, question
from instep.pipeline.engine.executors import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Files of a folder that are looked at, to find one that can be asked for.
_MOST_FILES = 1_000


class PathState(NamedTuple):
    """A file as this process sees it."""

    path: str
    size: int
    changed: int


def require_able_executors(session: SparkSession, places: Mapping[str, bool]) -> None:
    """Check that executors have what all tasks import, and see these paths as this process does; True where they write.
    A Spark of this machine alone is not asked. Raises `UserError` with the hosts and what is missing.
    """
    if sparkapi.is_on_this_machine(session):
        return
    with ExitStack() as marks:
        wanted = [each for place in places.items() if (each := _state_of_path(*place, marks))]
        answers = ask(session, question(LIBRARIES, {"unseen": partial(_unseen, wanted)}))
    for executor, said in answers.items():
        if missing := [name for name, version in said["versions"].items() if version is None]:
            raise UserError(
                f"the executor on {executor.host} has no {', '.join(missing)}",
                hint=f"{BRING_LIBRARIES} instep check --cluster says what else is missing.",
            )
        for path in said["tries"]["unseen"]["said"]:
            raise UserError(
                f"the executor on {executor.host} does not see {path} as {gethostname()} does",
                where=path,
                hint="Name an object store or a server that all hosts reach, or mount this path on every one of them.",
            )


def _state_of_path(place: str, written: bool, marks: ExitStack) -> PathState | None:
    """A file to look for: one that is there, or where tasks write, one of our own. None where there is none: then
    nothing can be missed.
    """
    path = Path(place)
    if written:
        path = next(each for each in (path, *path.parents) if each.is_dir())
        mark = path / f".instep-{uuid.uuid4().hex}"
        with suppress(OSError):  # That it cannot be written is for the target to say.
            mark.touch()
            marks.callback(mark.unlink, missing_ok=True)
            return _state(mark)
    if path.is_file():
        return _state(path)
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return next((_state(file) for file in islice(files, _MOST_FILES) if file.is_file()), None)


def _state(path: Path) -> PathState:
    found = path.stat()
    return PathState(str(path), found.st_size, found.st_mtime_ns)


def _unseen(wanted: Sequence[PathState]) -> list[str]:
    """A task's part: the paths that it does not see like this."""
    return [each.path for each in wanted if not _same(each)]


def _same(wanted: PathState) -> bool:
    """Whether a path is here as it was seen elsewhere."""
    try:
        return _state(Path(wanted.path)) == wanted
    except OSError:
        return False
