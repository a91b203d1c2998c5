"""Several ledgers and one place: none touches what another made, and what was lost is adopted."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import lance
import pytest
import yaml

import instep
from instep.app import Instep
from instep.cli import main
from instep.container import Container
from instep.errors import UserError
from instep.jobs.entity_result import EntityResult
from instep.targets.lance import LanceTarget
from instep.targets.ownership import NO_OWNER, NotOurs

#: More than an adoption reads again.
NOTES = {f"n{number}.md": f"# N{number}\n\nsearchable alpha {number}\n" for number in range(12)}


class Location:
    """Projects with ledgers of their own, whose target is one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "index"

    def project(
        self,
        name: str,
        notes: dict[str, str] = NOTES,
        *,
        entity: str = "Document",
        chunk: int = 1000,
        columns: dict[str, str] | None = None,
    ) -> Instep:
        root = self.folder / name
        (root / "docs").mkdir(parents=True, exist_ok=True)
        for each, text in notes.items():
            (root / "docs" / each).write_text(text)
        made = {"chunk": {"size": chunk, "overlap": 0}, "columns": columns or {}}
        declared = {
            "name": name,
            "engine": "inline",
            "targets": {"main": {"type": "lance", "uri": str(self.index)}},
            "entities": {entity: {"source": {"type": "files", "path": "docs"}, **made}},
        }
        (root / "instep.yaml").write_text(yaml.safe_dump(declared))
        return instep.load(root)

    def lose(self, project: Instep) -> None:
        """Its ledger."""
        for each in (project.project.root / ".instep").glob("ledger.db*"):
            each.unlink()

    def indexes(self) -> list[str]:
        return sorted(each.stem for each in self.index.glob("*.lance"))


@pytest.fixture
def place(tmp_path: Path) -> Location:
    return Location(tmp_path)


def run(project: Instep, **options: bool | str) -> EntityResult:
    (result,) = project.run(**options)  # type: ignore[arg-type]  # all of these are options of it
    return result


def texts(project: Instep, words: str = "searchable") -> set[str]:
    return {each.text for each in project.search(words, mode="text", limit=50)}


def differs(project: Instep) -> bool:
    (found,) = project.diff()
    assert found.differences is not None
    return found.differences.differs


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(NotOurs) as raised:
        call()
    return str(raised.value)


def test_an_index_is_nobody_elses_while_the_ledger_is_away(place: Location) -> None:
    """To adopt it would be a wrong advice: the ledger comes back."""
    one = place.project("one")
    run(one)
    away = one.project.model_copy(update={"ledger": "postgresql://u:p@127.0.0.1:1/none"})
    found = {each.subject: each for each in Instep(away).check()}
    assert found["ledger"].away
    assert "index Document" not in found


# -- two projects ----------------------------------------------------------------------------------


def test_a_second_project_is_refused_before_it_does_anything(
    place: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))  # Whether Spark works is not asked here.
    one, two = place.project("one"), place.project("two", {"b.md": "# B\n\nsearchable beta\n"})
    run(one)
    for call in (two.plan, two.run, lambda: two.run(full_refresh=True), lambda: two.search("searchable", mode="text")):
        said = refused(call)
        assert "belongs to ledger" in said
        assert "instep adopt Document" in said
        assert "another name" in said
    assert [each.subject for each in two.check() if "belongs to ledger" in each.detail] == ["index Document"]
    assert place.indexes() == [one.status()[0].physical]
    (one.project.root / "docs" / "new.md").write_text("# New\n\nsearchable gamma\n")
    assert run(one).counts.written == 1
    assert len(texts(one)) == len(NOTES) + 1
    assert two.jobs() == []


def test_projects_with_entities_of_other_names_live_side_by_side(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when each of them drops what it needs no more."""
    one, two = place.project("one"), place.project("two", {"b.md": "# B\n\nsearchable beta\n"}, entity="Letter")
    monkeypatch.setattr("instep.jobs.finish.SWEEP_SECONDS", 0.0)
    for _ in range(2):
        for each in (one, two):
            assert run(each, full_refresh=True).promoted
    assert len(place.indexes()) == 2
    assert texts(two) == {"# B\n\nsearchable beta"}
    assert len(texts(one)) == len(NOTES)
    assert [run(each).state for each in (one, two)] == [None, None]


def test_leftovers_of_another_ledger_are_not_swept(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.jobs.finish.SWEEP_SECONDS", 0.0)
    one = place.project("one")
    run(one)
    theirs = LanceTarget(str(place.index)).owned_by(NO_OWNER)
    theirs.create("Document__other", 4, 1)
    for _ in range(2):
        run(one, full_refresh=True)
    assert place.indexes() == sorted(["Document__other", str(one.status()[0].physical)])


def test_of_two_first_builds_at_once_the_later_one_leaves_nothing_behind(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = place.project("one"), place.project("two", {"b.md": "# B\n\nsearchable beta\n"})
    maintain, winners = LanceTarget.maintain, [one]

    def overtaken(self: LanceTarget, physical: str) -> None:
        """Another project has begun later, and promotes first."""
        maintain(self, physical)
        if winners:
            assert run(winners.pop()).promoted

    monkeypatch.setattr(LanceTarget, "maintain", overtaken)
    lost = run(two)
    assert (lost.state_name, lost.promoted) == ("FAILED", False)
    assert any("belongs to ledger" in each and "instep adopt Document" in each for each in lost.notes)
    assert place.indexes() == [one.status()[0].physical]
    assert len(texts(one)) == len(NOTES)
    assert "belongs to ledger" in refused(two.run)


# -- a lost ledger ---------------------------------------------------------------------------------


def test_a_lost_ledger_is_reported_and_adoption_continues_with_its_index(place: Location) -> None:
    one = place.project("one")
    run(one)
    (before,) = place.indexes()
    place.lose(one)
    assert "instep adopt Document" in refused(one.run)
    (found,) = one.adopt()
    assert (found.done, found.live, found.physical) == (True, True, before)
    assert found.inspection is not None
    assert (found.inspection.same, found.inspection.sampled, found.inspection.rows) == (12, 8, 12)
    assert run(one).state is None, "nothing is embedded again"
    assert not differs(one)
    (one.project.root / "docs" / "n1.md").write_text("# N1\n\nsearchable delta\n")
    result = run(one)
    assert (result.counts.read, result.counts.written, result.counts.embedded) == (1, 1, 1)
    assert place.indexes() == [before]
    assert len(texts(one)) == 12
    assert run(one, full_refresh=True).promoted, "its alias is this ledger's too"


def test_changes_made_while_the_ledger_was_lost_come_with_the_next_run(place: Location) -> None:
    one = place.project("one")
    run(one)
    place.lose(one)
    docs = one.project.root / "docs"
    (docs / "n1.md").write_text("# N1\n\nsearchable delta, and longer\n")
    (docs / "n2.md").unlink()
    (docs / "new.md").write_text("# New\n\nsearchable gamma\n")
    (found,) = one.adopt()
    assert found.inspection is not None
    assert (found.inspection.same, found.inspection.changed) == (10, 1)
    assert (found.inspection.gone, found.inspection.new) == (1, 1)
    counts = run(one).counts
    assert (counts.written, counts.deleted, counts.embedded) == (2, 1, 2)
    assert len(texts(one)) == 12
    assert run(one).state is None


def test_an_index_with_a_chunk_too_few_is_repaired_after_its_adoption(place: Location) -> None:
    one = place.project("one")
    run(one)
    (physical,) = place.indexes()
    dataset = lance.dataset(str(place.index / f"{physical}.lance"))
    dataset.insert(dataset.to_table(filter="title = 'N3'"))
    place.lose(one)
    (found,) = one.adopt()
    assert found.inspection is not None
    assert (found.live, found.inspection.damaged) == (True, 1)
    assert run(one).counts.written == 1
    assert not differs(one)


def test_an_adopted_index_of_another_transform_is_rebuilt_beside_it(place: Location) -> None:
    one = place.project("one")
    run(one)
    (before,) = place.indexes()
    place.lose(one)
    again = place.project("one", chunk=8)
    (found,) = again.adopt()
    assert (found.done, found.live) == (True, False)
    assert found.why_not is not None
    assert "is cut into" in found.why_not
    assert len(texts(again)) == 12, "it is served until then"
    result = run(again)
    assert (result.promoted, result.counts.written) == (True, 12)
    assert before != again.status()[0].physical


def test_an_index_that_was_brought_up_to_date_is_adopted(place: Location) -> None:
    """Its chunks are numbered with gaps: such documents are read again, and found to be as they were."""
    one = place.project("one", chunk=20)
    run(one)
    path = one.project.root / "docs" / "n1.md"
    path.write_text("# In front\n\nSomething new comes first.\n\n" + path.read_text())
    run(one)
    place.lose(one)
    (found,) = one.adopt()
    assert found.inspection is not None
    assert (found.live, found.inspection.damaged) == (True, 0)
    result = run(one)
    assert result.counts.rows_written == 0
    assert not differs(one)


@pytest.mark.parametrize("before", [{}, {"team": "int"}], ids=["none", "another type"])
def test_an_adopted_index_without_the_declared_columns_is_rebuilt_beside_it(
    place: Location, before: dict[str, str]
) -> None:
    one = place.project("one", columns=before)
    run(one)
    place.lose(one)
    again = place.project("one", columns={"team": "string"})
    (found,) = again.adopt()
    assert (found.done, found.live) == (True, False)
    with pytest.raises(UserError, match="'team' is not in the served index yet"):
        again.search("alpha", where="team = 'ops'")
    assert len(texts(again)) == 12, "it is served until then"
    (again.project.root / "docs" / "n1.md").write_text("---\nteam: ops\n---\n# N1\n\nsearchable alpha\n")
    assert run(again).promoted
    assert len(again.search("alpha", where="team = 'ops'")) == 1


def test_an_adopted_index_of_before_documents_had_times_is_rebuilt_beside_it(place: Location) -> None:
    one = place.project("one")
    run(one)
    (physical,) = place.indexes()
    uri = str(place.index / f"{physical}.lance")
    dataset = lance.dataset(uri)
    rows = dataset.to_table().drop_columns(["modified"]).replace_schema_metadata(dataset.schema.metadata)
    lance.write_dataset(rows, uri, mode="overwrite")
    place.lose(one)
    (found,) = one.adopt()
    assert (found.done, found.live) == (True, False)
    with pytest.raises(UserError, match="'modified' is not in the served index yet"):
        one.search("alpha", where="modified IS NOT NULL")
    assert run(one).promoted
    assert len(one.search("alpha", where="modified IS NOT NULL", limit=50)) == 12


def test_a_copy_of_the_source_has_other_times_and_is_adopted_all_the_same(place: Location) -> None:
    """A project that was cloned elsewhere, say: nothing is embedded again, nor written."""
    one = place.project("one")
    run(one)
    place.lose(one)
    shutil.rmtree(one.project.root / ".instep")
    (found,) = place.project("one").adopt()
    assert found.inspection is not None
    assert (found.live, found.inspection.same, found.inspection.changed) == (True, 0, 12)
    counts = run(one).counts
    assert (counts.read, counts.written, counts.embedded) == (12, 0, 0)


def test_another_embedder_is_noticed_by_its_vectors(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    one = place.project("one")
    run(one)
    place.lose(one)
    from instep.pipeline.documents.embed.hashing import HashingEmbedder

    embed = HashingEmbedder.embed
    monkeypatch.setattr(HashingEmbedder, "embed", lambda self, texts: embed(self, texts)[:, ::-1].copy())
    (found,) = one.adopt(agree=lambda _: False)
    assert found.why_not == "its vectors are of another embedder"
    assert not found.done


def test_an_index_of_another_source_is_not_adopted(place: Location) -> None:
    one, two = place.project("one"), place.project("two", {"b.md": "# B\n\nsearchable beta\n"})
    run(one)
    with pytest.raises(UserError, match="holds nothing that is in"):
        two.adopt()
    assert len(texts(one)) == 12
    assert run(one, full_refresh=True).promoted


@pytest.mark.parametrize("moved", [False, True])
def test_an_index_of_absolute_names_is_adopted_to_be_built_anew(place: Location, moved: bool) -> None:
    one = place.project("one")
    root = one.project.root
    relative = (root / "instep.yaml").read_text()
    (root / "instep.yaml").write_text(relative.replace("path: docs", f"path: {root}/docs"))
    run(instep.load(root))
    place.lose(one)
    (root / "instep.yaml").write_text(relative)
    if moved:
        root = root.rename(place.folder / "elsewhere")
    (found,) = instep.load(root).adopt()
    assert (found.done, found.live) == (True, False)
    assert str(found.why_not).startswith("its documents have other names now: file:///")
    result = run(instep.load(root))
    assert (result.promoted, result.counts.written) == (True, len(NOTES))
    assert not differs(instep.load(root))


def test_the_former_owner_is_refused_after_an_adoption(place: Location) -> None:
    one = place.project("one")
    run(one)
    state = one.project.root / ".instep"
    shutil.copytree(state, place.folder / "kept")
    place.lose(one)
    one.adopt()
    shutil.rmtree(state)
    shutil.copytree(place.folder / "kept", state)
    (one.project.root / "docs" / "n1.md").write_text("# N1\n\nsearchable delta, of the old one\n")
    for call in (one.run, lambda: one.run(full_refresh=True), lambda: one.search("alpha", mode="text")):
        refused(call)


def test_an_adoption_that_died_between_ledger_and_target_harms_nothing(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = place.project("one")
    run(one)
    (before,) = place.indexes()
    place.lose(one)
    for dies in ("instep.jobs.adoption._Registration._complete", "instep.jobs.adoption._claim"):
        with monkeypatch.context() as patched:
            patched.setattr(dies, _die)
            with pytest.raises(ZeroDivisionError):
                one.adopt()
        (one.project.root / "docs" / "new.md").write_text(f"# New\n\nsearchable {dies}\n")
        refused(one.run)
        assert place.indexes() == [before]
    (found,) = one.adopt()
    assert found.done
    assert run(one).counts.written == 1
    assert len(texts(one)) == 13


def _die(*_: object) -> None:
    raise ZeroDivisionError


# -- an older ledger -------------------------------------------------------------------------------


def test_a_ledger_of_yesterday_ends_with_a_reason_and_can_continue(place: Location) -> None:
    """A backup: the target has seen epochs that this ledger has never given."""
    one = place.project("one")
    run(one)
    ledger, kept = one.project.root / ".instep" / "ledger.db", place.folder / "kept.db"
    shutil.copy(ledger, kept)
    note = one.project.root / "docs" / "n1.md"
    for number in range(4):
        note.write_text(f"# N1\n\nsearchable delta {number}\n")
        run(one)
    place.lose(one)
    shutil.copy(kept, ledger)
    note.write_text("# N1\n\nsearchable and of today\n")
    for _ in range(10):  # However often: a refused run takes no epoch, or some run would have caught up.
        with pytest.raises(UserError, match="newer epoch") as raised:
            one.run()
    assert "instep adopt Document" in str(raised.value)
    with pytest.raises(UserError, match="newer epoch"):
        one.repair()
    one.adopt()
    assert one.adopt() == [], "it is done"
    assert run(one).counts.written == 1
    assert texts(one, "today") >= {"# N1\n\nsearchable and of today"}
    assert not differs(one)


def test_a_ledger_of_yesterday_learns_what_was_indexed_since(place: Location) -> None:
    """Though the source is what it was when the ledger was kept."""
    project = place.project("one")
    run(project)
    docs = project.project.root / "docs"
    before = {each: (each.read_text(), each.stat().st_mtime_ns) for each in docs.iterdir()}
    keep(project)
    (docs / "later.md").write_text("# Later\n\nsearchable later\n")
    (docs / "n1.md").write_text("# N1\n\nsearchable of tomorrow\n")
    (docs / "n2.md").unlink()
    run(project)
    (docs / "later.md").unlink()
    for path, (text, mtime) in before.items():
        path.write_text(text)
        os.utime(path, ns=(mtime, mtime))
    restore(project)
    (adopted,) = project.adopt()
    assert adopted.live
    assert adopted.inspection is not None
    assert adopted.inspection.unlike == 3
    counts = run(project).counts
    assert (counts.written, counts.deleted, counts.failed) == (2, 1, 0)
    assert len(texts(project)) == len(NOTES)
    assert not texts(project, "later tomorrow")
    assert not differs(project)
    assert run(project).state is None


@pytest.mark.parametrize("whole", [True, False], ids=["all of its files", "the ledger alone"])
def test_a_ledger_and_a_source_of_yesterday_are_not_up_to_date(place: Location, whole: bool) -> None:
    """Nothing has changed between the two: only the target knows better."""
    project = place.project("one")
    run(project)
    assert run(project).state is None
    note = project.project.root / "docs" / "n1.md"
    before, stat = note.read_text(), note.stat()
    keep(project)
    note.write_text("# N1\n\nsearchable of tomorrow\n")
    run(project)
    note.write_text(before)
    os.utime(note, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    if whole:
        restore(project)
    else:
        place.lose(project)
        shutil.copy(project.project.root / "kept" / "ledger.db", project.project.root / ".instep" / "ledger.db")
    for ask in (project.run, project.plan, project.run):
        with pytest.raises(UserError, match="seen a newer epoch") as raised:
            ask()
        assert "instep adopt Document" in str(raised.value)
    project.adopt()
    assert run(project).counts.written == 1
    assert not texts(project, "tomorrow")
    assert (run(project).state, differs(project)) == (None, False)


def keep(project: Instep) -> None:
    """A backup of its ledger."""
    shutil.copytree(project.project.root / ".instep", project.project.root / "kept")


def restore(project: Instep) -> None:
    shutil.rmtree(project.project.root / ".instep")
    shutil.copytree(project.project.root / "kept", project.project.root / ".instep")


def test_a_ledger_of_yesterday_builds_upon_nothing_that_it_will_build_tomorrow(place: Location) -> None:
    """It gives ids again: an index of that name may hold what has been deleted since."""
    project = place.project("one")
    later = project.project.root / "docs" / "later.md"
    run(project)
    keep(project)
    later.write_text("# Later\n\nsearchable later\n")
    run(project, full_refresh=True)
    forgotten = project.status()[0].physical
    later.unlink()
    restore(project)
    with pytest.raises(UserError, match="seen a newer epoch"):
        project.run(full_refresh=True)
    project.adopt()
    result = run(project, full_refresh=True)
    assert (result.counts.written, result.counts.skipped, result.notes) == (len(NOTES), 0, [])
    assert project.status()[0].physical != forgotten
    assert len(texts(project)) == len(NOTES)


def test_a_ledger_from_before_the_first_build_takes_nothing_away_that_is_served(place: Location) -> None:
    """Though it builds under the same name."""
    project = place.project("one")
    assert project.adopt() == []  # The ledger is made.
    keep(project)
    run(project)
    served = place.indexes()
    restore(project)
    project = place.project("one", chunk=12)
    with pytest.raises(UserError, match="seen a newer epoch"):
        project.run()
    assert place.indexes() == served
    (adopted,) = project.adopt()
    assert not adopted.live
    assert (run(project).promoted, differs(project)) == (True, False)
    assert served[0] in place.indexes()


def test_an_index_that_a_ledger_of_yesterday_has_not_seen_is_adopted(place: Location) -> None:
    """The one that it knows has been replaced and dropped since."""
    project = place.project("one")
    run(project)
    (known,) = place.indexes()
    keep(project)
    run(project, full_refresh=True)
    served = project.status()[0].physical
    lance.LanceDataset.drop(str(place.index / f"{known}.lance"))
    restore(project)
    (adopted,) = project.adopt()
    assert adopted.live
    assert run(project).state is None
    assert project.status()[0].physical == served
    assert len(texts(project)) == len(NOTES)


def test_a_generation_that_a_ledger_of_yesterday_has_not_seen_is_kept_and_said(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.jobs.finish.SWEEP_SECONDS", 0.0)
    project = place.project("one")
    run(project)
    (first,) = place.indexes()
    keep(project)
    assert run(project, generation="v2").state_name == "COMPLETED"
    (later,) = set(place.indexes()) - {first}
    restore(project)
    (project.project.root / "docs" / "later.md").write_text("# Later\n\nsearchable later\n")
    project.adopt()
    result = run(project)
    assert place.indexes() == sorted([first, later])
    assert any(later in each and "instep adopt Document --generation" in each for each in result.notes)
    result = run(project, full_refresh=True)
    assert (first in place.indexes(), later in place.indexes()) == (False, True)


def test_an_index_made_before_ledgers_had_ids_stays_its_own(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    one = place.project("one")
    with monkeypatch.context() as patched:
        patched.setattr("instep.container.owner_in", lambda _: NO_OWNER)
        run(one)
    (before,) = place.indexes()
    stranger = LanceTarget(str(place.index))
    assert [stranger.owner_of(name) for name in (before, "Document")] == ["", ""]
    with closing(sqlite3.connect(one.project.root / ".instep" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE event_head SET since = last")
    refused(place.project("two").run)
    (one.project.root / "docs" / "n1.md").write_text("# N1\n\nsearchable delta\n")
    assert run(one).counts.written == 1
    assert place.indexes() == [before]
    container = Container(one.project)
    assert [stranger.owner_of(name) for name in (before, "Document")] == [container.owner.id] * 2


# -- the command -----------------------------------------------------------------------------------


def test_the_command_shows_found_indexes_and_asks(
    place: Location, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = place.project("one")
    run(one)
    place.lose(one)
    monkeypatch.chdir(one.project.root)
    assert main(["run"]) == 1
    assert "instep adopt Document" in capsys.readouterr().err
    assert main(["adopt"]) == 1
    said = capsys.readouterr()
    assert "12 of 12 documents as in the source; 8 documents read, cut and embedded again gave the same" in said.out
    assert "instep adopt --yes" in said.err
    assert main(["adopt", "--yes"]) == 0
    assert "Adopted" in capsys.readouterr().out
    assert main(["run"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_nothing_to_adopt_is_reported(
    place: Location, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.project("one").project.root)
    assert main(["adopt", "--yes"]) == 0
    assert "Nothing to adopt" in capsys.readouterr().out


def test_declining_an_adoption_changes_nothing(place: Location) -> None:
    one = place.project("one")
    run(one)
    place.lose(one)
    (found,) = one.adopt(agree=lambda _: False)
    assert (found.live, found.done) == (True, False)
    refused(one.run)


# -- what cannot be read ---------------------------------------------------------------------------


def test_an_alias_that_cannot_be_read_is_refused_and_left_as_it_is(place: Location) -> None:
    one = place.project("one")
    run(one)
    (file,) = place.index.glob("Document.alias-*.json")
    file.write_bytes(b"\xff garbage")
    for call in (lambda: one.run(full_refresh=True), one.adopt, lambda: texts(one)):
        with pytest.raises(UserError, match=r"alias 'Document' is damaged") as raised:
            call()
        assert "remove the file" in str(raised.value)
    assert file.read_bytes() == b"\xff garbage"
    file.unlink()
    assert run(one, full_refresh=True).promoted
    assert len(texts(one)) == len(NOTES)


@pytest.mark.parametrize("damage", [b"", b"no Lance file at all"])
def test_a_served_index_with_damaged_files_is_not_adopted_and_gives_a_hint(place: Location, damage: bytes) -> None:
    one = place.project("one")
    run(one)
    (physical,) = place.indexes()
    place.lose(one)
    for file in (place.index / f"{physical}.lance" / "data").iterdir():
        file.write_bytes(damage)
    with pytest.raises(UserError) as raised:
        one.adopt()
    assert "files of the index are damaged" in str(raised.value)
    assert "Restore them from a backup" in str(raised.value)
    assert one.jobs() == []
    assert place.indexes() == [physical]
