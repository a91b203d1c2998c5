"""The index is kept up while its last wave is recorded: each waits for nothing but what it needs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from instep.domain.jobs import JobState
from instep.errors import Transient
from instep.ledger.documents import Documents
from instep.ledger.slices import Slices
from instep.targets.lance.target import LanceTarget

from .projects import home

TIMEOUT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.jobs.early_upkeep.DOCUMENTS", 1)


def test_upkeep_begins_before_the_last_wave_is_recorded_and_ends_before_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, calls, begun = home(tmp_path), list[str](), threading.Event()
    maintain, complete, rows = LanceTarget.maintain, Slices.complete, LanceTarget.rows

    def maintained(target: LanceTarget, *args: Any, **more: Any) -> None:
        begun.set()
        maintain(target, *args, **more)
        calls.append("maintained")

    def completed(slices: Slices, *args: Any, **more: Any) -> None:
        assert begun.wait(TIMEOUT_SECONDS), "nothing runs beside it"
        complete(slices, *args, **more)
        calls.append("completed")

    def counted(target: LanceTarget, *args: Any) -> int:
        calls.append("counted")
        return rows(target, *args)

    monkeypatch.setattr(LanceTarget, "maintain", maintained)
    monkeypatch.setattr(Slices, "complete", completed)
    monkeypatch.setattr(LanceTarget, "rows", counted)
    assert place.run().promoted
    *before, last, counting = calls
    assert sorted(before) == ["completed", "maintained"]
    assert (last, counting) == ("maintained", "counted"), "once more, for what has come since"


def test_an_index_is_served_while_its_records_are_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, served, compact = home(tmp_path), threading.Event(), Documents.compact
    promote = LanceTarget.promote

    def promoted(target: LanceTarget, *args: Any) -> None:
        promote(target, *args)
        served.set()

    def compacted(documents: Documents, *args: Any, **more: Any) -> None:
        assert served.wait(TIMEOUT_SECONDS), "readers wait for it"
        compact(documents, *args, **more)

    monkeypatch.setattr(LanceTarget, "promote", promoted)
    monkeypatch.setattr(Documents, "compact", compacted)
    result = place.run()
    assert (result.promoted, result.notes) == (True, [])


@pytest.mark.parametrize("error", [Transient("the store is away for a moment"), RuntimeError("of a class of yours")])
def test_early_upkeep_that_fails_is_done_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    place, failed = home(tmp_path), list[str]()
    maintain = LanceTarget.maintain

    def maintained(target: LanceTarget, *args: Any, **more: Any) -> None:
        if not failed:
            failed.append(threading.current_thread().name)
            raise error
        maintain(target, *args, **more)

    monkeypatch.setattr(LanceTarget, "maintain", maintained)
    result = place.run()
    assert failed == ["upkeep"]
    assert (result.state, result.promoted) == (JobState.COMPLETED, True)
    assert not any("not up to date" in note for note in result.notes)
