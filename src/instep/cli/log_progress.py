"""Progress as lines: for logs of workers (text or JSON), and for runs without a terminal."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from instep.domain.jobs import Phase
from instep.domain.speed import Meter, seconds_left
from instep.domain.texts import amount, redacted
from instep.domain.waves import Stage
from instep.telemetry.context import current_context
from instep.telemetry.progress import Silent
from instep.telemetry.texts import pace_text, seconds_text, stage_text, stages_text, visible


class LogProgress(Silent):
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

    def advance(self, entity: str, units: int) -> None:
        with self._lock:
            self._done[entity] = self._done.get(entity, 0) + units
            if self._monotonic() - self._shown >= self.EVERY_SECONDS:
                self._tell_done()

    def say(self, entity: str, message: str) -> None:
        with self._lock:
            self._tell_done()
            self._print(entity, message)

    def phase(self, entity: str, phase: Phase) -> None:
        self.say(entity, phase.words)

    def _tell_done(self) -> None:
        for entity, units in self._done.items():
            if units > 0:
                self._print(entity, f"{units:,} done")
            elif units < 0:  # What a wave had told before it failed.
                self._print(entity, f"{-units:,} to be done again")
        self._done.clear()
        self._shown = self._monotonic()

    def _print(self, entity: str, message: str) -> None:
        self._stream.write(f"{self._stamp()} {entity}: {visible(message)}\n")
        self._stream.flush()


class JsonLogProgress(Silent):
    """A line of JSON for each thing that happens: `at` (milliseconds), `event`, `entity`, and what it is about: where
    they apply, `worker`, `job`, `ref`, `instance`, `wave`, its number of `slices` or its one `slice`, and `trace`.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._now = now
        self._lock = threading.Lock()

    def advance(self, entity: str, units: int) -> None:
        self._write("done", entity, units=units)

    def say(self, entity: str, message: str) -> None:
        self._write("say", entity, message=redacted(message))

    def phase(self, entity: str, phase: Phase) -> None:
        self._write("phase", entity, phase=phase)

    def _write(self, event: str, entity: str, **more: int | str) -> None:
        place = current_context()
        trace = {"trace": place.trace_id} if place.trace_id else {}
        record = {"at": round(self._now() * 1000), "event": event, "entity": entity, **place.facts, **trace, **more}
        with self._lock:
            self._stream.write(json.dumps(record) + "\n")
            self._stream.flush()


@dataclass(slots=True)
class _Count:
    unit: str
    total: int | None
    meter: Meter
    began: float
    shown: float
    stages: dict[int, Stage] = field(default_factory=dict)

    @property
    def done(self) -> int:
        return self.meter.done


class Lines(Silent):
    """A line at the start, every ten seconds, and at the end of each entity."""

    EVERY_SECONDS = 10.0

    def __init__(self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._monotonic = monotonic
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        now = self._monotonic()
        with self._lock:
            self._counts[entity] = _Count(unit, total, Meter(now), now, now)
            self._print(entity, f"{unit}s are read" if total is None else f"{amount(total, unit)} to do")

    def advance(self, entity: str, units: int) -> None:
        with self._lock:
            count = self._counts.get(entity)
            if count is None:
                return
            now = self._monotonic()
            count.meter.advance(units, now)
            if now - count.shown >= self.EVERY_SECONDS:
                count.shown = now
                self._print(entity, _pace(count, now))

    def stage(self, entity: str, stage: Stage) -> None:
        with self._lock:
            if count := self._counts.get(entity):
                count.stages[stage.number] = stage

    def say(self, entity: str, message: str) -> None:
        with self._lock:
            self._print(entity, message)

    def phase(self, entity: str, phase: Phase) -> None:
        self.say(entity, phase.words)

    def end(self, entity: str, *, well: bool = True) -> None:
        with self._lock:
            count = self._counts.pop(entity, None)
            if count is not None:
                reached = _reached(count, well=well)
                where = f" ({stages_text(count.stages.values())})" if count.stages else ""
                self._print(entity, f"{reached} in {seconds_text(self._monotonic() - count.began)}{where}")

    def _print(self, entity: str, message: str) -> None:
        self._stream.write(f"{entity}: {visible(message)}\n")
        self._stream.flush()


def _reached(count: _Count, *, well: bool) -> str:
    """A run that is stopped or fails ends too, and is not done."""
    whole = count.total is not None and count.done >= count.total
    if well:
        return "done" if whole else _so_far(count)
    return "not done" if whole else f"not done, {_so_far(count)}"


def _so_far(count: _Count) -> str:
    """A source may have grown since it was counted."""
    if count.total is None or count.done > count.total:
        return amount(count.done, count.unit)
    return f"{count.done:,} of {amount(count.total, count.unit)}"


def _pace(count: _Count, now: float) -> str:
    rate = count.meter.rate(now)
    pace = pace_text(rate, seconds_left(count.total, count.done, rate))
    newest = stage_text(count.stages[max(count.stages)]) if count.stages else ""
    return ", ".join(filter(None, (_so_far(count), pace, newest)))
