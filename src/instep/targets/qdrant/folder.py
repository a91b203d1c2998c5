"""A folder of collections in this process: the open ones, and the lock among processes.

Qdrant lets one process at a time open a collection. So the folder is locked while a thread works in it and a little
longer (opening takes a moment); another process that waits says so, and gets it as soon as no thread here is at work.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from instep.errors import Away, UserError

#: How long to wait for another process, and how often to look.
TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.02

#: Collections stay open so long after their last use.
_LINGER_SECONDS = 2.0


@dataclass
class Folder:
    """The one of this process for a path: get it from `folder`."""

    path: Path
    turn: threading.Condition = field(default_factory=threading.Condition)
    shards: dict[str, Any] = field(default_factory=dict)
    users: int = 0
    waiting: int = 0
    uses: int = 0
    lock: IO[bytes] | None = None
    watched: bool = False

    @contextlib.contextmanager
    def work(self) -> Iterator[Folder]:
        """Lock the folder against other processes. Not to be nested."""
        with self.turn:
            self.turn.wait_for(lambda: not self.waiting)
            self._enter()
            self.users += 1
        try:
            yield self
        finally:
            with self.turn:
                self.users -= 1
                self._leave()

    @contextlib.contextmanager
    def alone(self) -> Iterator[Folder]:
        """Lock the folder against other threads of this process too."""
        with self.turn:
            self.waiting += 1
            try:
                self.turn.wait_for(lambda: not self.users)
            finally:
                self.waiting -= 1
            self._enter()
            try:
                yield self
            finally:
                self._leave()

    def _enter(self) -> None:
        if self.lock is None:
            self.lock = self._locked()
        self.uses += 1

    def _leave(self) -> None:
        self.turn.notify_all()
        if self.users:
            return
        if self._wanted.exists():
            self.close()
        elif not self.watched:
            self._watch()

    def close(self) -> None:
        """Give the folder up, unless another thread of this process works in it."""
        with self.turn:
            if self.users or self.lock is None:
                return
            for shard in self.shards.values():
                shard.close()
            self.shards.clear()
            self.lock.close()
            self.lock = None

    @property
    def _wanted(self) -> Path:
        return self.path / ".wanted"

    def _locked(self) -> IO[bytes]:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("ab")
        except OSError as error:
            raise UserError(
                f"the folder cannot be written: {error.strerror}",
                where=str(self.path),
                hint="Qdrant works in a folder of its own.",
            ) from None
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.close()
                    raise Away(
                        "another process has the folder open",
                        where=str(self.path),
                        hint="Qdrant in a process is for one process at a time; several need a server.",
                    ) from None
                self._wanted.touch()
                time.sleep(_POLL_SECONDS)
                continue
            self._wanted.unlink(missing_ok=True)
            return file

    def _watch(self) -> None:
        """Close it once it was not used for a while. One thread at a time does so."""
        self.watched = True
        seen = self.uses

        def look() -> None:
            with self.turn:
                self.watched = False
                if self.uses == seen:
                    self.close()
                elif not self.users:
                    self._watch()

        timer = threading.Timer(_LINGER_SECONDS, look)
        timer.daemon = True
        timer.start()


_FOLDERS: dict[Path, Folder] = {}
_FINDING = threading.Lock()


def folder(path: Path) -> Folder:
    with _FINDING:
        return _FOLDERS.setdefault(path, Folder(path))


@atexit.register
def _end() -> None:
    for each in _FOLDERS.values():
        each.close()
