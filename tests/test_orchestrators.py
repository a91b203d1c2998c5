"""Outcomes of runs, as orchestrators ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.app import load
from instep.errors import Away, Fenced, Transient, UserError
from instep.jobs.acquisition import Busy
from instep.orchestrators import built_after, may_pass, newest_event, outcomes
from tests.sources.unsteady import Unsteady, unsteady

__all__ = ["unsteady"]

PROJECT = """\
name: notes
targets:
  lance: {type: lance, uri: .instep/lance}
entities:
  Note:
    source: {type: files, path: docs}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "well.md").write_text("# Well\n\nA zebra.\n")
    (tmp_path / "instep.yaml").write_text(PROJECT)
    return tmp_path


def test_a_run_is_told_with_what_is_served_after_it(folder: Path) -> None:
    project = load(folder)
    (done,) = outcomes(project, ["Note"])
    (served,) = project.status()
    assert done.well(allow_failures=False)
    assert (done.ref, done.answer.counts.written) == ("Note@global", 1)
    assert (done.status.instance, done.status.rows) == (served.instance, 1)


def test_a_document_that_failed_is_well_only_if_that_is_allowed_and_no_retry_mends_it(folder: Path) -> None:
    (folder / "docs" / "ill.pdf").write_bytes(b"%PDF-1.7 no more than that")
    (done,) = outcomes(load(folder), [])
    assert not done.well(allow_failures=False)
    assert done.well(allow_failures=True)
    assert not done.may_pass
    assert "1 document failed" in done.reason
    assert "ill.pdf: " in done.reason


def test_what_could_not_be_seen_of_a_source_is_never_well_and_may_pass(folder: Path, unsteady: Unsteady) -> None:
    (folder / "instep.yaml").write_text(PROJECT.replace("path: docs", f"path: {unsteady.url}"))
    project = load(folder)
    assert outcomes(project, [])[0].well(allow_failures=False)
    unsteady.broken["/b/deep"] = PermissionError(13, "Permission denied")
    (done,) = outcomes(project, [])
    assert not done.well(allow_failures=True)
    assert done.may_pass
    assert "b/deep: permission denied" in done.reason


def test_only_what_may_mend_itself_is_worth_another_try() -> None:
    errors = (Away, Busy, Transient, Fenced, UserError)
    assert [may_pass(error("it")) for error in errors] == [True, True, True, True, False]


def test_what_was_built_is_read_from_the_event_log_in_order_and_once(folder: Path) -> None:
    project = load(folder)
    assert newest_event(project) == 0
    assert built_after(project, 0) == ([], 0)
    project.run()
    (folder / "docs" / "more.md").write_text("# More\n\nA giraffe.\n")
    project.run()
    built, place = built_after(project, 0)
    (served,) = project.status()
    assert [(str(each.ref), each.instance, each.counts.written) for each in built] == [
        ("Note@global", served.instance, 1),
        ("Note@global", served.instance, 1),
    ]
    assert built[0].job != built[1].job
    assert built[1].complete_up_to == served.watermark
    assert place == newest_event(project)
    assert built_after(project, place) == ([], place)
    # By pages that end anywhere.
    one_by_one, at = [], 0
    while at < place:
        some, at = built_after(project, at, limit=1)
        one_by_one += some
    assert one_by_one == built


def test_what_is_not_served_is_not_told_as_built(folder: Path) -> None:
    project = load(folder)
    project.run()
    place = newest_event(project)
    project.run(generation="next")
    built, _ = built_after(project, place)
    assert built == []
