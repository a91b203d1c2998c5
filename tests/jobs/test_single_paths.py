"""A look at single paths finds what a listing would find there, or leaves it to a listing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import instep
from instep.container import Container
from instep.entities.plan_request import Kind, PlanOptions
from instep.planning.plan import EntityPlan, plan_entity
from instep.project import Project
from instep.sources.files import FilesSource
from tests.doubles.container import workshop_of

INCLUDE = ["**/*.md", "!draft*"]
EXCLUDE = ["left/", "secret.md"]


def project(root: Path, path: str | list[str] = "docs", **entity: Any) -> Project:
    source = {"type": "files", "path": path, "include": INCLUDE, "exclude": EXCLUDE}
    targets = {"index": {"type": "lance", "uri": "index"}}
    entities = {"Page": {"source": source, "target": "index", **entity}}
    return Project.model_validate({"name": "p", "root": root, "targets": targets, "entities": entities})


def planned(declared: Project, paths: frozenset[str] | None) -> EntityPlan:
    container = Container(declared)
    ledger = container.ledger()
    workshop = workshop_of(declared, ledger)
    try:
        (setup,) = workshop.setups()
        return plan_entity(setup, ledger, PlanOptions(paths=paths), "", choose=workshop.engines.choose)
    finally:
        workshop.close()
        ledger.close()
        container.close()


def changes(plan: EntityPlan) -> list[tuple[str, str]]:
    return sorted((each.action, each.what) for each in plan.found.changes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    for name in ("a.md", "sub/b.md", "sub/c.md", "other.txt", "left/d.md", "sub/secret.md"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(f"what is in {name}")
    instep.Instep(project(tmp_path)).run()
    return tmp_path


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("something else is in here")


EDITS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "changed": (lambda docs: write(docs / "a.md"), ("a.md",)),
    "new": (lambda docs: write(docs / "sub" / "new.md"), ("sub/new.md",)),
    "gone": (lambda docs: (docs / "sub" / "b.md").unlink(), ("sub/b.md",)),
    "renamed": (lambda docs: (docs / "a.md").rename(docs / "z.md"), ("a.md", "z.md")),
    "of another kind": (lambda docs: write(docs / "new.txt"), ("new.txt", "other.txt")),
    "in a folder that is left out": (lambda docs: write(docs / "left" / "e.md"), ("left/e.md", "left")),
    "left out": (lambda docs: write(docs / "sub" / "secret.md"), ("sub/secret.md",)),
    "a temporary file": (lambda docs: None, ("sub/b.md~", ".b.md.swp", "sub/4913")),
    "touched": (lambda docs: os.utime(docs / "a.md"), ("a.md",)),
    "not changed": (lambda docs: None, ("a.md", "sub/b.md")),
    "outside": (lambda docs: write(docs.parent / "beside.md"), ("../beside.md",)),
    "odd names": (lambda docs: write(docs / "ä %25#?.md"), ("ä %25#?.md",)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_single_paths_say_what_a_listing_says(root: Path, edit: str) -> None:
    change, paths = EDITS[edit]
    change(root / "docs")
    declared = project(root)
    some = planned(declared, frozenset(os.path.normpath(root / "docs" / each) for each in paths))
    everything = planned(declared, None)
    assert some.found.partial
    assert changes(some) == changes(everything)
    assert some.kind is everything.kind


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        (lambda docs: write(docs / "more" / "x.md"), ("more",)),
        (lambda docs: shutil.rmtree(docs / "sub"), ("sub",)),
        (lambda docs: (docs / "sub").rename(docs / "moved"), ("moved", "sub")),
        (lambda docs: (docs / "l.md").symlink_to("a.md"), ("l.md",)),
        (lambda docs: (docs / "link").symlink_to("sub"), ("link/b.md",)),
    ],
    ids=["new folder", "folder gone", "folder moved", "link", "below a link"],
)
def test_folders_and_links_are_left_to_a_listing(
    root: Path, change: Callable[[Path], object], paths: tuple[str, ...]
) -> None:
    change(root / "docs")
    declared = project(root)
    some = planned(declared, frozenset(str(root / "docs" / each) for each in paths))
    assert not some.found.partial
    assert changes(some) == changes(planned(declared, None))


def test_other_changes_are_not_seen(root: Path) -> None:
    write(root / "docs" / "a.md")
    (root / "docs" / "sub" / "b.md").unlink()
    plan = planned(project(root), frozenset({str(root / "docs" / "a.md")}))
    assert [action for action, _ in changes(plan)] == ["update"]


def test_deletes_at_single_paths_stop_at_the_guard(root: Path) -> None:
    (root / "docs" / "sub" / "b.md").unlink()
    declared = project(root, deletes={"share": 0.2, "floor": 0})
    plan = planned(declared, frozenset({str(root / "docs" / "sub" / "b.md")}))
    assert plan.found.blocked is not None
    assert plan.found.blocked.why.startswith("1 of 3 documents is gone from the source")


def test_only_a_listing_moves_on_how_far_the_source_is_indexed(root: Path) -> None:
    write(root / "docs" / "a.md")
    plan = planned(project(root), frozenset({str(root / "docs" / "a.md")}))
    assert plan.checkpoint is not None
    assert plan.found.target == plan.checkpoint.watermark
    whole = planned(project(root), None).found.target
    assert whole is not None
    assert whole > plan.checkpoint.watermark


def test_who_waits_for_all_of_the_source_gets_it(root: Path) -> None:
    instep.Instep(project(root)).want("Page", fresh_within=timedelta())
    plan = planned(project(root), frozenset({str(root / "docs" / "a.md")}))
    assert (plan.found.partial, plan.kind) == (False, Kind.REFRESH)


def test_a_build_reads_all(tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md")
    write(tmp_path / "docs" / "b.md")
    plan = planned(project(tmp_path), frozenset({str(tmp_path / "docs" / "a.md")}))
    assert (plan.kind, len(plan.found.changes)) == (Kind.FIRST_BUILD, 2)


@pytest.mark.parametrize(
    ("roots", "folders"),
    [
        (["docs"], ["docs"]),
        (["docs", "."], ["docs", ""]),
        (["docs", "docs/a.md"], None),
        (["docs", "memory://x"], None),
        (["docs", "nowhere"], None),
    ],
)
def test_only_folders_of_this_machine_can_be_watched(root: Path, roots: list[str], folders: list[str] | None) -> None:
    found = FilesSource(tuple(roots), project=str(root)).folders()
    assert found == (None if folders is None else [os.path.normpath(root / each) for each in folders])


def test_a_path_below_two_roots_is_left_to_a_listing(root: Path) -> None:
    source = FilesSource(("docs", "docs/sub"), project=str(root))
    assert source.look([str(root / "docs" / "sub" / "b.md")]) is None
    found = source.look([str(root / "docs" / "a.md")])
    assert found is not None
    assert [each.uri for each in found.documents] == ["project:///docs/a.md"]


NAMES = st.sampled_from(["a.md", "b.md", "s/a.md", "s/b.md", "s/t/a.md", "x.txt", "left/a.md", "s/secret.md"])
STEPS = st.lists(st.tuples(st.sampled_from(["write", "remove", "rename"]), NAMES, NAMES), min_size=1, max_size=6)


@given(before=st.sets(NAMES), steps=STEPS)
def test_any_edits_are_found_where_they_were_made(
    tmp_path_factory: pytest.TempPathFactory, before: set[str], steps: list[tuple[str, str, str]]
) -> None:
    """By the source alone: what is listed after the edits is what was listed before, put right by the look."""
    docs = tmp_path_factory.mktemp("docs")
    for name in before:
        write(docs / name)
    source = FilesSource((str(docs),), tuple(INCLUDE), tuple(EXCLUDE))
    listed = {each.uri: each for each in source.list().documents}
    paths = set()
    for what, name, other in steps:
        path = docs / name
        if what == "write":
            write(path)
            paths.add(path)
        elif path.exists():
            (docs / other).parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if what == "remove" else path.rename(docs / other)
            paths |= {path, docs / other} if what == "rename" else {path}
    looked = source.look(map(str, paths))
    assert looked is not None
    for uri in looked.missing:
        listed.pop(uri, None)
    listed |= {each.uri: each for each in looked.documents}
    assert sorted(listed.values()) == list(source.list().documents)
