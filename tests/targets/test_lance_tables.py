"""The Lance target for tables: the contract, and what is Lance's own."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from instep.domain.waves import Mark
from instep.errors import Fenced
from instep.targets.lance import LanceTableTarget
from instep.targets.table_target import encode_specs
from tests.contracts.ownership import TableOwnership
from tests.contracts.table_rows import NODES, Node, nodes, put
from tests.contracts.table_target import TableTargetContract


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
