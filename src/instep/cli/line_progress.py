"""Progress of a run in a log, as lines. Implements `telemetry.progress.Progress`; `bars` do so on a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from instep.cli.jobs import rate_text
from instep.cli.output import seconds_text, visible
from instep.domain.amounts import amount
from instep.domain.speed import Meter, seconds_left


@dataclass(slots=True)
class _Count:
    unit: str
    total: int | None
    meter: Meter
    began: float
    shown: float

    @property
    def done(self) -> int:
        return self.meter.done


class Lines:
    """A line at the start, every ten seconds, and at the end of each entity."""

    EVERY_SECONDS = 10.0

    def __init__(self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._monotonic = monotonic
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def listing(self, entity: str, found: int) -> None: ...

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

    def say(self, entity: str, message: str) -> None:
        with self._lock:
            self._print(entity, message)

    def end(self, entity: str, *, well: bool = True) -> None:
        with self._lock:
            count = self._counts.pop(entity, None)
            if count is not None:
                reached = _reached(count, well=well)
                self._print(entity, f"{reached} in {seconds_text(self._monotonic() - count.began)}")

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
    return f"{_so_far(count)}, {pace}" if pace else _so_far(count)


def pace_text(rate: float | None, left: float | None) -> str:
    """`1,234/s, 3 min 20 s left`; nothing while the rate is not known."""
    if rate is None:
        return ""
    return f"{rate_text(rate)}/s" if left is None else f"{rate_text(rate)}/s, {seconds_text(left)} left"
