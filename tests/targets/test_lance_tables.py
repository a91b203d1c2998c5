"""The Lance target for tables: the contract, and what is Lance's own."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import lance
import pytest

from instep.domain.waves import Mark
from instep.errors import Fenced
from instep.targets.lance import LanceTableTarget, upkeep
from instep.targets.table_target import encode_specs
from instep.testing.ownership import TableOwnership
from instep.testing.table_rows import EDGES, NODES, SPECS, Node, nodes, put
from instep.testing.table_target import TableTargetContract
from tests.targets.killed import stage_and_die


class TestLanceTables(TableTargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> LanceTableTarget:
        return LanceTableTarget(str(tmp_path / "index"))


class TestOwnership(TableOwnership):
    @pytest.fixture
    def target(self, tmp_path: Path) -> LanceTableTarget:
        return LanceTableTarget(str(tmp_path / "index"))


@pytest.fixture
def target(tmp_path: Path) -> LanceTableTarget:
    made = LanceTableTarget(str(tmp_path / "index"), keep_seconds=0)
    made.create("Node__1", [NODES])
    return made


def versions(target: LanceTableTarget) -> list[int]:
    return [each["version"] for each in lance.dataset(f"{target.uri}/Node__1.lance").versions()]


def test_an_index_with_one_epoch_for_all_is_still_read(target: LanceTableTarget) -> None:
    """As they were made when every partition had an index of its own."""
    dataset = lance.dataset(f"{target.uri}/Node__1.lance")
    old = {"instep.tables": encode_specs([NODES]), "instep.epoch": "7", "instep.since": "2"}
    dataset.update_schema_metadata(old, replace=True)
    with pytest.raises(Fenced):
        target.fence("Node__1", 6)
    put(target, "Node__1", Node(1, "one", 1), Node(3, None, 1, deleted=True), epoch=7, attempt="1")
    put(target, "Node__1", Node(2, "two", 1), epoch=1, attempt="2", scope="1/")
    with pytest.raises(Fenced):
        target.fence("Node__1", 6)
    assert nodes(target, "Node__1") == {1: "one", 2: "two"}


def test_an_idle_partition_does_not_keep_old_versions(target: LanceTableTarget) -> None:
    base = target.within("idle/").fence("Node__1", 1)
    mark = Mark("s", 1, b"-")
    target.within("idle/").commit("Node__1", base=base, epoch=1, attempt="0", staged=[], marks=[mark])
    for number in range(5):
        put(target, "Node__1", Node(number, "x", 1), epoch=number + 1, attempt=f"{number}", scope="busy/")
    present = target.within("busy/").fence("Node__1", 6)
    LanceTableTarget(target.uri).maintain("Node__1", full=True)
    assert base in versions(target)
    target.maintain("Node__1", full=True)
    assert min(versions(target)) == present
    # What the idle one wrote cannot be proved any more: it writes again, under a new base.
    assert target.committed("Node__1", base, ["s"]) == {}
    with pytest.raises(Fenced):
        target.within("idle/").commit("Node__1", base=base, epoch=1, attempt="1", staged=[], marks=[mark])
    put(target, "Node__1", Node(9, "again", 1), epoch=1, attempt="2", scope="idle/")
    assert nodes(target, "Node__1") == dict.fromkeys(range(5), "x") | {9: "again"}


def test_what_a_killed_writer_staged_goes_after_a_week(target: LanceTableTarget) -> None:
    data = Path(target.uri, "Node__1.lance", "data")
    for number in range(2):
        base = put(target, "Node__1", Node(number, "x", 1), epoch=number + 1, attempt=f"{number}")
        before = set(data.iterdir())
        stage_and_die(target, "Node__1", base)
        (left,) = set(data.iterdir()) - before
        if number == 0:
            week_old = time.time() - 7 * 24 * 3600 - 60
            os.utime(left, (week_old, week_old))
            old = left
    put(target, "Node__1", Node(2, "x", 1), epoch=3, attempt="2")
    target.maintain("Node__1", full=True)
    assert left.exists()  # It may be a live writer's.
    assert not old.exists()
    assert nodes(target, "Node__1") == {0: "x", 1: "x", 2: "x"}


def test_quick_runs_keep_no_more_versions_than_slow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old versions stay for an hour, but not all that came within it."""
    monkeypatch.setattr(upkeep, "_VERSIONS", 12)
    monkeypatch.setattr(upkeep, "_NEW_VERSIONS", 8)
    monkeypatch.setattr(upkeep, "_RECENT_SECONDS", 0.0)
    target = LanceTableTarget(str(tmp_path / "index"))
    target.create("Node__1", [NODES])
    most = []
    for number in range(40):
        put(target, "Node__1", Node(number % 7, f"{number}", number), epoch=number + 1, attempt=f"{number}")
        target.maintain("Node__1")
        most.append((len(versions(target)), len(list(Path(target.uri).rglob("*")))))
    early, late = most[:25], most[25:]
    assert max(each for each, _ in late) <= max(each for each, _ in early) <= 30
    assert max(files for _, files in late) <= 1.2 * max(files for _, files in early)
    assert nodes(target, "Node__1") == {number % 7: f"{number}" for number in range(33, 40)}


def test_an_index_of_which_a_table_was_dropped_is_gone_and_can_be_made_again(tmp_path: Path) -> None:
    target = LanceTableTarget(str(tmp_path / "index"))
    target.create("Node__1", SPECS)
    put(target, "Node__1", Node(1, "one", 5), epoch=1, attempt="1")
    assert target.exists("Node__1")
    shutil.rmtree(tmp_path / "index" / f"{EDGES.table('Node__1')}.lance")
    assert not target.exists("Node__1")
    target.create("Node__1", SPECS)
    assert (target.exists("Node__1"), target.rows("Node__1")) == (True, 1)
    shutil.rmtree(tmp_path / "index" / f"{EDGES.table('Node__1')}.lance")
    target.drop("Node__1")
    assert [*(tmp_path / "index").glob("*.lance")] == []
