"""Promises of a target for tables about promotion: readers notice nothing, and zombies change nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.errors import Conflict, Fenced
from instep.targets.table_target import TableTarget
from instep.testing.table_rows import NODES, SPECS, Node, OnTables, put


class TableServingContract(OnTables):
    @pytest.fixture
    def builds(self, target: TableTarget) -> tuple[str, str, str]:
        names = ("Node__a", "Node__b", "Node__c")
        for name in names:
            target.create(name, SPECS if name != "Node__c" else [NODES])
            put(target, name, Node(1, name, 1), epoch=1, attempt="1")
        return names

    def test_nothing_is_served_before_the_first_promotion(self, target: TableTarget) -> None:
        assert target.served("Node") is None

    def test_aliases_do_not_touch_each_other(self, target: TableTarget, builds: tuple[str, str, str]) -> None:
        aliases = {"Node": 0, "Node@v2": 1, "Node_2": 2, "Nod": 1}
        for alias, number in aliases.items():
            target.promote(alias, builds[number], 5)
        target.promote("Node", builds[2], 6)
        assert [target.served(alias) for alias in aliases] == [builds[number] for number in (2, 1, 2, 1)]

    def test_an_older_epoch_never_overrides_a_newer_one(
        self, target: TableTarget, builds: tuple[str, str, str]
    ) -> None:
        """However late a zombie comes, and though it only repeats what once was right."""
        old, new, other = builds
        target.promote("Node", old, 99)
        target.promote("Node", new, 100)
        for epoch, physical in [(99, old), (99, new), (2, other), (1, new)]:
            with pytest.raises(Fenced):
                target.promote("Node", physical, epoch)
            assert target.served("Node") == new

    def test_one_epoch_serves_one_index(self, target: TableTarget, builds: tuple[str, str, str]) -> None:
        target.promote("Node", builds[0], 5)
        with pytest.raises(Conflict):
            target.promote("Node", builds[1], 5)
        target.promote("Node", builds[0], 5)
        assert target.served("Node") == builds[0]

    def test_a_promotion_can_be_taken_back(self, target: TableTarget, builds: tuple[str, str, str]) -> None:
        target.promote("Node", builds[0], 5)
        for _ in range(2):
            target.promote("Node", None, 6)
            assert target.served("Node") is None
        with pytest.raises(Fenced):
            target.promote("Node", builds[0], 5)
        with pytest.raises(Conflict):
            target.promote("Node", builds[0], 6)
        target.promote("Node", builds[1], 7)
        assert target.served("Node") == builds[1]

    def test_of_promoters_at_once_the_newest_epoch_wins(
        self, target: TableTarget, builds: tuple[str, str, str]
    ) -> None:
        for round_ in range(3):
            start = threading.Barrier(6)

            def promote(epoch: int, physical: str, start: threading.Barrier = start) -> bool:
                start.wait()
                try:
                    target.promote("Node", physical, epoch)
                except Fenced:
                    return False
                return True

            promoters = [(3 * round_ + number, builds[number - 1]) for number in (1, 2, 3) for _ in range(2)]
            with ThreadPoolExecutor(6) as pool:
                done = list(pool.map(lambda each: promote(*each), promoters))
            assert done[4:] == [True, True]
            assert target.served("Node") == builds[2]

    def test_only_idle_indexes_of_an_alias_that_are_not_served_are_leftovers(self, target: TableTarget) -> None:
        for name in ("Node__1", "Node__2", "Other__1", "Node__x__3", "Node2__1"):
            target.create(name, SPECS)
        target.promote("Node", "Node__2", 1)
        assert target.leftovers("Node", idle_seconds=3600) == []
        assert target.leftovers("Node", idle_seconds=0) == ["Node__1"]
        assert target.leftovers("Nothing", idle_seconds=0) == []
