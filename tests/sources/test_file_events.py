"""The system tells what changes in folders: no path is missed, and nothing is told after the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.sources import file_events
from instep.sources.file_events import FileEvents
from tests.waiting import until


@pytest.fixture
def events(tmp_path: Path) -> Iterator[FileEvents]:
    (tmp_path / "sub").mkdir()
    made = FileEvents([str(tmp_path)])
    assert made.ready.wait(60)
    yield made
    made.close()


def told(events: FileEvents, *paths: Path) -> None:
    """Wait until these have been told."""
    found: set[str] = set()

    def all_of_them() -> bool:
        found.update(events.take() or ())
        return found >= set(map(str, paths))

    until(all_of_them, found)


def test_written_renamed_and_deleted_files_are_told_by_their_paths(tmp_path: Path, events: FileEvents) -> None:
    first, other = tmp_path / "sub" / "first.md", tmp_path / "sub" / "other.md"
    first.write_text("x")
    told(events, first)
    first.rename(other)
    told(events, first, other)
    other.unlink()
    told(events, other)
    assert not events.failure


def test_folders_that_are_made_later_are_watched(tmp_path: Path, events: FileEvents) -> None:
    (tmp_path / "later").mkdir()

    def written() -> bool:
        (tmp_path / "later" / "a.md").write_text("x")
        return str(tmp_path / "later" / "a.md") in (events.take() or ())

    until(written)


def test_what_is_in_a_folder_from_its_first_moment_is_told(tmp_path: Path, events: FileEvents) -> None:
    """The system watches a folder only after it was made."""
    files = [tmp_path / f"new{number}" / "deep" / "a.md" for number in range(30)]
    for each in files:
        each.parent.mkdir(parents=True)
        each.write_text("x")
    told(events, *files)
    (tmp_path / "sub" / "last.md").write_text("x")
    told(events, tmp_path / "sub" / "last.md")


def test_a_folder_that_is_moved_there_is_told_file_by_file(
    tmp_path: Path, events: FileEvents, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "folder"
    (elsewhere / "deep").mkdir(parents=True)
    (elsewhere / "deep" / "a.md").write_text("x")
    (elsewhere / "link.md").symlink_to("deep/a.md")
    elsewhere.rename(tmp_path / "folder")
    told(events, tmp_path / "folder" / "deep" / "a.md", tmp_path / "folder" / "link.md")


def test_too_many_paths_are_not_remembered(tmp_path: Path, events: FileEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_events, "MOST_PATHS", 3)
    for number in range(10):
        (tmp_path / f"{number}.md").write_text("x")
    until(lambda: events.take() is None)
    (tmp_path / "last.md").write_text("x")
    told(events, tmp_path / "last.md")


def test_without_watches_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "OS file watch limit reached")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", refused)
    events = FileEvents([str(tmp_path)])
    assert events.ready.wait(60)
    (tmp_path / "a.md").write_text("x")
    events.close()
    assert "watch limit" in events.failure
    assert events.take() == set()


def test_a_folder_that_takes_the_place_of_another_is_told_itself(tmp_path: Path, events: FileEvents) -> None:
    """Of the files of the one before nothing else would be told."""
    (tmp_path / "sub" / "old.md").write_text("x")
    told(events, tmp_path / "sub" / "old.md")
    other = tmp_path.parent / f"{tmp_path.name} other"
    other.mkdir()
    (other / "new.md").write_text("x")
    (tmp_path / "sub").rename(tmp_path.parent / f"{tmp_path.name} gone")
    other.rename(tmp_path / "sub")
    told(events, tmp_path / "sub")


@pytest.mark.parametrize("way", ["moved away", "removed", "another link"])
def test_a_source_whose_folder_is_replaced_goes_on_being_watched(tmp_path: Path, way: str) -> None:
    """As by a checkout, a generator of sites, or a deployment: the system would go on with the folder that was."""
    first, second, docs = tmp_path / "first", tmp_path / "second", tmp_path / "docs"
    for each in (first, second):
        each.mkdir()
    if way == "another link":
        docs.symlink_to(first)
    else:
        docs.mkdir()
    events = FileEvents([str(docs)])
    try:
        assert events.ready.wait(60)
        if way == "another link":
            (tmp_path / "next").symlink_to(second)
            (tmp_path / "next").rename(docs)
        else:
            docs.rename(tmp_path / "gone") if way == "moved away" else shutil.rmtree(docs)
            until(lambda: str(docs) in (events.take() or ()))
            docs.mkdir()
        until(lambda: events.take() is None)  # What was done in between is for a listing to find.
        (docs / "new.md").write_text("x")
        told(events, docs / "new.md")
        assert not events.failure
    finally:
        events.close()
