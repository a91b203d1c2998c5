"""A target that is declared in another place: it is built there anew, unless the index is there already."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import instep
from instep.entities.plan_request import Kind
from instep.errors import UserError
from tests.cli.saying import said

from . import corpus, truth
from .conftest import Location
from .tables.quick import QuickShop

#: Dies when all slices are done, before the end.
_KILLED = """
import os, signal
import instep
from instep.ledger.parts import Parts
Parts.begin_finish = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
instep.load(".").run()
"""

WAS, IS = "uri: .instep/index", "uri: .instep/other"


@pytest.fixture
def place(tmp_path: Path) -> Location:
    made = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(made.docs, range(8))
    made.declare()
    made.run()
    return made


def edit(root: Path, before: str, after: str) -> None:
    file = root / "instep.yaml"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def kind(root: Path) -> tuple[Kind, tuple[str, ...]]:
    (plan,) = instep.load(root).plan()
    return plan.kind, tuple(plan.why)


def test_it_is_built_in_the_new_place_and_the_old_one_stays(place: Location) -> None:
    before = truth.stored(place.index)
    edit(place.root, WAS, IS)
    found, why = kind(place.root)
    assert found is Kind.REBUILD
    assert why[0] == "target moved: from lance in .instep/index to lance in .instep/other"
    assert "what is in the old place stays there" in why[1]
    assert place.run().promoted
    expected = truth.expected(place.docs, size=place.chunk)
    assert truth.difference(expected, truth.stored(place.root / ".instep" / "other")) == ""
    assert truth.stored(place.index) == before, "nothing was touched there"
    assert kind(place.root) == (Kind.NOTHING, ())


def test_status_and_search_say_that_it_is_to_be_built_there(
    place: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(place.root, WAS, IS)
    (status,) = instep.load(place.root).status()
    assert any("target moved: from lance in .instep/index to lance in .instep/other" in each for each in status.notes)
    assert any("next run builds it there" in each for each in status.notes)
    with pytest.raises(UserError, match="target moved") as search:
        instep.load(place.root).search("river")
    assert "instep run" in (search.value.hint or "")
    with pytest.raises(UserError, match="target moved"):
        instep.load(place.root).why("Document", "any")
    assert "target moved" in said(capsys, "plan", "--project", str(place.root), code=2)


@pytest.mark.parametrize("uri", ["./.instep/index/", "{root}/.instep/index", "{root}/../project/.instep//index/"])
def test_another_spelling_of_the_same_place_is_no_move(place: Location, uri: str) -> None:
    edit(place.root, WAS, f"uri: {uri.format(root=place.root)}")
    assert kind(place.root) == (Kind.NOTHING, ())


def test_a_project_that_is_moved_as_a_whole_is_not_built_anew(place: Location) -> None:
    moved = place.root.rename(place.root.with_name("moved"))
    assert kind(moved) == (Kind.NOTHING, ())


def test_an_index_that_was_moved_along_is_not_built_anew(place: Location) -> None:
    place.index.rename(place.root / ".instep" / "other")
    edit(place.root, WAS, IS)
    assert kind(place.root) == (Kind.NOTHING, ())
    corpus.write(place.docs, range(8, 9))
    result = place.run()
    assert (result.counts.written, result.promoted) == (1, True)


def test_a_copy_that_is_older_than_the_checkpoint_is_built_anew(place: Location) -> None:
    shutil.copytree(place.index, place.root / ".instep" / "other")
    corpus.write(place.docs, range(8, 9))
    place.run()
    edit(place.root, WAS, IS)
    assert kind(place.root)[0] is Kind.REBUILD
    assert place.run().promoted
    expected = truth.expected(place.docs, size=place.chunk)
    assert truth.difference(expected, truth.stored(place.root / ".instep" / "other")) == ""


def test_a_checkpoint_that_knows_no_place_learns_it_at_the_next_run(place: Location) -> None:
    with sqlite3.connect(place.root / ".instep" / "ledger.db") as ledger:
        ledger.execute("UPDATE checkpoints SET fingerprint = json_remove(fingerprint, '$.target')")
    edit(place.root, WAS, IS)
    with pytest.raises(UserError, match="is gone from target 'index'"):  # It is not known to be another one.
        kind(place.root)
    edit(place.root, IS, WAS)
    assert place.run().state is None
    edit(place.root, WAS, IS)
    assert kind(place.root)[0] is Kind.REBUILD


@pytest.mark.parametrize("rebuilds", [False, True], ids=["first build", "rebuild"])
def test_an_unfinished_job_is_not_resumed_in_another_place(place: Location, rebuilds: bool) -> None:
    if rebuilds:
        instep.load(place.root).taint("Document", why="a test")
    else:
        shutil.rmtree(place.root / ".instep")
    line = [sys.executable, "-c", _KILLED]
    died = subprocess.run(line, cwd=place.root, check=False, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert kind(place.root)[0] is Kind.RESUME
    edit(place.root, WAS, IS)
    assert place.run().promoted
    expected = truth.expected(place.docs, size=place.chunk)
    assert truth.difference(expected, truth.stored(place.root / ".instep" / "other")) == ""


@pytest.mark.parametrize("names", [(), ("Ticket@1/2",)], ids=["all", "one namespace"])
def test_tables_and_namespaces_are_built_in_the_new_place(tmp_path: Path, names: tuple[str, ...]) -> None:
    shop = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    shop.declare()
    shop.fill(people=5, tickets=40)
    shop.save()
    shop.run()
    files = set((shop.root / "index").rglob("*"))
    shop.edit("uri: index", "uri: other")
    found = shop.run(*names)
    assert {each.plan.kind for each in found.values()} == {Kind.REBUILD}
    assert all("target moved: from lance in index to lance in other" in each.plan.found.why for each in found.values())
    assert all(each.promoted for each in found.values())
    shop.run()
    assert shop.wrong() == {}
    assert set((shop.root / "index").rglob("*")) == files
    assert {each.state for each in shop.run().values()} == {None}
