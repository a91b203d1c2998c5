"""Progress of a run on a terminal or in a notebook, as bars. Implements `telemetry.progress.Progress`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
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
from rich.progress_bar import ProgressBar
from rich.text import Text

from instep.domain.jobs import FINISHING, Phase
from instep.domain.speed import Meter, seconds_left
from instep.domain.waves import Stage
from instep.errors import UserError
from instep.telemetry.texts import pace_text, seconds_text, stage_text, stages_text, visible


class _Mark(SpinnerColumn):
    """Turns until the work has ended: all may be read that is not written yet."""

    def render(self, task: Task) -> RenderableType:
        well = task.fields["well"]
        return super().render(task) if well is None else Text("✓" if well else "✗")


class _Bar(BarColumn):
    """The share that is done. After the last wave it is not known how far the rest is, and the bar only moves."""

    def render(self, task: Task) -> ProgressBar:
        bar = super().render(task)
        bar.pulse = bar.pulse or (task.fields["phase"] in FINISHING and task.fields["well"] is None)
        return bar


class _Pace(ProgressColumn):
    """Documents or rows per second, and the time left; none after the last wave; in the end, what it took."""

    def __init__(self, rate: Callable[[TaskID], float | None]) -> None:
        super().__init__()
        self._rate = rate

    def render(self, task: Task) -> Text:
        if task.fields["well"] is not None:
            return Text(seconds_text(task.elapsed or 0.0))
        if task.fields["phase"] is not None:
            return Text()
        rate = self._rate(task.id)
        total = None if task.total is None else round(task.total)
        return Text(pace_text(rate, seconds_left(total, round(task.completed), rate)))


class Bars:
    """A bar per entity on standard error, or in a notebook. Safe to call from several threads.

    with instep.Bars() as progress:
        project.run(progress=progress)
    """

    def __init__(self, console: Console | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        console = console or Console(stderr=True, markup=False, highlight=False)
        if console.is_jupyter and find_spec("ipywidgets") is None:
            raise UserError("bars in a notebook need ipywidgets", hint="pip install 'instep[notebook]'")
        self._monotonic = monotonic
        self._meters: dict[TaskID, Meter] = {}
        #: Bars are drawn while they hold their own lock, so this lock is separate.
        self._metering = threading.Lock()
        self._bars = Progress(
            _Mark(),
            TextColumn("{task.description}", markup=False),
            _Bar(bar_width=30),
            MofNCompleteColumn(),
            _Pace(self._rate),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._stages: dict[str, dict[int, Stage]] = {}
        self._after_waves: set[TaskID] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.refresh()  # In a notebook `stop` would leave them as they were a moment ago.
        self._bars.stop()

    def listing(self, entity: str, found: int) -> None:
        """The source is being listed; so many documents or rows were found so far."""
        task = self._task(entity)
        # A run looks once more when its job has ended: its bar says how that ended.
        if next(each for each in self._bars.tasks if each.id == task).fields["well"] is None:
            self._bars.update(task, note=f"listing: {found:,} found")

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        """The work is planned: `total` units are to be done."""
        task = self._task(entity)
        with self._metering:
            self._meters[task] = Meter(self._monotonic())
        self._bars.reset(task, total=total)
        self._bars.update(task, note="", well=None, phase=None)

    def advance(self, entity: str, units: int) -> None:
        """So many more units are done."""
        task = self._task(entity)
        with self._metering:
            if task in self._meters:
                self._meters[task].advance(units, self._monotonic())
        self._bars.advance(task, units)
        if task in self._after_waves:  # Work that came while it was built makes waves again.
            self._after_waves.discard(task)
            self._bars.update(task, note="", phase=None)

    def stage(self, entity: str, stage: Stage) -> None:
        """A wave has reached this stage."""
        with self._lock:
            known = self._stages.setdefault(entity, {})
            told, known[stage.number] = known.get(stage.number), stage
        if told != stage:
            self._bars.update(self._task(entity), note=stage_text(stage))

    def phase(self, entity: str, phase: Phase) -> None:
        """The job has reached this phase, after its last wave."""
        self._after_waves.add(self._task(entity))
        self._bars.update(self._task(entity), note=phase.words, phase=phase)

    def say(self, entity: str, message: str) -> None:
        """Show a message beside the progress."""
        if entity in self._tasks:
            self._bars.update(self._task(entity), note=visible(message))
        else:
            self._bars.console.print(f"{entity}: {visible(message)}")

    def end(self, entity: str, *, well: bool = True) -> None:
        """The partition is done. `well`: without failures."""
        task = self._task(entity)
        bar = next(each for each in self._bars.tasks if each.id == task)
        if bar.total is None:
            # If nothing to do was found, an empty bar would look like a failure.
            self._bars.update(task, total=bar.completed or None, visible=bool(bar.completed))
        with self._lock:
            stages = self._stages.pop(entity, {})
        self._bars.update(task, note=stages_text(stages.values()) if well else "not done", well=well)
        self._bars.stop_task(task)

    def _rate(self, task: TaskID) -> float | None:
        with self._metering:
            return self._meters[task].rate(self._monotonic()) if task in self._meters else None

    def _task(self, entity: str) -> TaskID:
        with self._lock:
            if entity not in self._tasks:
                self._tasks[entity] = self._bars.add_task(entity, total=None, note="", well=None, phase=None)
            return self._tasks[entity]
