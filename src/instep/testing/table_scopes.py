"""Promises of a target for tables to several partitions that share an index."""

from __future__ import annotations

import pytest

from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced, UserError
from instep.targets.table_target import Held, TableTarget
from instep.testing.table_rows import SPECS, Edge, Node, OnTables, Row, edges, nodes, put, staged, staged_moves

HERE, THERE = "1/2/", "1/3/"


class TableScopesContract(OnTables):
    def test_partitions_take_turns_and_do_not_fence_each_other(self, target: TableTarget, index: str) -> None:
        """Their epochs and fences are their own; versions of the index are shared."""
        bases = {HERE: target.within(HERE).fence(index, 9), THERE: target.within(THERE).fence(index, 3)}
        for turn in range(3):
            for number, (scope, epoch) in enumerate({HERE: 9, THERE: 3}.items()):
                key, mark = 10 * number + turn, Mark(f"{scope}{turn}", 1, scope.encode())
                rows = Node(key, scope, 1, path=scope), Edge(key, turn, 1, path=scope)
                parts = [staged(target, index, bases[scope], *rows)]
                bases[scope] = target.within(scope).commit(
                    index, base=bases[scope], epoch=epoch, attempt=f"{key}", staged=parts, marks=[mark]
                )
            target.maintain(index, full=True)
        assert [target.within(each).epoch(index) for each in (HERE, THERE, "1/4/")] == [9, 3, 0]
        assert nodes(target, index) == {0: HERE, 1: HERE, 2: HERE, 10: THERE, 11: THERE, 12: THERE}
        assert edges(target, index) == {0: 0, 1: 1, 2: 2, 10: 0, 11: 1, 12: 2}

    def test_a_zombie_of_one_partition_is_refused_while_the_other_continues(
        self, target: TableTarget, index: str
    ) -> None:
        base = target.within(HERE).fence(index, 5)
        zombie = [staged(target, index, base, Node(1, "zombie", 99, path=HERE), Edge(1, 1, 99, path=HERE))]
        put(target, index, Node(2, "two", 1, path=THERE), epoch=1, attempt="1", scope=THERE)
        target.within(HERE).fence(index, 6)
        put(target, index, Node(3, "three", 1, path=THERE), epoch=2, attempt="2", scope=THERE)
        with pytest.raises(Fenced):
            target.within(HERE).commit(index, base=base, epoch=5, attempt="3", staged=zombie, marks=[])
        with pytest.raises(Fenced):
            target.within(HERE).fence(index, 5)
        with pytest.raises(Fenced):
            target.within(THERE).fence(index, 1)
        for delete in (target.within(HERE).delete_scope, target.within(HERE).sweep):
            with pytest.raises(Fenced):
                delete(index, THERE, epoch=5)
        put(target, index, Node(4, "four", 1, path=HERE), epoch=6, attempt="4", scope=HERE)
        zombies = ({}, {}) if self.apart else ({1: "zombie"}, {1: 1})
        assert (nodes(target, index), edges(target, index)) == (
            {2: "two", 3: "three", 4: "four"} | zombies[0],
            zombies[1],
        )

    def test_a_slice_that_is_claimed_again_fences_its_own_holder_only(self, target: TableTarget, index: str) -> None:
        base = target.within(HERE).fence(index, 1)
        target.within(THERE).fence(index, 7)
        target.within(HERE).fence(index, 1, [Mark("here", 2, b"")])
        with pytest.raises(Fenced):
            target.within(HERE).commit(index, base=base, epoch=1, attempt="1", staged=[], marks=[Mark("here", 1, b"")])
        target.within(THERE).commit(index, base=base, epoch=7, attempt="2", staged=[], marks=[Mark("there", 1, b"-")])
        assert target.committed(index, base, ["here", "there"]) == {"there": b"-"}

    def test_a_namespace_is_swept_and_deleted_under_its_own_epoch(self, target: TableTarget, index: str) -> None:
        for number, (scope, epoch) in enumerate({HERE: 8, THERE: 2}.items()):
            rows = Node(number, "old", 1, path=scope), Edge(number, 1, 1, path=scope)
            put(target, index, *rows, epoch=epoch, attempt=scope, scope=scope, instance=scope)
        put(target, index, Node(5, "new", 1, path=THERE), epoch=3, attempt="new", scope=THERE, instance="new")
        target.within(THERE).sweep(index, "new", epoch=3, prefix=THERE)
        assert (nodes(target, index), edges(target, index)) == ({0: "old", 5: "new"}, {0: 1})
        target.within(HERE).delete_scope(index, HERE, epoch=8)
        assert (nodes(target, index), edges(target, index)) == ({5: "new"}, {})

    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    def test_rows_of_a_namespace_are_counted_by_instance(self, target: TableTarget, index: str, upkeep: bool) -> None:
        """As a reader finds them: what lost against what is stored is not there."""
        assert target.held(index, "new", prefix=HERE) == Held(0, 0)
        old = [Node(number, "old", 5, path=f"{HERE}{number}/") for number in range(4)]
        put(target, index, *old, Edge(1, 1, 5, path=HERE), epoch=1, attempt="1", scope=HERE, instance="old")
        put(target, index, Node(9, "there", 5, path=THERE), epoch=1, attempt="2", scope=THERE, instance="there")
        put(target, index, Node(8, "no namespace", 5, path=None), epoch=1, attempt="3", instance="there")
        assert target.held(index, "old", prefix=HERE) == Held(4, 0)
        new = [
            Node(0, "the same version", 5, path=HERE),
            Node(1, "older", 4, path=HERE),
            Node(2, None, 6, deleted=True, path=HERE),
            Node(4, "new", 1, path=HERE),
            Node(5, None, 1, deleted=True, path=HERE),
        ]
        put(target, index, *new, epoch=2, attempt="4", scope=HERE, instance="new")
        if upkeep:
            target.maintain(index, full=True)
        assert target.held(index, "new", prefix=HERE) == Held(2, 2)
        assert target.held(index, "new", prefix="1/") == Held(2, 3)
        assert target.held(index, "new") == Held(2, 4)
        assert target.held(index, "unknown", prefix="1/20/") == Held(0, 0)
        with pytest.raises(UserError):
            target.held(index, "new", prefix="1/2")
        target.within(HERE).sweep(index, "new", epoch=2, prefix=HERE)
        assert target.held(index, "new", prefix=HERE) == Held(2, 0)

    # -- rows that move ------------------------------------------------------------------------

    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    def test_a_row_that_moved_is_left_alone_by_the_namespace_it_left(
        self, target: TableTarget, index: str, upkeep: bool
    ) -> None:
        """Whatever that does afterwards: read late what was, rebuild, or be deleted."""
        put(target, index, Node(1, "here", 5, path=HERE), epoch=9, attempt="1", scope=HERE, instance="a")
        put(target, index, Node(1, "there", 6, path=THERE), epoch=1, attempt="2", scope=THERE, instance="b")
        late = Node(1, "late", 5, path=HERE), Node(1, None, 5, deleted=True, path=HERE)
        for number, row in enumerate(late):
            put(target, index, row, epoch=10 + number, attempt=f"late-{number}", scope=HERE, instance="a")
            if upkeep:
                target.maintain(index, full=True)
            assert nodes(target, index) == {1: "there"}
        target.within(HERE).sweep(index, "rebuilt", epoch=12, prefix=HERE)
        assert nodes(target, index) == {1: "there"}
        target.within(HERE).delete_scope(index, HERE, epoch=12)
        target.maintain(index, full=True)
        assert nodes(target, index) == {1: "there"}
        assert [each["path"] for each in target.read(index).to_pylist()] == [THERE]
        target.within(THERE).delete_scope(index, THERE, epoch=1)
        assert nodes(target, index) == {}

    def test_of_a_deletion_and_an_insertion_at_one_watermark_the_insertion_stays(
        self, target: TableTarget, index: str
    ) -> None:
        """Deleted here and inserted there, in one transaction: in any order, and under any epochs."""
        gone, there = Node(1, None, 5, deleted=True, path=HERE), Node(1, "there", 5, path=THERE)
        orders = [(HERE, THERE), (THERE, HERE)]
        for key, order in enumerate(orders):
            put(target, index, Node(key, "here", 4, path=HERE), epoch=9, attempt=f"{key}", scope=HERE)
            for scope in order:
                row = (gone if scope == HERE else there)._replace(id=key)
                put(target, index, row, epoch=9 if scope == HERE else 1, attempt=f"{key}{scope}", scope=scope)
            assert nodes(target, index) == dict.fromkeys(range(key + 1), "there")

    def test_of_two_partitions_at_one_watermark_the_later_one_stays(self, target: TableTarget, index: str) -> None:
        for number, (scope, epoch) in enumerate([(HERE, 9), (THERE, 1), (HERE, 10)]):
            put(target, index, Node(1, scope, 5, path=scope), epoch=epoch, attempt=f"{number}", scope=scope)
            target.maintain(index, full=number == 1)
            assert nodes(target, index) == {1: scope}

    # -- rows that leave for a namespace that is not indexed --------------------------------------------

    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    def test_a_row_that_leaves_is_deleted_where_it_was_and_no_other(
        self, target: TableTarget, index: str, upkeep: bool
    ) -> None:
        here = [Node(number, "here", 5, path=f"{HERE}{number}/") for number in range(5)]
        put(target, index, *here, Edge(1, 1, 5, path=HERE), Edge(2, 2, 5, path=HERE), epoch=9, attempt="1", scope=HERE)
        put(target, index, Node(7, "there", 5, path=THERE), epoch=1, attempt="2", scope=THERE)
        put(target, index, Node(4, None, 6, deleted=True, path=HERE), epoch=9, attempt="3", scope=HERE)
        if upkeep:
            target.maintain(index, full=True)
        base = target.within(HERE).fence(index, 9)
        moves: list[Row] = [
            Node(1, None, 6),
            Node(2, None, 5),  # what is there was read at the same moment, or later
            Node(3, None, 4),
            Node(4, None, 7),  # is not there any more
            Node(7, None, 9),  # is another's
            Node(99, None, 9),  # never was there
            Edge(1, None, 6, path=HERE),
        ]
        parts = [staged_moves(target, index, base, *moves), staged(target, index, base, Node(5, "new", 6, path=HERE))]
        assert target.within(HERE).leaving(index, parts) == 1
        assert target.within(THERE).leaving(index, parts) == 1
        assert target.within(HERE).leaving(index, parts[1:]) == 0
        assert nodes(target, index) == {0: "here", 1: "here", 2: "here", 3: "here", 7: "there"}
        for _ in range(2):
            target.within(HERE).commit(index, base=base, epoch=9, attempt="4", staged=parts, marks=[])
            assert nodes(target, index) == {0: "here", 2: "here", 3: "here", 5: "new", 7: "there"}
            assert edges(target, index) == {2: 2}
        if upkeep:
            target.maintain(index, full=True)
            assert target.rows(index) == 5
        # An older version that comes late changes nothing; the row that comes back is there.
        put(target, index, Node(1, "late", 5, path=HERE), epoch=10, attempt="5", scope=HERE)
        put(
            target, index, Node(99, "came", 1, path=HERE), epoch=10, attempt="6", scope=HERE
        )  # of which nothing is known
        assert nodes(target, index) == {0: "here", 2: "here", 3: "here", 5: "new", 7: "there", 99: "came"}
        put(target, index, Node(1, "back", 7, path=HERE), epoch=10, attempt="7", scope=HERE)
        assert nodes(target, index)[1] == "back"

    def test_of_versions_that_leave_and_stay_in_one_commit_the_latest_counts(
        self, target: TableTarget, index: str
    ) -> None:
        """A source may have several versions of a row: it came and left, left and came back, left twice."""
        put(target, index, Node(2, "old", 1, path=HERE), Node(3, "old", 1, path=HERE), epoch=1, attempt="1", scope=HERE)
        base = target.within(HERE).fence(index, 1)
        came = [Node(1, "came", 5, path=HERE), Node(2, "back", 6, path=HERE), Node(4, "came", 5, path=HERE)]
        left = [Node(1, None, 6), Node(2, None, 5), Node(3, None, 5), Node(3, None, 6), Node(4, None, 5)]
        parts = [staged_moves(target, index, base, *left), staged(target, index, base, *came)]
        assert target.within(HERE).leaving(index, parts) == 2
        target.within(HERE).commit(index, base=base, epoch=1, attempt="2", staged=parts, marks=[])
        assert nodes(target, index) == {2: "back", 4: "came"}
        target.maintain(index, full=True)
        assert nodes(target, index) == {2: "back", 4: "came"}

    def test_a_row_that_left_is_there_in_a_namespace_that_is_built_later(self, target: TableTarget, index: str) -> None:
        put(target, index, Node(1, "here", 5, path=HERE), epoch=1, attempt="1", scope=HERE)
        base = target.within(HERE).fence(index, 1)
        parts = [staged_moves(target, index, base, Node(1, None, 6))]
        target.within(HERE).commit(index, base=base, epoch=1, attempt="2", staged=parts, marks=[])
        assert nodes(target, index) == {}
        put(target, index, Node(1, "there", 6, path=THERE), epoch=1, attempt="3", scope=THERE)
        assert nodes(target, index) == {1: "there"}

    def test_a_forgotten_move_loses_to_the_row_in_its_new_namespace_in_either_order(
        self, target: TableTarget, index: str
    ) -> None:
        """Versions tell when a row was written here, and waves of two namespaces begin and end in any order."""
        was = [Node(number, "here", 5, path=HERE) for number in (1, 2, 3)]
        put(target, index, *was, Edge(1, 1, 5, path=HERE), Edge(2, 2, 5, path=HERE), epoch=1, attempt="1", scope=HERE)
        put(target, index, Node(2, "there", 10, path=THERE), epoch=1, attempt="2", scope=THERE)
        base = target.within(HERE).fence(index, 1)
        left: list[Row] = [Node(number, None, 11) for number in (1, 2, 3, 99)]
        left += [Edge(1, None, 11, path=HERE), Edge(2, None, 11, path=HERE)]
        parts = [staged_moves(target, index, base, *left, moved="forgotten")]
        assert target.within(HERE).leaving(index, parts) == 2
        for _ in range(2):
            target.within(HERE).commit(index, base=base, epoch=1, attempt="3", staged=parts, marks=[])
            assert nodes(target, index) == {2: "there"}
            assert edges(target, index) == {}
        came: list[Row] = [
            Node(1, "there", 10, path=THERE),
            Node(99, "there", 1, path=THERE),
            Edge(1, 2, 10, path=THERE),
        ]
        put(target, index, *came, Edge(1, 2, 10, path=THERE), epoch=1, attempt="4", scope=THERE)
        assert nodes(target, index) == {1: "there", 2: "there", 99: "there"}
        assert edges(target, index) == {1: 2}
        target.maintain(index, full=True)
        assert nodes(target, index) == {1: "there", 2: "there", 99: "there"}

    def test_a_forgotten_move_deletes_a_row_of_a_later_version_where_it_was(
        self, target: TableTarget, index: str
    ) -> None:
        put(
            target,
            index,
            Node(1, "here", 12, path=HERE),
            Node(2, "here", 12, path=HERE),
            epoch=1,
            attempt="1",
            scope=HERE,
        )
        base = target.within(HERE).fence(index, 1)
        came = staged(target, index, base, Node(3, "came", 11, path=HERE))
        parts = [staged_moves(target, index, base, Node(1, None, 11), moved="forgotten"), came]
        assert target.within(HERE).leaving(index, parts) == 1
        target.within(HERE).commit(index, base=base, epoch=1, attempt="2", staged=parts, marks=[])
        assert nodes(target, index) == {2: "here", 3: "came"}
        put(target, index, Node(1, "back", 13, path=HERE), epoch=1, attempt="3", scope=HERE)
        assert nodes(target, index) == {1: "back", 2: "here", 3: "came"}

    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    def test_a_row_that_leaves_may_be_written_where_it_is_now_by_the_same_commit(
        self, target: TableTarget, index: str, upkeep: bool
    ) -> None:
        """A later version that is there stays."""
        was = [Node(number, "here", 5, path=HERE) for number in (1, 2, 3)]
        put(target, index, *was, Edge(1, 1, 5, path=HERE), Edge(2, 1, 5, path=HERE), epoch=1, attempt="1", scope=HERE)
        there = Node(3, "later", 12, path=THERE), Edge(3, 3, 12, path=THERE)
        put(target, index, *there, epoch=1, attempt="2", scope=THERE)
        base = target.within(HERE).fence(index, 1)
        left: list[Row] = [Node(number, None, 11) for number in (1, 2, 3, 4)]
        left += [Edge(number, None, 11, path=HERE) for number in (1, 2, 3, 4)]
        now: list[Row] = [
            Node(1, "now", 11, path=THERE),
            Node(3, "now", 11, path=THERE),
            Node(4, "now", 11, path=THERE),
        ]
        now += [Edge(1, 2, 11, path=THERE), Edge(3, 2, 11, path=THERE)]
        parts = [staged_moves(target, index, base, *left, moved="forgotten"), staged(target, index, base, *now)]
        for _ in range(2):
            target.within(HERE).commit(index, base=base, epoch=1, attempt="3", staged=parts, marks=[])
            assert nodes(target, index) == {1: "now", 3: "later", 4: "now"}
            assert edges(target, index) == {1: 2, 3: 3}
            if upkeep:
                target.maintain(index, full=True)
        put(target, index, Node(1, "next", 13, path=THERE), epoch=1, attempt="4", scope=THERE)
        assert nodes(target, index) == {1: "next", 3: "later", 4: "now"}

    def test_a_zombie_deletes_no_row_that_leaves(self, target: TableTarget, index: str) -> None:
        put(target, index, Node(1, "here", 5, path=HERE), epoch=1, attempt="1", scope=HERE)
        base = target.within(HERE).fence(index, 1)
        parts = [staged_moves(target, index, base, Node(1, None, 6))]
        target.within(HERE).fence(index, 2)
        with pytest.raises(Fenced):
            target.within(HERE).commit(index, base=base, epoch=1, attempt="2", staged=parts, marks=[])
        assert nodes(target, index) == {1: "here"}

    # -- aliases -------------------------------------------------------------------------------

    @pytest.fixture
    def builds(self, target: TableTarget) -> tuple[str, str, str]:
        names = ("Node__a", "Node__b", "Node__c")
        for name in names:
            target.create(name, SPECS)
        return names

    def test_any_partition_moves_the_alias_with_its_own_epoch(
        self, target: TableTarget, builds: tuple[str, str, str]
    ) -> None:
        moves = [(HERE, 9, 0), (THERE, 1, 1), (HERE, 10, 2), (THERE, 2, 0), ("1/4/", 1, 1)]
        for scope, epoch, number in moves:
            target.within(scope).promote("Node", builds[number], epoch)
            assert target.served("Node") == builds[number]
        with pytest.raises(Conflict):
            target.within("1/4/").promote("Node", builds[0], 1)
        target.within("1/4/").promote("Node", None, 2)
        assert target.served("Node") is None

    def test_a_late_move_of_an_older_epoch_changes_nothing(
        self, target: TableTarget, builds: tuple[str, str, str]
    ) -> None:
        old, new, newest = builds
        target.within(HERE).promote("Node", old, 5)
        target.within(HERE).promote("Node", new, 6)
        target.within(THERE).promote("Node", newest, 1)
        with pytest.raises(Fenced):
            target.within(HERE).promote("Node", old, 5)
        # Its reply was lost, say: it took effect, and is over.
        target.within(HERE).promote("Node", new, 6)
        assert target.served("Node") == newest

    def test_a_late_first_move_by_a_fenced_worker_is_refused(
        self, target: TableTarget, builds: tuple[str, str, str]
    ) -> None:
        """The index to which another partition's finisher moved the alias holds rows of a newer epoch of this one."""
        old, new, _ = builds
        for epoch, physical in ((5, old), (6, new)):
            put(target, physical, Node(1, "here", 1, path=HERE), epoch=epoch, attempt="1", scope=HERE)
            put(target, physical, Node(2, "there", 1, path=THERE), epoch=epoch, attempt="2", scope=THERE)
        target.within(THERE).promote("Node", new, 6)
        with pytest.raises(Fenced):
            target.within(HERE).promote("Node", old, 5)
        assert target.served("Node") == new
        target.within(HERE).promote("Node", old, 7)
        assert target.served("Node") == old
