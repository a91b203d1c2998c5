"""An index that was removed behind Instep's back is told by all who look for it, with what builds it again."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import lance
import pytest

import instep
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.planning.contacts import ContactFiles
from instep.targets.lance.target import LanceTarget
from instep.targets.on_disk import is_there

_TOLD = r"index of Note@global \(Note__\w+\) is gone from target 'index'"


def built(root: Path, target: str = "lance") -> instep.Instep:
    (root / "docs").mkdir()
    (root / "docs" / "a.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    (root / "instep.yaml").write_text(
        f"name: sea\nengine: inline\ntargets:\n  index: {{type: {target}, uri: index}}\n"
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


def drop_alias(root: Path, alias: str = "Note") -> None:
    (place,) = [*(root / "index").glob(f"{alias}.alias-*.json"), *(root / "index").glob(alias)]
    place.unlink()


@pytest.mark.parametrize("target", ["lance", "qdrant"])
def test_an_alias_that_is_gone_is_made_again_though_nothing_has_changed(tmp_path: Path, target: str) -> None:
    project = built(tmp_path, target)
    before = [each.uuid for each in project.history("Note")]
    drop_alias(tmp_path)
    (plan,) = project.plan()
    assert (plan.kind, plan.why) == ("refresh", ("alias 'Note' is gone from target 'index', and is made again",))
    (done,) = project.run()
    assert (done.state, done.counts.read, done.notes) == (JobState.COMPLETED, 0, [])
    assert [hit.title for hit in project.search("moon")] == ["Tides"]
    assert [each.uuid for each in project.history("Note")] == before
    assert [each.job_id for each in project.run()] == [None]


def test_an_alias_is_made_again_of_an_index_that_is_served_as_it_is(tmp_path: Path) -> None:
    """Rows are missing: that is told, but no reason to make the same job in each run."""
    project = built(tmp_path)
    (index,) = (tmp_path / "index").glob("Note__*.lance")
    lance.dataset(str(index)).delete("true")
    drop_alias(tmp_path)
    (done,) = project.run()
    assert "it is served as it is" in done.notes[0]
    assert LanceTarget(str(tmp_path / "index")).served("Note") == index.stem
    assert [each.job_id for each in project.run()] == [None]


def test_the_alias_of_a_generation_that_is_gone_is_made_again(tmp_path: Path) -> None:
    project = built(tmp_path)
    project.run(generation="v2")
    drop_alias(tmp_path, "Note@v2")
    assert [each.job_id for each in project.run()] == [None], "it is no alias of this one"
    (done,) = project.run(generation="v2")
    assert (done.state, done.counts.read) == (JobState.COMPLETED, 0)
    target = LanceTarget(str(tmp_path / "index"))
    assert target.served("Note@v2") != target.served("Note")


def test_a_worker_makes_an_alias_again(tmp_path: Path) -> None:
    project = built(tmp_path)
    drop_alias(tmp_path)
    project.worker(watch=1.0, until_idle=True)
    assert [hit.title for hit in project.search("moon")] == ["Tides"]


def test_an_alias_that_leads_elsewhere_is_left_alone_while_nothing_changes(tmp_path: Path) -> None:
    project = built(tmp_path)
    target = LanceTarget(str(tmp_path / "index"))
    (alias,) = (tmp_path / "index").glob("Note.alias-*.json")
    before, served = alias.read_text(), target.served("Note")
    project.run(full_refresh=True)
    drop_alias(tmp_path)
    alias.write_text(before)
    for each in (tmp_path / ".instep" / "contacts").iterdir():
        each.unlink()
    assert [each.job_id for each in project.run()] == [None]
    assert target.served("Note") == served


def test_nothing_is_served_in_place_of_an_index_that_may_not_be_built(tmp_path: Path) -> None:
    """The alias stays as it is when what is declared by now was refused: the index is not made of that."""
    project = built(tmp_path)
    (tmp_path / "change_of_today.py").write_text("def parse(data, uri):\n    raise ValueError('not today')\n")
    file, parse = tmp_path / "instep.yaml", "parse: {type: python, function: 'change_of_today:parse'}"
    file.write_text(file.read_text().replace("path: docs}}", f"path: docs}}, {parse}}}"))
    project = instep.load(tmp_path)
    project.run()
    drop_alias(tmp_path)
    (nothing,) = project.run()
    assert (nothing.job_id, nothing.state_name) == (None, "HELD_BACK")


def test_searches_and_status_tell_how_an_index_that_is_gone_is_built_again(tmp_path: Path) -> None:
    project = built(tmp_path)
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(UserError, match=_TOLD) as told:
        project.search("moon")
    assert "--full-refresh" in str(told.value)
    (status,) = project.status()
    assert status.rows is None
    assert "instep run Note --full-refresh" in " ".join(status.notes)
    assert "Build it with: instep run" not in " ".join(status.notes).replace("\n", " ")


def test_a_server_is_asked_again_by_another_process_and_by_the_same_one_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, now = PartitionRef("Note"), [1_000.0]
    monkeypatch.setattr("instep.planning.contacts.time.monotonic", lambda: now[0])

    def process() -> ContactFiles:
        return ContactFiles(tmp_path, "ledger", lambda ref, physical, aliases: None)

    one = process()
    assert one.known(ref, "", "Note__1", ["Note"]) is None
    one.note(ref, "", "Note__1", 4)
    assert (one.known(ref, "", "Note__1", ["Note"]), one.known(ref, "", "Note__2", ["Note"])) == (4, None)
    assert process().known(ref, "", "Note__1", ["Note"]) is None
    now[0] += 59
    assert one.known(ref, "", "Note__1", ["Note"]) == 4
    now[0] += 1
    assert one.known(ref, "", "Note__1", ["Note"]) is None
    one.put_off(ref, "Note__1")  # It is away.
    assert one.known(ref, "", "Note__1", ["Note"]) == 0
    assert [*tmp_path.iterdir()] == []


def test_partitions_that_share_an_index_on_a_server_are_asked_for_one_by_one(tmp_path: Path) -> None:
    """So are targets in which the index of an entity has the same name."""
    contacts = ContactFiles(tmp_path, "ledger", lambda ref, physical, aliases: None)
    first, second = PartitionRef.parse("Ticket@1/2"), PartitionRef.parse("Ticket@1/3")
    contacts.note(first, "", "Ticket__1", 4)
    assert contacts.known(second, "", "Ticket__1", []) is None
    contacts.put_off(second, "Ticket__1")
    assert (contacts.known(first, "", "Ticket__1", []), contacts.known(second, "", "Ticket__1", [])) == (4, 0)


def test_a_folder_that_cannot_be_looked_at_is_left_to_its_target_to_tell(tmp_path: Path) -> None:
    ref, place = PartitionRef("Note"), tmp_path / ("x" * 300)
    contacts = ContactFiles(
        tmp_path, "ledger", lambda ref, physical, aliases: is_there("lance", place, physical, aliases)
    )
    assert contacts.known(ref, "", "Note__1", []) is None


def test_the_hint_is_of_the_index_that_is_gone_alone(tmp_path: Path) -> None:
    project = built(tmp_path)
    project.run(generation="v2")
    with closing(Container(project.project)) as container, closing(container.ledger()) as ledger:
        built_last = ledger.checkpoints.get(PartitionRef("Note"), "v2")
    assert built_last is not None
    shutil.rmtree(tmp_path / "index" / f"{built_last.physical}.lance")
    with pytest.raises(UserError, match=_TOLD) as told:
        project.run(generation="v2")
    assert "instep run Note --generation v2 --full-refresh, or: instep diff Note --generation v2 --repair" in str(
        told.value
    )
    assert [each.counts.written for each in project.run()] == [0]


def test_a_refresh_that_lost_its_index_is_given_up_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It told to run again, again and again."""
    project = built(tmp_path)
    (tmp_path / "docs" / "a.md").write_text("# Tides\n\nThe sun pulls the sea, too.\n")
    with monkeypatch.context() as patched:

        def lost(target: LanceTarget, physical: str, **commit: object) -> int:
            target.remove(physical)
            raise UserError(f"there is no index {physical!r}")

        patched.setattr(LanceTarget, "commit", lost)
        with pytest.raises(UserError, match="there is no index"):
            project.run()
    for _ in range(2):
        with pytest.raises(UserError, match=_TOLD):
            project.run()
    assert [each.counts.written for each in project.repair()] == [1]
    assert [each.counts.written for each in project.run()] == [0]
    assert [hit.text for hit in project.search("sun")] == ["# Tides\n\nThe sun pulls the sea, too."]


def test_a_generation_whose_index_is_gone_is_not_promoted(tmp_path: Path) -> None:
    project = built(tmp_path)
    first = {*(tmp_path / "index").glob("*.lance")}
    project.run(generation="v2")
    project.promote("Note", "v2")
    for each in first:
        shutil.rmtree(each)
    with pytest.raises(UserError, match=_TOLD) as told:
        project.promote("Note", "")
    assert "instep run Note --generation '' --full-refresh" in str(told.value)
    assert [hit.title for hit in project.search("moon")] == ["Tides"]
