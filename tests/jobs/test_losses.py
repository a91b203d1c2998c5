"""What an index loses bit by bit, or by files that are there and have nothing in them: asked for as at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import instep
from instep.errors import UserError
from tests.e2e import corpus
from tests.jobs.projects import Home


def home(folder: Path, documents: int) -> Home:
    made = Home(folder)
    corpus.write(made.docs, range(documents))
    corpus.project(folder, made.docs, extra="engine: inline", entity="deletes: {share: 0.2, floor: 4}")
    made.run()
    return made


def documents(world: Home) -> int | None:
    (status,) = world.open().status()
    return status.documents


def remove(world: Home, *numbers: int) -> None:
    for number in numbers:
        world.path(number).unlink()


def test_a_source_that_goes_bit_by_bit_is_asked_for_as_one_that_goes_at_once(tmp_path: Path) -> None:
    world = home(tmp_path, 20)
    remove(world, 0, 1, 2)
    world.run()
    assert documents(world) == 17
    remove(world, 3, 4)
    with pytest.raises(UserError, match=r"2 of 17 documents are gone.*3 more were deleted in the last 6h"):
        world.run()
    assert documents(world) == 17
    # New documents are no reason to forget it.
    corpus.write(world.docs, range(20, 21))
    with pytest.raises(UserError, match="2 of 17 documents are gone"):
        world.run()

    world.open().run(allow_deletes=True)
    assert documents(world) == 16
    remove(world, 5, 6, 7)
    world.run()
    assert documents(world) == 13


def test_forgetting_old_jobs_forgets_no_loss_that_still_counts(tmp_path: Path) -> None:
    world = home(tmp_path, 20)
    remove(world, 0, 1, 2)
    world.run()
    corpus.write(world.docs, range(20, 21))
    world.run()  # The newest job would stay in any case.
    assert world.open().gc(keep=timedelta(milliseconds=1)).jobs == 0
    remove(world, 3, 4)
    with pytest.raises(UserError, match=r"2 of 18 documents are gone.*3 more were deleted in the last 6h"):
        world.run()


def test_a_rebuild_counts_too(tmp_path: Path) -> None:
    world = home(tmp_path, 20)
    remove(world, 0, 1, 2)
    world.open().run(full_refresh=True)
    remove(world, 3, 4)
    with pytest.raises(UserError, match="2 of 17 documents are gone"):
        world.open().run(full_refresh=True)
    assert documents(world) == 17


@pytest.mark.parametrize(("content", "more"), [("", 3), ("\n", 3), ("x\n", 4)], ids=["empty", "blank", "cut off"])
def test_documents_that_lost_their_content_count_as_lost_in_a_rebuild(tmp_path: Path, content: str, more: int) -> None:
    world = home(tmp_path, 20)
    for number in range(2):
        world.path(number).write_text(content)
    (result,) = world.open().run(full_refresh=True)
    assert result.promoted
    (before,) = world.open().status()
    for number in range(2, 2 + more):
        world.path(number).write_text(content)
    if not content:  # The listing tells.
        with pytest.raises(UserError, match="3 of 20 documents are gone from the source, or empty by now"):
            world.open().run(full_refresh=True)
    else:
        (result,) = world.open().run(full_refresh=True)
        assert not result.promoted
        assert any("more were lost lately" in note for note in result.notes)
    (status,) = world.open().status()
    assert status.rows == before.rows
    (result,) = world.open().run(full_refresh=True, allow_deletes=True)
    assert result.promoted


@pytest.mark.parametrize("content", ["", " \n\n \n", "x\n"], ids=["empty", "blank", "cut off"])
def test_files_that_lose_their_content_are_asked_for(tmp_path: Path, content: str) -> None:
    world = home(tmp_path, 6)
    (before,) = world.open().status()
    for number in range(6):
        world.path(number).write_text(content)
    for _ in range(2):
        with pytest.raises(UserError, match=r"empty by now|would lose .* chunks"):
            world.run()
        (status,) = world.open().status()
        assert status.rows == before.rows
    (result,) = world.open().run(allow_deletes=True)
    assert result.counts.written == 6
    (status,) = world.open().status()
    assert status.rows == (6 if content == "x\n" else 0)


def test_a_build_of_nothing_but_blank_files_replaces_nothing_unless_that_is_right(tmp_path: Path) -> None:
    world = home(tmp_path, 6)
    (before,) = world.open().status()
    for number in range(6):
        world.path(number).write_text("\n")
    (result,) = world.open().run(full_refresh=True, allow_deletes=True)
    assert not result.promoted
    assert any("the rebuild is empty" in note for note in result.notes)
    (status,) = world.open().status()
    assert status.rows == before.rows
    (result,) = world.open().run(full_refresh=True, allow_empty=True)
    assert result.promoted


@pytest.mark.parametrize("content", ["\n", "x\n"], ids=["blank", "cut off"])
def test_a_build_of_files_that_lost_their_content_replaces_nothing(tmp_path: Path, content: str) -> None:
    world = home(tmp_path, 6)
    (before,) = world.open().status()
    for number in range(5):
        world.path(number).write_text(content)
    (result,) = world.open().run(full_refresh=True)
    assert (result.promoted, result.state_name) == (False, "FAILED")
    assert any("--allow-deletes" in note for note in result.notes)
    (status,) = world.open().status()
    assert status.rows == before.rows
    (result,) = world.open().run(full_refresh=True, allow_deletes=True)
    assert result.promoted


def test_a_rebuild_of_blank_files_with_another_declaration_needs_permission(tmp_path: Path) -> None:
    world = home(tmp_path, 6)
    (before,) = world.open().status()
    for number in range(5):
        world.path(number).write_text("\n")
    corpus.project(tmp_path, world.docs, chunk=400, extra="engine: inline", entity="deletes: {share: 0.2, floor: 4}")
    result = world.run()
    assert not result.promoted
    assert any("5 of 6 documents that are served are empty now" in note for note in result.notes)
    (status,) = world.open().status()
    assert status.rows == before.rows


def test_promoting_a_generation_that_lacks_documents_needs_permission(tmp_path: Path) -> None:
    world = home(tmp_path, 6)
    remove(world, 0, 1, 2, 3, 4)
    world.open().run(generation="v2")
    with pytest.raises(UserError, match="5 of 6 documents that are served are not in it"):
        world.open().promote("Document", "v2")
    assert world.open().promote("Document", "v2", allow_deletes=True).changed


def test_promoting_a_generation_of_emptied_documents_needs_permission(tmp_path: Path) -> None:
    world = home(tmp_path, 6)
    for number in range(5):
        world.path(number).write_text("\n")
    world.open().run(generation="v2")
    with pytest.raises(UserError, match="5 of 6 documents that are served are empty now"):
        world.open().promote("Document", "v2")


def test_chunks_that_go_bit_by_bit_are_asked_for(tmp_path: Path) -> None:
    world = home(tmp_path, 12)
    (before,) = world.open().status()
    refused = 0
    for number in range(6):
        world.path(number).write_text("x\n")
        try:
            world.run()
        except UserError as error:
            refused += "would lose" in error.what
    assert refused
    (status,) = world.open().status()
    assert before.rows is not None
    assert status.rows is not None
    assert status.rows >= 0.8 * before.rows


def test_status_names_documents_that_could_not_be_listed(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_text('{"id": "1", "text": "one"}\n')
    (tmp_path / "instep.yaml").write_text(
        """
name: test
engine: inline
targets: {index: {type: lance, uri: .instep/other}}
entities:
  Document: {source: {type: feed, path: feed.jsonl}, embed: {type: hashing}}
"""
    )
    instep.load(tmp_path).run()
    feed.write_text('{"id": "1", "text": "one"}\nno line of a feed\n')
    (result,) = instep.load(tmp_path).run()
    assert result.state_name == "INCOMPLETE"
    (status,) = instep.load(tmp_path).status()
    assert any("not all of the source could be read" in note for note in status.notes)
    feed.write_text('{"id": "1", "text": "one"}\n')
    instep.load(tmp_path).run()
    (status,) = instep.load(tmp_path).status()
    assert not any("could be read" in note for note in status.notes)


@pytest.mark.parametrize("apart", [False, True], ids=["in one target", "in targets of their own"])
def test_a_second_project_with_the_ledger_and_a_name_of_the_first_is_told_so(tmp_path: Path, apart: bool) -> None:
    def project(name: str, texts: dict[str, str]) -> instep.Instep:
        root = tmp_path / name
        (root / "docs").mkdir(parents=True)
        for file, text in texts.items():
            (root / "docs" / file).write_text(text)
        index = root / "index" if apart else tmp_path / "index"
        (root / "instep.yaml").write_text(
            f"name: {name}\nengine: inline\nledger: sqlite:///{tmp_path}/shared.db\n"
            f"targets:\n  index: {{type: lance, uri: {index}}}\n"
            "entities:\n  Note: {source: {type: files, path: docs}, deletes: {share: 0.2, floor: 1}}\n"
        )
        return instep.load(root)

    one = project("one", {"README.md": "# One", "a.md": "# A", "b.md": "# B"})
    two = project("two", {"README.md": "# Another one", "c.md": "# C"})
    one.run()
    (plan,) = two.plan()
    expected = (
        "nothing in `docs` matches what is recorded of Note@global, which seems to be made from other documents, such "
        "as project:///"
    )
    assert plan.blocked is not None
    assert expected in plan.blocked
    with pytest.raises(UserError, match=expected) as told:
        two.run()
    assert "another project that shares this ledger" in (told.value.hint or "")
    (one.project.root / "docs" / "a.md").unlink()
    (one.project.root / "docs" / "b.md").unlink()
    with pytest.raises(UserError, match="2 of 3 documents are gone") as told:
        one.run()
    assert "another project" not in f"{told.value} {told.value.hint}"
