"""Telling a dead worker from a slow one, on one host, without waiting for its lease to expire.

A worker holds an advisory lock on a file of its own as long as it lives; the system drops the lock
when the process ends, however it ends. Who can take the lock has proved that its owner is dead.
A worker without such a file here (another host, another folder) proves nothing: its lease decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class WorkerLock:
    """This process's own proof of life. Not inherited by child processes."""

    def __init__(self, state: Path, worker_id: str) -> None:
        folder = state / "workers"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{worker_id}.lock"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._file)


def proved_dead(state: Path, worker_id: str) -> bool:
    """True only if the worker's lock file is here and nobody holds it any more."""
    path = state / "workers" / f"{worker_id}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(file)


def forget(state: Path, worker_id: str) -> None:
    """Remove the lock file of a dead worker, once nothing is held in its name any more."""
    with contextlib.suppress(FileNotFoundError):
        (state / "workers" / f"{worker_id}.lock").unlink()
