"""Paths of local files that change, as the operating system tells them: no folder is listed to find them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

#: Milliseconds for which changes are collected at most, and without another one.
_MOST, _CALM = 200, 50
#: Milliseconds between two looks whether to end.
_TIMEOUT = 500
#: A folder that is new is looked through until nothing else is found in it, so many times at most, seconds apart.
_LOOKS, _APART = 5, 1.0
#: A path that was not there before, or is no longer, as `watchfiles` says it.
_ADDED: Final = 1
_DELETED: Final = 3
#: A folder by its device and number.
_Place: TypeAlias = "tuple[int, int] | None"
#: More paths than this are not remembered: a listing finds as many changes sooner.
MOST_PATHS = 10_000


class FileEvents:
    """Implements `sources.document_source.SourceEvents`: changes below some folders since it was made, until it is
    closed. Where the system cannot watch them (no watches are left, or another machine writes to a network mount), it
    tells nothing.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._new: list[_NewFolder] = []
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
            while not self._closed.is_set():
                there = _places(self._folders)
                if None in there and self.ready.is_set():
                    self._closed.wait(_TIMEOUT / 1000)  # Gone once more.
                    continue
                with RustNotify(list(self._folders), False, False, 0, True, True) as watcher:
                    if self.ready.is_set():
                        self._lose()  # Nobody has told what was done in the folders that are there now.
                    self.ready.set()
                    self._watch(watcher, there)
        except (OSError, RuntimeError) as error:
            self.failure = str(error)
        finally:
            self.ready.set()

    def _watch(self, watcher: RustNotify, there: Sequence[_Place]) -> None:
        """Until another folder has taken the place of one: the system goes on with those that were there."""
        replaced = False
        while not self._closed.is_set():
            changes = watcher.watch(_MOST, _CALM, _TIMEOUT, self._closed)
            if isinstance(changes, set):
                # Of one that took another's place, files are gone that nobody tells of: it is listed.
                removed = {path for what, path in changes if what == _DELETED}
                found = {path for what, path in changes if what == _ADDED and _is_folder(path)} - removed
                self._new += map(_NewFolder, sorted(found))
                self._add({path for _, path in changes} - found)
                replaced = replaced or not removed.isdisjoint(self._folders)
            self._look_through()
            now = _places(self._folders)
            if None not in now and (replaced or now != there):
                return
            replaced = replaced or None in now

    def _look_through(self) -> None:
        """The system watches a folder only some time after it was made, and does not tell what was put there before."""
        now = time.monotonic()
        for each in self._new:
            if each.due <= now:
                self._add(each.look())
                each.due = time.monotonic() + _APART
        self._new = [each for each in self._new if each.looks < _LOOKS and (each.looks < 2 or each.found)]

    def _add(self, paths: Iterable[str]) -> None:
        with self._lock:
            self._paths.update(paths)
            full = len(self._paths) > MOST_PATHS
        if full:
            self._lose()

    def _lose(self) -> None:
        with self._lock:
            self._paths, self._lost = set(), True


@dataclass
class _NewFolder:
    """A folder that was not there before. `found`: whether the last look found what the one before did not."""

    path: str
    due: float = 0.0
    looks: int = 0
    found: bool = False
    _seen: set[tuple[str, int, int]] = field(default_factory=set)

    def look(self) -> set[str]:
        """Paths below it of what has come or changed since the last look; its own if it cannot be looked through."""
        self.looks += 1
        try:
            there = set(_below(self.path))
        except OSError:
            self.found = False
            return {self.path}
        new, self._seen = there - self._seen, there
        self.found = bool(new)
        return {path for path, _, _ in new}


def _places(folders: Iterable[str]) -> list[_Place]:
    """The folders that are there by these names; None for what is gone."""
    found: list[_Place] = []
    for each in folders:
        try:
            status = os.stat(each)  # noqa: PTH116 - it may be no text
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found


def _below(folder: str) -> Iterable[tuple[str, int, int]]:
    """All below a folder that is none itself, with size and time of change. Raises `OSError`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
            else:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_size, status.st_ctime_ns


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114 - it may be no text
