"""Progress of a run: bars on a terminal, lines in a log. Both implement `service.progress.Progress`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from instep.cli.output import seconds_text, visible
from instep.domain.amounts import amount


class _Pace(ProgressColumn):
    """Documents or rows per second, and the time left."""

    def render(self, task: Task) -> Text:
        if task.finished:
            return Text(seconds_text(task.finished_time or 0.0))
        if not task.speed:
            return Text("")
        left = "" if task.time_remaining is None else f", {seconds_text(task.time_remaining)} left"
        return Text(f"{task.speed:,.0f}/s{left}")


class Bars:
    """A bar per entity on standard error. Safe to call from several threads."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            _Pace(),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            console=console or Console(stderr=True, markup=False, highlight=False),
            speed_estimate_period=20.0,
        )
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def listing(self, entity: str, found: int) -> None:
        self._bars.update(self._task(entity), note=f"listing: {found:,} found")

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        task = self._task(entity)
        self._bars.reset(task, total=total)
        self._bars.update(task, note="")

    def advance(self, entity: str, units: int) -> None:
        self._bars.advance(self._task(entity), units)

    def say(self, entity: str, message: str) -> None:
        if entity in self._tasks:
            self._bars.update(self._task(entity), note=visible(message))
        else:
            self._bars.console.print(f"{entity}: {visible(message)}")

    def end(self, entity: str) -> None:
        task = self._task(entity)
        bar = next(each for each in self._bars.tasks if each.id == task)
        if bar.total is None:
            # If nothing to do was found, an empty bar would look like a failure.
            self._bars.update(task, total=bar.completed or None, visible=bool(bar.completed))
        self._bars.update(task, note="")
        self._bars.stop_task(task)

    def _task(self, entity: str) -> TaskID:
        with self._lock:
            if entity not in self._tasks:
                self._tasks[entity] = self._bars.add_task(entity, total=None, note="")
            return self._tasks[entity]


@dataclass(slots=True)
class _Count:
    unit: str
    total: int | None
    done: int
    began: float
    shown: float


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
            self._counts[entity] = _Count(unit, total, 0, now, now)
            self._print(entity, f"{unit}s are read" if total is None else f"{amount(total, unit)} to do")

    def advance(self, entity: str, units: int) -> None:
        with self._lock:
            count = self._counts.get(entity)
            if count is None:
                return
            count.done += units
            now = self._monotonic()
            if now - count.shown >= self.EVERY_SECONDS:
                count.shown = now
                self._print(entity, _pace(count, now))

    def say(self, entity: str, message: str) -> None:
        with self._lock:
            self._print(entity, message)

    def end(self, entity: str) -> None:
        with self._lock:
            count = self._counts.pop(entity, None)
            if count is not None:
                self._print(entity, f"{_reached(count)} in {seconds_text(self._monotonic() - count.began)}")

    def _print(self, entity: str, message: str) -> None:
        self._stream.write(f"{entity}: {visible(message)}\n")
        self._stream.flush()


def _reached(count: _Count) -> str:
    """A run that is stopped ends too, and is not done."""
    return "done" if count.total is not None and count.done >= count.total else _so_far(count)


def _so_far(count: _Count) -> str:
    whole = amount(count.done if count.total is None else count.total, count.unit)
    return whole if count.total is None else f"{count.done:,} of {whole}"


def _pace(count: _Count, now: float) -> str:
    seconds = now - count.began
    text = _so_far(count)
    if not count.done or seconds <= 0:
        return text
    rate = count.done / seconds
    if count.total is None:
        return f"{text}, {rate:,.0f}/s"
    left = max(0, count.total - count.done) / rate
    return f"{text}, {rate:,.0f}/s, {seconds_text(left)} left"
