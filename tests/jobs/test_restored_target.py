"""A target that was put back to an older state is told and repaired: no comparison with the source shows it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import instep
from instep.domain.jobs import JobState


def declared(root: Path) -> instep.Instep:
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    (root / "instep.yaml").write_text(
        "name: sea\nengine: inline\ntargets:\n  index: {type: lance, uri: index}\n"
        "entities:\n  Note: {source: {type: files, path: docs}}\n"
    )
    return instep.load(root)


@pytest.fixture
def restored(tmp_path: Path) -> instep.Instep:
    """What was put back, an hour later."""
    project = put_back(tmp_path)
    shutil.rmtree(project.project.root / ".instep" / "contacts")
    return project


def put_back(tmp_path: Path) -> instep.Instep:
    """An index of two documents, one of which has changed since the index was copied that is back now."""
    root = tmp_path / "project"
    project = declared(root)
    (root / "docs" / "b.md").write_text("# Winds\n\nThey blow.\n")
    project.run()
    shutil.copytree(root / "index", tmp_path / "backup")
    (root / "docs" / "a.md").write_text("# Tides\n\nThe sun pulls the sea, too, and more weakly.\n")
    project.run()
    assert _told(project) == []
    shutil.rmtree(root / "index")
    shutil.copytree(tmp_path / "backup", root / "index")
    return project


def _told(project: instep.Instep) -> list[str]:
    (entity,) = project.status()
    return [note for note in entity.notes if "restore" in note]


def test_it_is_told_by_status_and_plan_with_what_mends_it(restored: instep.Instep) -> None:
    (note,) = _told(restored)
    (plan,) = restored.plan()
    assert note.startswith(plan.why[0])
    assert "instep diff Note --repair" in note
    assert restored.search("moon")
    restored.repair()
    assert "The sun pulls" in restored.search("sun")[0].text
    assert _told(restored) == []
    assert not any(each.pending for each in restored.plan())


@pytest.mark.parametrize("work", [False, True])
def test_the_next_run_repairs_it_before_its_epoch_hides_it(restored: instep.Instep, *, work: bool) -> None:
    if work:
        (restored.project.root / "docs" / "c.md").write_text("# Rain\n\nIt falls.\n")
    (plan,) = restored.plan()
    assert (plan.kind, plan.counts["stale"]) == ("refresh", 1)
    assert ("then 1 document that changed in the source" in plan.why) == work
    (result,) = restored.run()
    assert result.state is JobState.COMPLETED
    assert "The sun pulls" in restored.search("sun")[0].text
    assert bool(restored.search("It falls.", mode="text")) == work
    assert _told(restored) == []
    assert not any(each.pending for each in restored.plan())


def test_a_run_with_work_looks_though_its_target_was_asked_lately(tmp_path: Path) -> None:
    project = put_back(tmp_path)
    (project.project.root / "docs" / "c.md").write_text("# Rain\n\nIt falls.\n")
    project.run()
    assert "The sun pulls" in project.search("sun")[0].text
    assert project.search("It falls.", mode="text")


def test_a_want_is_fulfilled_after_the_repair(restored: instep.Instep) -> None:
    (restored.project.root / "docs" / "c.md").write_text("# Rain\n\nIt falls.\n")
    restored.want("Note", as_of=datetime.now(UTC))
    restored.worker(until_idle=True)
    assert [restored.search(words, mode="text")[0].title for words in ("sun", "falls")] == ["Tides", "Rain"]
    assert _told(restored) == []


def test_a_job_that_could_not_begin_is_no_restore(tmp_path: Path) -> None:
    """Epochs are given before a target sees them."""
    root = tmp_path
    project = declared(root)
    project.run()
    (root / "docs" / "a.md").unlink()
    (root / "docs" / "b.md").write_text("# Winds\n\nThey blow.\n")
    with pytest.raises(instep.UserError):
        project.run()  # All that is indexed would go.
    shutil.rmtree(root / ".instep" / "contacts")
    assert _told(project) == []
