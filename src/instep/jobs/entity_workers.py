"""A worker of its own, in a thread, for each wanted entity, so that none waits behind another's work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from instep.domain.clock import Clock
from instep.domain.refs import PartitionRef
from instep.domain.wants import Want
from instep.entities.setup import EntitySetup
from instep.errors import InstepError, Transient, Unknown
from instep.planning.context import Context

#: So many open wants, the newest, are looked at at once.
_LOOKED_AT: Final = 1_000

SetupsOf = Callable[[Iterable[PartitionRef]], Sequence[EntitySetup]]
#: Serves these partitions in this context until it is told to stop, under this name.
Serve = Callable[[SetupsOf, Sequence[PartitionRef], Context, threading.Event, str], None]


def of_one_entity(want: Want) -> bool:
    """Whether it names partitions of one entity alone. One that names more is done as one job."""
    return len({ref.partition("@")[0] for ref in want.refs}) == 1


class Stopping(BaseException):
    """Raised in a thread that pauses, when it is to stop."""


@dataclass(frozen=True, slots=True)
class StoppableClock:
    """Implements `domain.clock.Clock`: a pause ends when the thread is to stop."""

    clock: Clock
    stopping: threading.Event

    def now(self) -> int:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise Stopping


class EntityWorkers:
    """The threads of one process. Use it as a context manager: on exit they stop, and give back what they hold.

    `declared`: the partitions of each entity that share a thread. Partitions of `open_ended` entities that are not
    declared (a namespace that a request named) have a thread each. A thread starts with the first want, and stays.
    """

    def __init__(
        self,
        declared: Mapping[str, Sequence[PartitionRef]],
        open_ended: Collection[str],
        setups_of: SetupsOf,
        context: Context,
        serve: Serve,
        *,
        starts: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`starts` is told the name of a thread before that begins."""
        self._declared = declared
        self._open_ended = open_ended
        self._setups_of = setups_of
        self._context = context
        self._serve = serve
        self._starts = starts
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._failure: BaseException | None = None

    def __enter__(self) -> EntityWorkers:
        timing = self._context.timing
        self._end_looks = self._context.background.every(timing.poll / 1_000, self._look, "wants")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._end_looks()
        deadline = self._context.clock.monotonic() + self._context.timing.grace / 1_000
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - self._context.clock.monotonic()))

    def has(self, ref: PartitionRef) -> bool:
        """Whether a thread looks after the partition."""
        return self._key(ref) in self._threads

    def begin(self) -> bool:
        """Start a thread for each entity that is wanted and has none. Whether there was any. Raises the error that a
        thread has ended with.
        """
        if self._failure is not None:
            raise self._failure
        with self._lock:
            new = self._wanted()
            for key, refs in new.items():
                self._starts(key)
                run = partial(self._run, key, refs)
                self._threads[key] = threading.Thread(target=run, name=f"worker-{key}", daemon=True)
                self._threads[key].start()
        return bool(new)

    def _look(self) -> bool:
        try:
            if not self._stopping.is_set() and self._failure is None:
                self.begin()
        except (Transient, Unknown):
            pass  # The worker itself says that the ledger is away.
        return not self._stopping.is_set()

    def _wanted(self) -> dict[str, Sequence[PartitionRef]]:
        ledger = self._context.ledger
        found: dict[str, Sequence[PartitionRef]] = {}
        now = ledger.present()
        for want in reversed(ledger.wants.newest(open_only=True, limit=_LOOKED_AT)):
            if not (want.can_begin(now) and of_one_entity(want)):
                continue
            for ref in map(PartitionRef.parse, want.refs):
                key = self._key(ref)
                if key is not None and key not in self._threads:
                    found[key] = self._declared.get(key, [ref])
        return found

    def _key(self, ref: PartitionRef) -> str | None:
        """The name of the thread for it; None if this process does not serve it."""
        if ref in self._declared.get(ref.entity, ()):
            return ref.entity
        return str(ref) if ref.entity in self._open_ended and not ref.scope.is_global else None

    def _run(self, key: str, refs: Sequence[PartitionRef]) -> None:
        context = replace(self._context, clock=StoppableClock(self._context.clock, self._stopping))
        try:
            self._serve(self._setups_of, refs, context, self._stopping, key)
        except Stopping:
            pass
        except InstepError as error:
            # Its source cannot be opened, say: the others go on, and this is tried again after a pause.
            self._context.progress.say(key, str(error))
            self._stopping.wait(self._context.timing.rest / 1_000)
            with self._lock:
                self._threads.pop(key, None)
        except BaseException as error:
            self._failure = error
