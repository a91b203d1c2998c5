"""Handler pool: all handlers of one process, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from instep.bus.bus import Bus
from instep.errors import Transient, Unknown
from instep.jobs.idleness import Idleness
from instep.planning.context import Context
from instep.requests.handlers import Handler, Indexer, Loop, Site


class HandlerPool:
    """All handlers of this process. Use it as a context manager: on exit, deliveries in work go back at once.

    Set `stopping` to have them stop; an indexer may look at it too.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        bus: Bus,
        indexer: Indexer,
        context: Context,
        *,
        stopping: threading.Event,
        until_idle: bool = False,
    ) -> None:
        self._bus = bus
        self._context = context
        self._stopping = stopping
        self._failure: BaseException | None = None
        idleness = Idleness([each.entity for each in handlers]) if until_idle else None
        site = Site(bus, indexer, context, stopping, idleness)
        self._loops = [Loop(each, site) for each in handlers]
        self._threads = [
            threading.Thread(target=partial(self._guard, loop), name=f"handler-{loop.entity}", daemon=True)
            for loop in self._loops
        ]

    def __enter__(self) -> HandlerPool:
        """Reconciles first: what died with the last handlers holds up nothing."""
        self._reconcile()
        self._end_sweeps = self._context.background.every(
            self._context.timing.sweep / 1_000, self._reconcile, "reconcile"
        )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._end_sweeps()
        for loop in self._loops:
            loop.give_back()
        deadline = self._context.clock.monotonic() + self._context.timing.grace / 1_000
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._context.clock.monotonic()))

    def wait(self) -> None:
        """Until they stop: told so, or idle. Raises what no handler can go on with."""
        self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    def _guard(self, loop: Loop) -> None:
        try:
            loop.run()
        except BaseException as error:
            self._failure = self._failure or error
            self._stopping.set()

    def _reconcile(self) -> bool:
        try:
            for letter in self._bus.reconcile():
                self._context.progress.say(letter.ref.label, f"became a dead letter: {letter.reason}")
        except (Transient, Unknown) as error:
            self._context.progress.say("bus", str(error))
        return True
