"""A process in which the libraries are loaded already, which takes longer than most tests: it forks for each run of
pytest that it is asked for, on a line of JSON, and says on another how that ended.

Whatever a run starts becomes its child, at the latest when its own parent is gone: so it sees how much memory all of
them have, and leaves none of them behind.

It is started as a script, in the copy of the tree: of that, nothing may be loaded before there is a slip in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psutil

#: Those that have no threads yet when they are loaded.
_LIBRARIES: Final = (
    "alembic.command", "fastapi", "fsspec", "httpx", "hypothesis.core", "msgspec", "numpy", "pathspec", "pyarrow",
    "pyarrow.compute", "pyarrow.parquet", "pydantic", "pytest", "rich.console", "rich.progress", "rich.table",
    "schemathesis", "sqlalchemy.dialects.sqlite", "stamina", "typer", "yaml",
)  # fmt: skip

#: Of Linux; elsewhere the children of a dead process have no parent.
_PR_SET_CHILD_SUBREAPER: Final = 36

_LOOK_SECONDS: Final = 0.2
#: For tests that are interrupted, to put away what is theirs.
_GRACE_SECONDS: Final = 15.0
#: What is sent to those that tests have left behind, and for how long it is waited then.
_FAREWELLS: Final = ((None, 5.0), (signal.SIGTERM, 15.0), (signal.SIGKILL, 15.0))


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has ignored in what it starts with "&"
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            return _run(asked)
        try:
            code, ended = _waited_for(child, asked["seconds"], asked["bytes"])
        finally:
            _end_all()
        print(json.dumps([code, ended]), flush=True)
    return 0


def _run(asked: Mapping[str, Any]) -> int:
    """In a session of its own: its signals to its group reach no other process."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for to, descriptor in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(to, descriptor)
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = asked["scratch"]
    tempfile.tempdir = None
    pytest: Any = importlib.import_module("pytest")
    return int(pytest.main(asked["options"]))


def _waited_for(child: int, seconds: float, most: float) -> tuple[int, str]:
    """Its exit code, and why it was ended, if it was: first as a person would, so that it ends its servers."""
    deadline = time.monotonic() + seconds
    ended = ""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), ended
        reason = ""
        sizes = dict(_sizes())
        if sum(sizes.values()) > most:
            reason = f"its processes held more than {most / 2**30:g} GiB of memory"
            with contextlib.suppress(ProcessLookupError):
                os.kill(max(sizes, key=lambda pid: sizes[pid]), signal.SIGKILL)
        elif time.monotonic() > deadline:
            reason = f"it still ran after {seconds:g} s"
        if reason and not ended:
            ended, deadline = reason, time.monotonic() + _GRACE_SECONDS
            os.kill(child, signal.SIGINT)
        elif ended and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _sizes() -> Iterator[tuple[int, int]]:
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            yield each.pid, each.memory_info().rss


def _end_all() -> None:
    """Servers of tests end by themselves when the tests do, and remove their folders; others have to be told."""
    for number, seconds in _FAREWELLS:
        if number is not None:
            for each in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    each.send_signal(number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    time.sleep(_LOOK_SECONDS / 4)
            except ChildProcessError:
                return  # that is: there are none


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
