"""Promises of a target for tables about several rows of one key, in whatever order they come."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from instep.errors import Fenced, UserError
from instep.targets.table_target import TableTarget
from instep.testing.table_rows import Edge, Node, OnTables, Row, edges, nodes, put, staged

#: Versions of one row, the one that stays first: a higher version, then that which is there.
VERSIONS = (
    Node(1, None, 30, deleted=True),
    Node(1, "equal to a deletion", 20),
    Node(1, None, 20, deleted=True),
    Node(1, "oldest", -(10**15)),
)


def winner(rows: Sequence[Node]) -> dict[int, str | None]:
    best = min(rows, key=VERSIONS.index)
    return {} if best.deleted else {1: best.title}


class MergingContract(OnTables):
    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    def test_in_any_order_of_arrival_the_newest_row_stays(self, target: TableTarget, index: str, upkeep: bool) -> None:
        """All orders of two to four versions, each in a commit of its own."""
        orders = [order for n in (2, 3, 4) for order in itertools.permutations(VERSIONS, n)]
        for step in range(4):
            # One commit for all of them: each order has a key of its own.
            rows = [order[step]._replace(id=number) for number, order in enumerate(orders) if step < len(order)]
            put(target, index, *rows, epoch=1, attempt=f"{step}")
            if upkeep:
                target.maintain(index, full=True)
            assert nodes(target, index) == {
                number: title for number, order in enumerate(orders) for title in winner(order[: step + 1]).values()
            }

    def test_several_versions_in_one_commit(self, target: TableTarget, index: str) -> None:
        """In one batch, in batches of one task, and in several tasks."""
        base = target.fence(index, 1)
        orders = list(itertools.permutations(VERSIONS, 3))
        expected = {number: title for number, order in enumerate(orders) for title in winner(order).values()}
        columns = list(zip(*([row._replace(id=n) for row in order] for n, order in enumerate(orders)), strict=True))
        parts = [staged(target, index, base, *column) for column in columns]
        target.commit(index, base=base, epoch=1, attempt="1", staged=parts, marks=[])
        assert nodes(target, index) == expected
        flat = [row._replace(id=row.id + 100) for column in columns for row in column]
        random.Random(1).shuffle(flat)
        put(target, index, *flat, epoch=1, attempt="2")
        assert nodes(target, index) == expected | {number + 100: title for number, title in expected.items()}

    def test_at_equal_version_the_later_epoch_wins(self, target: TableTarget, index: str) -> None:
        for epoch, title in ((1, "first"), (2, "second"), (3, "third")):
            put(target, index, Node(1, title, 5), Edge(1, epoch, 5), epoch=epoch, attempt=title)
            assert (nodes(target, index), edges(target, index)) == ({1: title}, {1: epoch})
        put(target, index, Node(1, None, 5, deleted=True), epoch=4, attempt="4")
        target.maintain(index, full=True)
        assert nodes(target, index) == {1: "third"}

    def test_a_deleted_row_is_not_resurrected_by_an_older_one_however_late(
        self, target: TableTarget, index: str
    ) -> None:
        put(target, index, Node(1, None, 20, deleted=True), Node(2, "two", 1), epoch=1, attempt="1")
        for epoch in range(2, 5):
            target.maintain(index, full=True)
            put(target, index, Node(1, "late", 19), epoch=epoch, attempt=f"{epoch}")
            assert nodes(target, index) == {2: "two"}
            assert target.row(index, [1]) is None
        put(target, index, Node(1, "again", 21), epoch=5, attempt="5")
        assert nodes(target, index) == {1: "again", 2: "two"}

    def test_a_changed_foreign_key_leaves_no_stale_edge(self, target: TableTarget, index: str) -> None:
        put(target, index, Edge(1, 10, 1), Edge(2, 10, 1), epoch=1, attempt="1")
        put(target, index, Edge(1, 11, 2), Edge(2, None, 2, deleted=True), epoch=1, attempt="2")
        assert edges(target, index) == {1: 11}

    def test_versions_at_the_ends_of_their_range(self, target: TableTarget, index: str) -> None:
        lowest, highest = -(2**63), 2**63 - 1
        put(target, index, Node(1, "highest", highest), Node(2, "lowest", lowest), epoch=1, attempt="1")
        put(target, index, Node(1, "lowest", lowest), Node(2, "next", lowest + 1), epoch=2, attempt="2")
        assert nodes(target, index) == {1: "highest", 2: "next"}

    def test_random_histories_end_as_the_model_says(self, target: TableTarget, index: str) -> None:
        chance = random.Random(7)
        best: dict[int, tuple[int, bool, int, str]] = {}
        for epoch in range(1, 13):
            rows: list[Node] = []
            for number in range(60):
                row = Node(chance.randrange(40), f"{epoch}-{number}", chance.randrange(8), chance.random() < 0.3)
                if any((row.id, row.version, row.deleted) == (one.id, one.version, one.deleted) for one in rows):
                    continue  # Of two such rows of one epoch either may stay.
                rows.append(row)
                rank = (row.version, not row.deleted, epoch, str(row.title))
                best[row.id] = max(best.get(row.id, rank), rank)
            chance.shuffle(rows)
            base = target.fence(index, epoch)
            parts = [staged(target, index, base, *rows[at::3]) for at in range(3)]
            target.commit(index, base=base, epoch=epoch, attempt=f"{epoch}", staged=parts, marks=[])
            if epoch % 4 == 0:
                target.maintain(index, full=True)
            assert nodes(target, index) == {key: title for key, (_, live, _, title) in best.items() if live}

    # -- namespaces and instances --------------------------------------------------------------

    def test_a_row_that_moves_to_another_namespace_stays_one(self, target: TableTarget, index: str) -> None:
        put(target, index, Node(1, "here", 1, path="1/2/"), Node(2, "here", 1, path="1/4/"), epoch=1, attempt="1")
        put(target, index, Node(1, "there", 2, path="1/3/"), Node(2, "there", 2, path="1/2/"), epoch=1, attempt="2")
        assert nodes(target, index) == {1: "there", 2: "there"}
        target.delete_scope(index, "1/2/", epoch=1)
        assert nodes(target, index) == {1: "there"}
        target.delete_scope(index, "1/3/", epoch=1)
        target.maintain(index, full=True)
        assert nodes(target, index) == {}

    def test_a_namespace_is_deleted_with_all_below_it_and_nothing_else(self, target: TableTarget, index: str) -> None:
        paths = ["1/2/", "1/2/3/", "1/20/", "11/2/", "1/"]
        rows = [Node(n, path, 1, path=path) for n, path in enumerate(paths)]
        put(target, index, *rows, *(Edge(n, n, 1, path=path) for n, path in enumerate(paths)), epoch=1, attempt="1")
        target.delete_scope(index, "1/2/", epoch=1)
        assert nodes(target, index) == {2: "1/20/", 3: "11/2/", 4: "1/"}
        assert edges(target, index) == {2: 2, 3: 3, 4: 4}
        put(target, index, Node(0, "again", 1, path="1/2/"), epoch=2, attempt="2")
        assert nodes(target, index) == {0: "again", 2: "1/20/", 3: "11/2/", 4: "1/"}
        for wrong in ("", "1/2", "%"):
            with pytest.raises(UserError):
                target.delete_scope(index, wrong, epoch=2)

    def test_what_is_remembered_of_deleted_rows_goes_with_their_namespace(
        self, target: TableTarget, index: str
    ) -> None:
        """A source that was restored has rows again that were deleted, with earlier versions: a namespace that is
        built from nothing has them.
        """
        paths = {1: "1/2/", 2: "1/2/3/", 3: "1/20/"}
        rows = [Node(id, "deleted", 20, deleted=True, path=path) for id, path in paths.items()]
        edges_of = [Edge(id, id, 20, deleted=True, path=path) for id, path in paths.items()]
        put(target, index, *rows, *edges_of, Node(4, "four", 1, path="1/2/"), epoch=1, attempt="1")
        target.delete_scope(index, "1/2/", epoch=1)
        assert (nodes(target, index), edges(target, index)) == ({}, {})
        target.maintain(index, full=True)
        again = [Node(id, "again", 19, path=path) for id, path in paths.items()]
        put(target, index, *again, *(Edge(id, id, 19, path=path) for id, path in paths.items()), epoch=2, attempt="2")
        assert nodes(target, index) == {1: "again", 2: "again"}
        assert edges(target, index) == {1: 1, 2: 2}

    def test_rows_of_other_instances_are_swept(self, target: TableTarget, index: str) -> None:
        old: list[Row] = [Node(1, "old", 1), Node(2, "old", 1), Node(3, "old", 1, path="2/"), Edge(1, 1, 1)]
        put(target, index, *old, epoch=1, attempt="1", instance="a")
        put(target, index, Node(1, "new", 1), epoch=2, attempt="2", instance="b")
        target.sweep(index, "b", epoch=2, prefix="1/")
        assert nodes(target, index) == {1: "new", 3: "old"}
        assert edges(target, index) == {}
        target.sweep(index, "b", epoch=2)
        assert nodes(target, index) == {1: "new"}

    def test_a_zombie_deletes_nothing(self, target: TableTarget, index: str) -> None:
        put(target, index, Node(1, "one", 1), epoch=2, attempt="1")
        with pytest.raises(Fenced):
            target.delete_scope(index, "1/", epoch=1)
        with pytest.raises(Fenced):
            target.sweep(index, "other", epoch=1)
        assert nodes(target, index) == {1: "one"}
