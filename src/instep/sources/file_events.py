"""Paths of local files that change, as the operating system tells them: no folder is listed to find them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence

#: Milliseconds for which changes are collected at most, and without another one.
_MOST, _CALM = 200, 50
#: Milliseconds between two looks whether to end.
_TIMEOUT = 500
#: More paths than this are not remembered: a listing finds as many changes sooner.
MOST_PATHS = 10_000


class FileEvents:
    """Implements `sources.document_source.SourceEvents`: changes below some folders since it was made, until it is
    closed. Where the system cannot watch them (no watches are left, or another machine writes to a network mount), it
    tells nothing.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._lost = False
        self._closed = threading.Event()
        #: Why it does not work, or empty.
        self.failure = ""
        #: Set once the system watches the folders.
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="file-events", daemon=True)
        self._thread.start()

    def take(self) -> Collection[str] | None:
        """Paths that have changed since they were last taken; None if there were too many to remember."""
        with self._lock:
            paths, lost = self._paths, self._lost
            self._paths, self._lost = set(), False
        return None if lost else paths

    def done(self, paths: Collection[str]) -> None:
        """The system tells each change once."""

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()

    def _follow(self) -> None:
        from watchfiles._rust_notify import RustNotify  # `watch` does not tell when it begins.

        try:
            with RustNotify(list(self._folders), False, False, 0, True, True) as watcher:
                self.ready.set()
                while not self._closed.is_set():
                    changes = watcher.watch(_MOST, _CALM, _TIMEOUT, self._closed)
                    if isinstance(changes, set):
                        self._add(path for _, path in changes)
        except (OSError, RuntimeError) as error:
            self.failure = str(error)
        finally:
            self.ready.set()

    def _add(self, paths: Iterable[str]) -> None:
        with self._lock:
            self._paths.update(paths)
            if len(self._paths) > MOST_PATHS:
                self._paths, self._lost = set(), True
