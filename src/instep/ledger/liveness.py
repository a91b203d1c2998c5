"""Telling a dead worker from a slow one, on one host, without waiting for its heartbeat to go stale.

A worker holds an advisory lock on a file of its own as long as it lives; the system drops the lock
when the process ends, however it ends. A process that can take the lock knows that its owner is dead.
A worker without such a file here (another host, another folder) proves nothing: its heartbeat decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from instep.errors import UserError


class Liveness(Protocol):
    """Proofs of life and death of workers."""

    def begin(self, worker_id: str) -> Callable[[], None]:
        """Lock a file that proves this process alive. The returned function releases it: from then on the worker is
        known to be dead, until it is forgotten.
        """

    def proved_dead(self, worker_id: str) -> bool: ...

    def all_dead(self) -> list[str]:
        """The workers that are proved dead, registered or not."""

    def forget(self, worker_id: str) -> None:
        """Clear away the proof, once nothing is held in the worker's name any more."""


class LockFiles:
    """Implements `Liveness` with a lock file per worker. The locks are not inherited by child processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> str:
        """Check that locks can be written, and leave none. Raises `UserError`."""
        there = next(each for each in (self._folder, *self._folder.parents) if each.is_dir())
        try:
            with tempfile.TemporaryFile(dir=there):
                return "can be written"
        except OSError as error:
            raise self._unwritable(error) from error

    def begin(self, worker_id: str) -> Callable[[], None]:
        try:
            return self._begin(worker_id)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"the folder of `state` cannot be written: {(error.strerror or type(error).__name__).lower()}",
            where=str(self._folder.parent),
            hint="Make it writable, or name another folder as `state` in instep.yaml.",
        )

    def _begin(self, worker_id: str) -> Callable[[], None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Locked before it has its name: a look in between must not find it free.
        new = self._folder / f"{worker_id}.new"
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        new.rename(self._path(worker_id))

        return lambda: os.close(file)

    def proved_dead(self, worker_id: str) -> bool:
        """True only if the worker's lock file is here and no process holds it."""
        try:
            file = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC)
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

    def all_dead(self) -> list[str]:
        found = sorted(each.stem for each in self._folder.glob("*.lock"))
        return [worker_id for worker_id in found if self.proved_dead(worker_id)]

    def forget(self, worker_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(worker_id).unlink()

    def _path(self, worker_id: str) -> Path:
        return self._folder / f"{worker_id}.lock"
