"""An entity with several targets: each is brought up to date for itself, and holds the same in the end."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from instep.cli import main
from instep.container import Container
from instep.domain.clock import Timing
from instep.domain.refs import PartitionRef
from instep.errors import Transient
from instep.jobs.serve import serve
from instep.jobs.target_order import in_target_order
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.project import Project
from instep.targets.lance import LanceTarget
from instep.telemetry.progress import Silent
from tests.e2e import corpus
from tests.waiting import until

from .projects import Home

MAIN, OTHER = PartitionRef("Document__main"), PartitionRef("Document__other")


def home(folder: Path, targets: str = "targets: [main, other]") -> Home:
    made = Home(folder)
    corpus.write(made.docs, range(6))
    file = corpus.project(folder, made.docs, entity=targets)
    places = "targets: {main: {type: lance, uri: .instep/main}, other: {type: lance, uri: .instep/other}}"
    file.write_text(file.read_text().replace("targets: {index: {type: lance, uri: .instep/index}}", places))
    return made


def contents(place: Home, target: str) -> Counter[tuple[object, ...]]:
    """What readers of this target find under the entity's own name."""
    lance = LanceTarget(str(place.root / ".instep" / target))
    physical = lance.served("Document")
    assert physical is not None
    return Counter(tuple(row.values()) for batch in lance.contents(physical) for row in batch.to_pylist())


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Take a target away, by the end of its uri, from its callers; None: all are there again."""
    gone: list[str | None] = [None]

    def guarded(name: str) -> None:
        method = getattr(LanceTarget, name)

        def call(self: LanceTarget, *args: Any, **kwargs: Any) -> Any:
            if gone[0] and self.uri.endswith(gone[0]):
                raise Transient(f"{gone[0]} is away")
            return method(self, *args, **kwargs)

        monkeypatch.setattr(LanceTarget, name, call)

    for each in ("create", "exists", "fence", "writer", "commit", "committed", "promote", "served", "rows", "search"):
        guarded(each)
    return lambda name: gone.__setitem__(0, name)


def test_targets_have_checkpoints_of_their_own_and_the_same_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HashingEmbedder, "cached", True)
    place = home(tmp_path)
    results = place.open().run(["Document"])
    assert [each.plan.ref for each in results] == [MAIN, OTHER]
    assert all(each.promoted for each in results)
    assert results[0].counts.embedded > 0
    assert results[1].counts.embedded == 0  # The cache has them.
    assert contents(place, "main") == contents(place, "other") != Counter()
    place.change(1, "one line more")
    assert [each.counts.written for each in place.open().run(["Document__other"])] == [1]
    assert contents(place, "main") != contents(place, "other")
    assert [each.pending for each in place.open().plan(["Document"])] == [True, False]


@pytest.mark.parametrize("begun", [False, True], ids=["first build", "refresh"])
def test_a_target_that_is_away_holds_up_no_other(
    tmp_path: Path, away: Callable[[str | None], None], capsys: pytest.CaptureFixture[str], begun: bool
) -> None:
    place = home(tmp_path)
    if begun:
        place.open().run()
        place.change(1, "one line more")
    away("main")
    assert main(["run", "Document", "--project", str(place.root), "--quiet"]) == 75
    said = capsys.readouterr()
    assert "error: Document__main is not up to date: main is away" in said.err
    assert "Document__other  completed" in " ".join(said.out.split("\n")).replace("   ", "  ")
    away(None)
    done = place.open().run()
    assert [(str(each.plan.kind), each.state is None) for each in done][1] == ("nothing", True)
    assert done[0].promoted
    assert contents(place, "main") == contents(place, "other")


def test_a_worker_continues_with_the_target_that_is_there(tmp_path: Path, away: Callable[[str | None], None]) -> None:
    place = home(tmp_path)
    place.open().want(["Document"])
    away("main")
    container = Container(place.open().project, timing=Timing(poll=20))
    with closing(container), closing(container.ledger()) as ledger:
        context = container.context(ledger, Silent())
        worker = threading.Thread(target=lambda: serve(container.setups(), context, until_idle=True))
        worker.start()
        try:
            until(lambda: ledger.checkpoints.get(OTHER) is not None)
        finally:
            away(None)
            worker.join()
    assert contents(place, "main") == contents(place, "other")


def test_each_target_has_its_turn_upstream_first(tmp_path: Path) -> None:
    files = {"source": {"type": "files", "path": str(tmp_path)}}
    places = {name: {"type": "lance", "uri": f".instep/{name}"} for name in ("main", "other")}
    entities = {
        "After": {**files, "target": "main", "depends_on": ["Document"]},
        "Document": {**files, "targets": ["main", "other"], "depends_on": ["Before"]},
        "Note": {**files, "targets": ["other"]},
        "Before": {**files, "target": "other"},
    }
    declared = {"name": "p", "targets": places, "root": tmp_path}

    def named(**some: object) -> list[list[str]]:
        project = Project.model_validate({**declared, "entities": some})
        with closing(Container(project)) as container:
            return [[setup.ref.entity for setup in turn] for turn in in_target_order(container.setups())]

    main, other = ["After", "Document__main"], ["Document__other", "Note__other", "Before"]
    assert named(**entities) == [other, main]
    del entities["Document"]["depends_on"], entities["After"]["depends_on"]
    assert named(**entities) == [main, other]
    circle = {
        "A": {**files, "target": "main", "depends_on": ["B"]},
        "B": {**files, "target": "other"},
        "C": {**files, "target": "other", "depends_on": ["A"]},
    }
    assert named(**circle) == [["A"], ["B", "C"]], "a circle of turns is none of entities"


def test_one_name_stands_for_all_targets(tmp_path: Path) -> None:
    place = home(tmp_path)
    opened = place.open()
    opened.run()
    assert [each.ref for each in opened.status(["Document"])] == [MAIN, OTHER]
    assert len({each.instance for each in opened.status(["Document"])}) == 2
    assert opened.failures(["Document"]) == []
    assert {each.entity for each in opened.search("document 3", entities=["Document"])} == {"Document"}
    assert opened.why("Document", place.uri(3)).target == "main"
    assert opened.why("other", place.uri(3)).target == "other"


def test_reachable_targets_are_compared_though_another_is_away(
    tmp_path: Path, away: Callable[[str | None], None], capsys: pytest.CaptureFixture[str]
) -> None:
    place = home(tmp_path)
    place.open().run()
    away("main")
    assert main(["diff", "Document", "--project", str(place.root), "--quiet", "--json"]) == 75
    said = capsys.readouterr()
    assert "error: Document__main cannot be compared: main is away" in said.err
    assert [each["differs"] for each in json.loads(said.out)] == [None, False]


def test_search_asks_the_first_target_or_the_one_that_is_named(
    tmp_path: Path, away: Callable[[str | None], None]
) -> None:
    place = home(tmp_path)
    opened = place.open()
    opened.run()
    away("other")
    assert opened.search("document 3")
    with pytest.raises(Transient, match="other is away"):
        opened.search("document 3", target="other")


def test_one_target_becomes_several_and_one_again(tmp_path: Path) -> None:
    """They share an alias: the later one is promoted, in any order of targets."""
    place = home(tmp_path, "target: main")
    place.open().run()
    with closing(sqlite3.connect(tmp_path / ".instep" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE leases SET epoch = 1000")  # It has been there for long.
    place.open().run(full_refresh=True)
    home(tmp_path)
    assert all(each.promoted for each in place.open().run())
    place.change(1, "one line more")
    assert [each.counts.written for each in place.open().run()] == [1, 1]
    home(tmp_path, "target: main")
    assert all(each.promoted for each in place.open().run(full_refresh=True))
    (status,) = place.open().status()
    assert LanceTarget(str(place.root / ".instep" / "main")).served("Document") == status.physical is not None
