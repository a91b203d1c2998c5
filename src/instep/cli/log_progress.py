"""What a worker tells of its days: lines with the time, or of JSON. Both implement `telemetry.progress.Progress`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import TextIO

from instep.cli.output import visible
from instep.domain.reasons import hushed
from instep.telemetry.context import here


class LogProgress:
    """A line for each thing that happens, and every ten seconds one for what was done since the last."""

    EVERY_SECONDS = 10.0

    def __init__(
        self,
        stream: TextIO,
        monotonic: Callable[[], float] = time.monotonic,
        stamp: Callable[[], str] = lambda: time.strftime("%H:%M:%S"),
    ) -> None:
        self._stream = stream
        self._monotonic = monotonic
        self._stamp = stamp
        self._done: dict[str, int] = {}
        self._shown = monotonic()
        self._lock = threading.Lock()

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None:
        with self._lock:
            self._done[entity] = self._done.get(entity, 0) + units
            if self._monotonic() - self._shown >= self.EVERY_SECONDS:
                self._tell_done()

    def say(self, entity: str, message: str) -> None:
        with self._lock:
            self._tell_done()
            self._print(entity, message)

    def end(self, entity: str, *, well: bool = True) -> None: ...

    def _tell_done(self) -> None:
        for entity, units in self._done.items():
            self._print(entity, f"{units:,} done")
        self._done.clear()
        self._shown = self._monotonic()

    def _print(self, entity: str, message: str) -> None:
        self._stream.write(f"{self._stamp()} {entity}: {visible(message)}\n")
        self._stream.flush()


class JsonLogProgress:
    """A line of JSON for each thing that happens: `at` (milliseconds), `event`, `entity`, and what it is about: where
    they apply, `worker`, `job`, `ref`, `instance`, `wave`, its number of `slices` or its one `slice`, and `trace`.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._now = now
        self._lock = threading.Lock()

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None:
        self._write("done", entity, units=units)

    def say(self, entity: str, message: str) -> None:
        self._write("say", entity, message=hushed(message))

    def end(self, entity: str, *, well: bool = True) -> None: ...

    def _write(self, event: str, entity: str, **more: int | str) -> None:
        place = here()
        trace = {"trace": place.trace_id} if place.trace_id else {}
        record = {"at": round(self._now() * 1000), "event": event, "entity": entity, **place.facts, **trace, **more}
        with self._lock:
            self._stream.write(json.dumps(record) + "\n")
            self._stream.flush()
