"""Refining: building what only makes searches quicker, beside the jobs of a worker that goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from instep.domain.retries import Backoff
from instep.domain.texts import cleaned
from instep.entities.setup import EntitySetup
from instep.errors import InstepError
from instep.own_faults import own_fault
from instep.planning.context import Context

#: Does a piece of upkeep of an index once, in this process or on a cluster.
Once = Callable[[Callable[[], None]], None]

#: Seconds between two looks at what waits.
_LOOK: Final = 0.25

#: First and longest pause, in seconds, before what could not be built is tried again.
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3_600.0

#: It takes all cores and much memory: one at a time in a process, whichever worker in it begins it.
_ALONE: Final = threading.Lock()


@dataclass
class _Wanted:
    setup: EntitySetup
    once: Once
    tried: int = 0
    due: float = 0.0


class Refining:
    """The indexes that a worker refines in a thread, in the order in which their jobs have ended. It ends with the
    process: whatever was not finished then is begun again after the next job.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pauses = Backoff(base=_FIRST_PAUSE, maximum=_LONGEST_PAUSE, random=context.random)
        self._lock = threading.Lock()
        self._wanted: dict[tuple[str, str], _Wanted] = {}
        self._at_work: tuple[str, str] | None = None
        self._running = False
        self._stopped = False

    def begin(self, setup: EntitySetup, physical: str, once: Once) -> None:
        """Refine an index unless that is under way, waits for its turn, or has just failed. `once` does the work."""
        key = setup.target_name, physical
        with self._lock:
            if key in self._wanted or self._stopped:
                return
        if not setup.target.refinable(physical):
            return
        with self._lock:
            self._wanted[key] = _Wanted(setup, once)
            if not self._running:
                self._running = True
                self._context.background.every(_LOOK, self._next, "refining")

    def is_under_way(self, setup: EntitySetup, physical: str) -> bool:
        """Whether it is being refined now, so that other upkeep had better wait: each would undo the other's work."""
        return self._at_work == (setup.target_name, physical)

    def wait(self) -> None:
        """Wait until all is refined that has not failed."""
        while any(not each.tried for each in list(self._wanted.values())):
            self._context.clock.sleep(_LOOK)

    def stop(self) -> None:
        """Begin nothing more. What is under way ends by itself, or with the process."""
        self._stopped = True

    def _next(self) -> bool:
        """Refine the first index whose time has come. False when none is left: then the thread ends."""
        now = self._context.clock.monotonic()
        with self._lock:
            found = next((key for key, each in self._wanted.items() if each.due <= now), None)
            if self._stopped or not self._wanted:
                self._running = False
                return False
        if found is not None:
            with _ALONE:
                self._refine(found)
        return True

    def _refine(self, key: tuple[str, str]) -> None:
        wanted = self._wanted[key]
        self._at_work = key
        try:
            why = self._tried(wanted, key[1])
        except InstepError as error:
            why = str(error)
        except Exception as error:
            why = str(own_fault(error) or f"unexpected {type(error).__name__}: {error}")
        finally:
            self._at_work = None
        if why is None:
            with self._lock:
                del self._wanted[key]
            return
        wanted.tried += 1
        pause = self._pauses.pause(wanted.tried)
        wanted.due = self._context.clock.monotonic() + pause
        self._say(wanted, f"searches are slower than they could be: {cleaned(why)}; next try in {pause:.0f} s")

    def _tried(self, wanted: _Wanted, physical: str) -> str | None:
        """Refine an index if it is still to be. Returns why it is not refined now, if it is not."""
        target = wanted.setup.target
        if not target.exists(physical) or not target.refinable(physical):
            return None
        self._say(wanted, "searches work; building the index that makes them quicker, while jobs go on")
        wanted.once(partial(target.refine, physical))
        if target.refinable(physical):
            return "another process builds their index, or has changed it meanwhile"
        self._say(wanted, "the index that makes searches quicker is built")
        return None

    def _say(self, wanted: _Wanted, message: str) -> None:
        if not self._stopped:
            self._context.progress.say(wanted.setup.ref.label, message)
