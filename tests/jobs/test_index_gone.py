"""An index that was removed behind Instep's back is told by all who look for it, with what builds it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import instep
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.planning.contacts import ContactFiles

_TOLD = r"index of Note@global \(Note__\w+\) is gone from target 'index'"


def built(root: Path) -> instep.Instep:
    (root / "docs").mkdir()
    (root / "docs" / "a.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    (root / "instep.yaml").write_text(
        "name: sea\nengine: inline\ntargets:\n  index: {type: lance, uri: index}\n"
        "entities:\n  Note: {source: {type: files, path: docs}}\n"
    )
    project = instep.load(root)
    project.run()
    return project


def test_a_run_with_nothing_to_do_tells_that_the_folder_of_the_index_is_gone(tmp_path: Path) -> None:
    project = built(tmp_path)
    assert [each.counts.written for each in project.run()] == [0]
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(UserError, match=_TOLD) as told:
        project.run()
    assert "--full-refresh" in str(told.value)
    with pytest.raises(UserError, match=_TOLD):
        project.plan()
    project.run(full_refresh=True)
    assert [hit.title for hit in project.search("moon")] == ["Tides"]


def test_a_run_with_nothing_to_do_tells_that_one_index_of_several_is_gone(tmp_path: Path) -> None:
    project = built(tmp_path)
    for each in (tmp_path / "index").glob("Note__*.lance"):
        shutil.rmtree(each)
    assert any((tmp_path / "index").iterdir())
    with pytest.raises(UserError, match=_TOLD):
        project.run()


def test_a_repair_builds_an_index_that_is_gone(tmp_path: Path) -> None:
    project = built(tmp_path)
    shutil.rmtree(tmp_path / "index")
    project.repair()
    assert [each.counts.written for each in project.run()] == [0]
    assert [hit.title for hit in project.search("moon")] == ["Tides"]


def test_searches_and_status_tell_how_an_index_that_is_gone_is_built_again(tmp_path: Path) -> None:
    project = built(tmp_path)
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(UserError, match=_TOLD) as told:
        project.search("moon")
    assert "--full-refresh" in str(told.value)
    (status,) = project.status()
    assert status.rows is None
    assert "instep run --full-refresh" in " ".join(status.notes)
    assert "Build it with: instep run" not in " ".join(status.notes).replace("\n", " ")


def test_a_server_is_asked_again_by_another_process_and_by_the_same_one_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, now = PartitionRef("Note"), [1_000.0]
    monkeypatch.setattr("instep.planning.contacts.time.monotonic", lambda: now[0])

    def process() -> ContactFiles:
        return ContactFiles(tmp_path, "ledger", lambda ref, physical: None)

    one = process()
    assert one.known(ref, "", "Note__1") is None
    one.note(ref, "", "Note__1", 4)
    assert (one.known(ref, "", "Note__1"), one.known(ref, "", "Note__2")) == (4, None)
    assert process().known(ref, "", "Note__1") is None
    now[0] += 59
    assert one.known(ref, "", "Note__1") == 4
    now[0] += 1
    assert one.known(ref, "", "Note__1") is None
    one.put_off("Note__1")  # It is away.
    assert one.known(ref, "", "Note__1") == 0
    assert [*tmp_path.iterdir()] == []
