"""Rows that come late, at one moment, without a watermark, by clocks that differ: after enough runs all are there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.domain import seen as rules
from instep.domain.refs import GLOBAL
from instep.domain.rows import Selection, Window
from instep.domain.seen import Late, Look, RowMark, Seen
from instep.entities.tables import margins
from instep.entities.tables.margins import Margins
from instep.ledger.checkpoints import Checkpoint

#: Milliseconds: how late rows may come.
LAG = 5


class Row(NamedTuple):
    value: int
    at: int | None


class Source:
    """Rows by key. Before every answer something may come."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.comes: Callable[[], None] = lambda: None

    def files(self) -> None:
        return None

    def look(self, spark: Any, rows: Any, selection: Selection, *, floor: int | None, target: int) -> Look:
        self.comes()
        found = self.selected(selection.window)
        latest = max((row.at for row in found.values() if row.at is not None and row.at <= target), default=None)
        margin = [
            hash((key, row)) for key, row in found.items() if row.at is None or (floor is not None and row.at <= floor)
        ]
        return Look(latest, sum(row.at is None for row in found.values()), len(margin), str(sum(margin)))

    def marks(self, spark: Any, rows: Any, selection: Selection, limit: int) -> list[RowMark] | None:
        self.comes()
        found = self.selected(selection.window)
        if len(found) > limit:
            return None
        return [RowMark(str(key), row.at, hash((key, row)) & (2**63 - 1)) for key, row in found.items()]

    def selected(self, window: Window | None) -> dict[int, Row]:
        return {key: row for key, row in self.rows.items() if window is None or window.holds(row.at)}


class World:
    """A source, and an index that decides as targets do. Time passes by a millisecond between two rows."""

    def __init__(self) -> None:
        self.now = 1_000
        self.source = Source()
        self.stored: dict[int, tuple[int, int]] = {}
        self.watermark: int | None = None
        self.seen: Seen | None = None
        self.read = 0

    def put(self, key: int, behind: int | None) -> None:
        """A row that is new or changes: with a watermark that lies so far behind the clock, or, if it has none, without
        one.
        """
        self.now += 1
        before = self.source.rows.get(key, Row(0, None))
        marked = behind is not None or before.at is not None
        at = max((self.now - (behind or 0)) * 1_000, before.at or 0) if marked else None
        self.source.rows[key] = Row(before.value + 1, at)

    def run(self) -> bool:
        """Whether there was something to do."""
        self.now += 1
        asked = self.now
        setup = SimpleNamespace(
            source=self.source, spark=None, rows=None, ref=SimpleNamespace(scope=GLOBAL), lag=LAG, others=lambda _: None
        )
        clock = SimpleNamespace(now=lambda: self.now)
        asking = Margins(cast(Any, setup), cast(Any, clock), asked * 1_000)
        if self.watermark is None:
            window, after = Window(None, asked * 1_000), asking.before_all()
        else:
            step, after = asking.next(self.seen, cast(Checkpoint, SimpleNamespace(watermark=self.watermark)))
            if step.window is None:
                return False
            window = step.window
        self.source.comes()
        for key, row in self.source.selected(window).items():
            version = row.at or 0
            if version >= self.stored.get(key, (0, 0))[1]:
                self.stored[key] = (row.value, version)
            self.read += 1
        self.watermark, self.seen = asked, Seen.decode(after.encode(), after.late)
        return True

    def differs(self) -> dict[int, Any]:
        there = {key: row.value for key, row in self.source.rows.items()}
        here = {key: value for key, (value, _) in self.stored.items()}
        return {
            key: (there.get(key), here.get(key))
            for key in there.keys() | here.keys()
            if there.get(key) != here.get(key)
        }


#: A row by its key, and how far its watermark is behind; None: it has none.
ROWS = st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, LAG - 1)))
#: None: a run.
STEPS = st.lists(st.one_of(ROWS, st.none()), max_size=40)


@given(STEPS, st.lists(st.tuples(st.integers(0, 40), ROWS), max_size=10), st.sampled_from([0, 3, 10_000]))
@settings(max_examples=400, deadline=None)
def test_whatever_comes_late_is_there_after_enough_runs(
    steps: list[tuple[int, int | None] | None], between: list[tuple[int, tuple[int, int | None]]], marked: int
) -> None:
    """Also when it comes between two questions to the source, and when there are too many rows to tell them apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(margins, "MARKED", marked)
        world, asked = World(), 0
        coming = dict(between)

        def comes() -> None:
            nonlocal asked
            asked += 1
            if (row := coming.pop(asked, None)) is not None:
                world.put(*row)

        world.source.comes = comes
        for step in steps:
            if step is None:
                world.run()
            else:
                world.put(*step)
        coming.clear()
        for _ in range(10):
            if not world.run():
                break
        else:
            raise AssertionError("there is always something to do")
        assert world.differs() == {}


@pytest.mark.parametrize("question", range(1, 8))
def test_a_row_that_comes_between_two_questions_is_not_known_before_it_is_read(question: int) -> None:
    world = World()
    for key in (1, 2):
        world.put(key, 0)
        world.run()
    world.put(2, 0)
    asked = 0

    def comes() -> None:
        nonlocal asked
        asked += 1
        if asked == question:
            world.put(3, LAG - 1)

    world.source.comes = comes
    while world.run():
        pass
    assert world.differs() == {}


def test_a_run_without_changes_reads_nothing_and_one_with_changes_these() -> None:
    """A row of the margin that is changed leaves it: that is no reason to read the others."""
    world = World()
    for key in range(100):
        world.put(key, 0)
    world.run()
    assert not world.run()
    world.read = 0
    world.put(99, 0)
    world.put(98, 0)
    assert world.run()
    assert world.read == 2
    assert not world.run()


def test_late_rows_are_named_and_read_with_nothing_below_them() -> None:
    world = World()
    for key in range(5):
        world.put(key, 0)
    world.run()
    world.read = 0
    world.put(50, 2)
    assert world.run()
    assert world.seen is not None
    assert world.seen.late == Late(1, ("50",), exact=True, at=world.now)
    assert str(world.seen.late) == "1 row came late, such as 50"
    assert world.read == 2
    assert not world.run()


def test_a_row_that_comes_later_than_the_lag_is_not_seen() -> None:
    world = World()
    world.put(1, 0)
    world.run()
    world.put(2, LAG + 3)
    assert not world.run()


def test_rows_of_the_moment_that_was_seen_last_are_not_lost() -> None:
    world = World()
    world.put(1, 0)
    world.run()
    at = world.source.rows[1].at
    world.source.rows[2] = Row(1, at)
    world.source.rows[1] = Row(7, at)
    assert world.run()
    assert world.differs() == {}


def test_a_checkpoint_of_an_older_version_loses_no_row() -> None:
    """Its floor was the time of its last run. Rows that were seen may be older than that by far."""
    world = World()
    world.put(1, 900)
    world.run()
    world.seen = None
    assert world.run()
    world.put(2, 800)
    world.put(3, None)
    assert world.run()
    assert world.differs() == {}
    assert not world.run()


def test_another_lag_is_another_margin() -> None:
    known = Seen(100, 5, 3, "x", frozenset({1}), late=Late(1, (), exact=True, at=1))
    assert known.within(5) is known
    wider = known.within(50)
    assert (wider.rows, wider.marks, wider.late) == (-1, None, known.late)
    step = rules.next_step(wider, Look(100, 0, 3, "x"), None, target=200, now=0)
    assert step == (Window(49, 200), None)
