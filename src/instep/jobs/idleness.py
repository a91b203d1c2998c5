"""Detect that several concurrent workers of one process are all idle, and the place of one among them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from instep.domain.refs import PartitionRef


class Idleness:
    """Tells when all workers of a process are idle: none works, and each has found nothing to do since the last one
    worked, whose work may have given work, or room, to the others.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._round = 0
        self._found_nothing = dict.fromkeys(names, -1)
        self._working: set[str] = set()

    def add(self, name: str) -> None:
        """One more, which has not looked yet."""
        with self._lock:
            self._found_nothing.setdefault(name, -1)

    def start(self, name: str) -> int:
        """Note that a worker begins to look for work. Returns the round, for `found_nothing`."""
        with self._lock:
            self._working.add(name)
            return self._round

    def stop(self, name: str, *, worked: bool) -> None:
        """Note that the worker has ended the look that it began."""
        with self._lock:
            self._working.discard(name)
            self._round += worked

    def forget(self, name: str, *, again: bool = False) -> None:
        """Forget a worker that has ended. `again`: the others have to look once more."""
        with self._lock:
            self._working.discard(name)
            self._found_nothing.pop(name, None)
            self._round += again

    def found_nothing(self, name: str, began: int) -> bool:
        """Whether now all are idle."""
        with self._lock:
            self._found_nothing[name] = began
            return not self._working and all(each == self._round for each in self._found_nothing.values())


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one worker among those of its process. `leaves`: the partitions that another worker looks after.
    `stopping` tells it to end.
    """

    name: str = ""
    idleness: Idleness | None = None
    leaves: Callable[[PartitionRef], bool] = lambda _: False
    stopping: threading.Event | None = None

    def stops(self) -> bool:
        return self.stopping is not None and self.stopping.is_set()

    def start(self) -> int:
        """Note that the worker begins to look for work."""
        return self.idleness.start(self.name) if self.idleness is not None else 0

    def stop(self, *, worked: bool) -> None:
        """Note that the worker has ended the look that it began."""
        if self.idleness is not None:
            self.idleness.stop(self.name, worked=worked)

    def idle(self, began: int) -> bool:
        """Whether, after a look that found nothing, all are idle."""
        return self.idleness is None or self.idleness.found_nothing(self.name, began)


#: Of a worker that is the only one of its process.
ALONE = Place()
