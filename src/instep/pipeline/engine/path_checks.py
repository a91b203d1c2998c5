"""Check that executors see the paths of this machine that tasks read and write."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from instep.errors import UserError
from instep.pipeline.engine import sparkapi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tasks that look, where Spark does not say how many run at once.
_TASKS = 8
#: How long each of them holds its core, so that others go to other executors.
_HOLD_SECONDS = 0.2
#: Files of a folder that are looked at, to find one that can be asked for.
_MOST_FILES = 1_000


class PathState(NamedTuple):
    """A file as this process sees it."""

    path: str
    size: int
    changed: int


def require_visible_paths(session: SparkSession, places: Mapping[str, bool]) -> None:
    """Check that tasks see these paths as this process does; True where they write. A Spark of this machine alone is
    not asked. Raises `UserError` with the host and the path of the first that is not so.
    """
    if not places or sparkapi.is_on_this_machine(session):
        return
    with ExitStack() as marks:
        wanted = [each for place in places.items() if (each := _state_of_path(*place, marks))]
        tasks = sparkapi.slots(session) or _TASKS
        asked = session.range(0, tasks, 1, tasks)
        found = sparkapi.map_in_arrow(asked, _looking(wanted), "host string, path string").toArrow()
    for host, path in zip(*(column.to_pylist() for column in found.columns), strict=True):
        raise UserError(
            f"the executor on {host} does not see {path} as {gethostname()} does",
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


def _looking(wanted: Sequence[PathState]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task: a row for each path that it does not see like this."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(_HOLD_SECONDS * batch.num_rows)
            unseen = [each.path for each in wanted if not _same(each)]
            yield pa.RecordBatch.from_pydict(
                {"host": pa.array([gethostname()] * len(unseen), pa.string()), "path": pa.array(unseen, pa.string())}
            )

    return look


def _same(wanted: PathState) -> bool:
    """Whether a path is here as it was seen elsewhere."""
    try:
        return _state(Path(wanted.path)) == wanted
    except OSError:
        return False
