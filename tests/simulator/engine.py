"""An engine that really reads and stages, in steps: what lies between reading and committing can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from instep.domain.counts import Counts
from instep.domain.manifest import Action, DocumentChange, ManifestEntry
from instep.domain.waves import Failure, SliceOutcome, TaskOutcome, Wave, WaveSlice

from .documents import Document, Poison, Source
from .scheduler import Crash, Process
from .target import Change, Row, SimTarget


@dataclass(frozen=True, slots=True)
class Program:
    """What the entity's setup gives the engine: where to read documents, where to stage rows."""

    source: Source
    target: SimTarget
    physical: str
    base: int
    transform: str


@dataclass(slots=True)
class _Effects:
    """What is done of one slice so far."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    entries: list[ManifestEntry] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add(self, **counts: int) -> None:
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number


class SimEngine:
    """Implements `pipeline.engine.engine.Engine`. `speed` is work per second; `name` decides which pace is believed
    first.
    """

    name = "inline"

    def __init__(self, process: Process, random: Random, speed: float) -> None:
        self._process = process
        self._random = random
        self._speed = speed

    def once(self, work: Callable[[], None], *, apart: bool = False) -> float:
        work()
        return 0.0

    def ready(self) -> None:
        """It always is."""

    def run(
        self, wave: Wave, program: Any, progress: Callable[[int], None] | None = None, stages: object = None
    ) -> Sequence[TaskOutcome]:
        assert isinstance(program, Program), "the simulator's own"
        tasks = []
        for group in self._dealt(wave.slices):
            self._process.step()
            effects = [self._read(each, program) for each in group]
            self._process.sleep(sum(each.work for each in group) / self._speed * 1000)
            rows = [row for each in effects for row in each.rows]
            staged = program.target.stage(Change(rows, [locator for each in effects for locator in each.stale]))
            tasks.append(TaskOutcome(staged, tuple(map(_outcome, group, effects))))
            if progress:
                progress(sum(len(each.changes) for each in group))
        return tasks

    def close(self) -> None:
        return

    def _dealt(self, slices: Sequence[WaveSlice]) -> list[Sequence[WaveSlice]]:
        if len(slices) < 2 or self._random.random() < 0.5:
            return [slices]
        place = self._random.randint(1, len(slices) - 1)
        return [slices[:place], slices[place:]]

    def _read(self, part: WaveSlice, program: Program) -> _Effects:
        """What the slice has to do: existing rows at the base against the documents as they are now."""
        effects = _Effects()
        wanted = {change.document_id for change in part.changes}
        existing: dict[str, list[tuple[int, Row]]] = {}
        for locator, row in program.target.existing(program.physical, program.base, wanted):
            existing.setdefault(row.document_id, []).append((locator, row))
        for change in part.changes:
            self._one(change, program, existing.get(change.document_id, []), effects)
        return effects

    def _one(
        self, change: DocumentChange, program: Program, existing: list[tuple[int, Row]], effects: _Effects
    ) -> None:
        effects.add(read=1)
        if change.action is Action.DELETE:
            effects.stale.extend(locator for locator, _ in existing)
            effects.removed.append(change.document_id)
            effects.add(deleted=1, rows_deleted=len(existing))
            return
        document = program.source.documents.get(change.uri)
        if document is None:  # It vanished since the listing: the next one deletes it.
            effects.add(skipped=1)
            return
        if document.poison is Poison.KILLS:
            self._process.kill()
            raise Crash(self._process.name)
        if document.poison is Poison.RAISES:
            raise RuntimeError(f"{document.uri} is poison")
        if document.fails_under(program.transform):
            failure = Failure(change.document_id, document.uri, str(document.version), "parse", "cannot be parsed")
            effects.failures.append(failure)
            effects.add(failed=1)
            return
        _replace(change, document, existing, effects)


def _replace(change: DocumentChange, document: Document, existing: list[tuple[int, Row]], effects: _Effects) -> None:
    rows = [Row(change.document_id, place, text) for place, text in enumerate(document.texts)]
    there = [row for _, row in existing]
    fresh = [row for row in rows if row not in there]
    kept: set[Row] = set()
    stale = []
    for locator, row in existing:
        if row in rows and row not in kept:
            kept.add(row)
        else:
            stale.append(locator)
    effects.rows.extend(fresh)
    effects.stale.extend(stale)
    effects.add(rows_written=len(fresh), rows_deleted=len(stale), rows_kept=len(rows) - len(fresh))
    effects.add(**{"written" if fresh or stale else "skipped": 1})
    effects.entries.append(
        ManifestEntry(
            change.document_id,
            document.uri,
            document.size,
            str(document.version),
            document.hash,
            len(rows),
            change.bucket,
        )
    )


def _outcome(part: WaveSlice, effects: _Effects) -> SliceOutcome:
    return SliceOutcome(
        part.slice_id,
        part.fence,
        Counts.from_dict(effects.counts),
        tuple(effects.entries),
        tuple(effects.removed),
        tuple(effects.failures),
    )
