"""A run that changes a few documents counts what the target holds before it changes anything, not afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.domain.jobs import JobState
from instep.targets.lance.target import LanceTarget

from .projects import Home, home
from .tampering import Tamperer, stranger


def _watched(patch: pytest.MonkeyPatch, calls: list[str]) -> None:
    """Has calls of the target written down."""
    for name in ("rows", "commit"):
        called = getattr(LanceTarget, name)

        def noted(target: Any, *args: Any, _name: str = name, _called: Any = called, **more: Any) -> Any:
            calls.append(_name)
            return _called(target, *args, **more)

        patch.setattr(LanceTarget, name, noted)


def _changed(folder: Path) -> Home:
    place = home(folder)
    place.run()
    place.change(1, "one line more")
    return place


def test_an_index_as_recorded_is_not_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, calls = _changed(tmp_path), list[str]()
    _watched(monkeypatch, calls)
    assert place.run().state is JobState.COMPLETED
    assert calls == ["rows", "commit"]


def test_rows_of_another_writer_are_noticed(tmp_path: Path) -> None:
    place = _changed(tmp_path)
    Tamperer(place).add(stranger())
    result = place.run()
    assert not result.promoted
    assert any("rows where" in note and "Something else writes to this index" in note for note in result.notes)


def test_an_idempotent_target_is_counted_when_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, calls = _changed(tmp_path), list[str]()
    monkeypatch.setattr(LanceTarget, "kind", "idempotent")
    _watched(monkeypatch, calls)
    assert place.run().state is JobState.COMPLETED
    assert calls == ["commit", "rows"]
