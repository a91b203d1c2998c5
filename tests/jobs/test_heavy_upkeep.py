"""Upkeep of a large index is left to a task, wherever tasks are processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from instep.pipeline.engine.inline import InlineEngine
from instep.targets.lance import upkeep

from .projects import home


@pytest.mark.parametrize(("least", "apart"), [(1, True), (upkeep.HEAVY_ROWS, False)])
def test_upkeep_is_done_apart_from_a_number_of_rows_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, apart: bool
) -> None:
    place, asked = home(tmp_path), list[bool]()

    def once(engine: InlineEngine, work: Callable[[], None], *, apart: bool = False) -> float:
        asked.append(apart)
        work()
        return 0.0

    monkeypatch.setattr(InlineEngine, "once", once)
    monkeypatch.setattr(upkeep, "HEAVY_ROWS", least)
    assert place.run().promoted
    assert asked == [apart]
