"""Ask a source what `domain.seen` decides by: what is above the floor, in the margin below it, and among its files."""

from __future__ import annotations

from dataclasses import dataclass, replace

from instep.domain.rows import Selection, Window
from instep.domain.seen import MARKED, Late, Look, RowMark, Seen, Step, differs, margin_start, next_step, seen_after
from instep.domain.table_files import Files
from instep.entities.tables.adapters import MICROS, TableAdapters
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

#: The last late rows are told for so long, in milliseconds.
_TOLD = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Margins:
    """The questions about one entity. `target` is the greatest watermark (µs) that a run reads."""

    setup: TableAdapters
    ledger: Ledger
    target: int

    @property
    def _lag(self) -> int:
        return self.setup.lag * MICROS

    def before_all(self) -> Seen:
        """Look before a run that reads all rows."""
        files = self.setup.source.files()
        seen = self._seen(self._look(None, None).latest) if files is None else Seen(files=Files.of(files))
        return replace(seen, reconciled=self.ledger.now())

    def next(self, seen: Seen | None, checkpoint: Checkpoint) -> tuple[Step, Seen]:
        """The next step, and what is seen after it."""
        seen = self._before_margins(checkpoint) if seen is None else seen.within(self._lag)
        floor = seen.floor
        look = self._look(None if floor is None else margin_start(floor, self._lag), floor)
        if not differs(seen, look) and (look.latest is None or (floor is not None and look.latest <= floor)):
            return Step(None), seen
        reached = max((each for each in (floor, look.latest) if each is not None), default=None)
        after = self._seen(reached)
        # Once more: see `seen_after`.
        look, marks = self._margin(seen)
        step = next_step(seen, look, marks, target=self.target, now=self.ledger.now())
        late = step.late or self._still_told(seen.late)
        return step, replace(after, late=late, reconciled=seen.reconciled)

    def _before_margins(self, checkpoint: Checkpoint) -> Seen:
        """The state that an older version left: all is known up to the time of its last run. No row may have had a
        watermark as late as that: then new ones can still come below it.
        """
        latest = self._look(None, None).latest
        return Seen(None if latest is None else min(latest, checkpoint.watermark * MICROS), self._lag)

    def _margin(self, seen: Seen) -> tuple[Look, list[RowMark] | None]:
        if seen.floor is None:
            return self._look(None, None), None
        start = margin_start(seen.floor, self._lag)
        look = self._look(start, seen.floor)
        if not differs(seen, look) or seen.marks is None or look.rows > MARKED:
            return look, None
        return look, self._marks(start, seen.floor)

    def _seen(self, floor: int | None) -> Seen:
        if floor is None:
            return seen_after(None, self._look(None, None), None, lag=self._lag)
        start = margin_start(floor, self._lag)
        look = self._look(start, floor)
        marks = self._marks(start, floor) if look.rows <= MARKED else None
        return seen_after(floor, look, marks, lag=self._lag)

    def _look(self, start: int | None, floor: int | None) -> Look:
        window = None if start is None else Window(start, self.target, unmarked=True)
        setup = self.setup
        return setup.source.look(setup.spark, setup.rows, self._selection(window), floor=floor, target=self.target)

    def _marks(self, start: int, floor: int) -> list[RowMark] | None:
        setup, window = self.setup, Window(start, floor, unmarked=True)
        return setup.source.marks(setup.spark, setup.rows, self._selection(window), MARKED)

    def _selection(self, window: Window | None) -> Selection:
        return Selection(self.setup.ref.scope, window, others=self.setup.others(self.ledger))

    def _still_told(self, late: Late | None) -> Late | None:
        return late if late is not None and late.at > self.ledger.now() - _TOLD else None
