"""Promises of a target for tables to many writers: attempts, marks, and fences that keep zombies out."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator, Sequence

import pytest

from instep.domain.waves import Mark
from instep.errors import Fenced
from instep.targets.table_target import TableTarget
from instep.testing.table_rows import SPECS, Edge, Node, OnTables, commit_rows, edges, nodes, put, staged


class TableWritersContract(OnTables):
    def test_a_replayed_attempt_changes_nothing(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        parts = [staged(target, index, base, Node(1, "one", 1), Edge(1, 2, 1))]
        marks = [Mark("s1", 1, b"outcome")]
        versions = {
            target.commit(index, base=base, epoch=1, attempt="same", staged=parts, marks=marks) for _ in range(3)
        }
        assert all(version > base for version in versions)
        target.maintain(index)
        target.commit(index, base=base, epoch=1, attempt="same", staged=parts, marks=marks)
        assert (nodes(target, index), edges(target, index)) == ({1: "one"}, {1: 2})

    def test_the_same_rows_in_another_attempt_change_nothing(self, target: TableTarget, index: str) -> None:
        for attempt in ("1", "2", "3"):
            put(
                target,
                index,
                Node(1, "one", 1),
                Node(2, None, 1, deleted=True),
                Edge(1, 2, 1),
                epoch=1,
                attempt=attempt,
            )
        assert (nodes(target, index), edges(target, index)) == ({1: "one"}, {1: 2})

    def test_a_version_that_a_commit_made_is_a_base(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        for number in range(3):
            parts = [staged(target, index, base, Node(number, "x", 1), Edge(number, 1, 1))]
            marks = [Mark(f"s{number}", 1, b"-")]
            made = target.commit(index, base=base, epoch=1, attempt=f"{number}", staged=parts, marks=marks)
            assert target.committed(index, base, ["s0", "s1", "s2"]) == {f"s{number}": b"-"}
            base = made
            target.maintain(index, full=True)
        target.fence(index, 1, [Mark("s9", 2, b"")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="x", staged=[], marks=[Mark("s9", 1, b"")])
        assert nodes(target, index) == dict.fromkeys(range(3), "x")

    def test_committed_returns_the_outcomes(self, target: TableTarget, index: str) -> None:
        first = target.fence(index, 1)
        put(
            target, index, Node(1, "1", 1), epoch=1, attempt="1", marks=[Mark("s1", 1, b"\x00one"), Mark("s2", 1, b"2")]
        )
        second = target.fence(index, 1)
        put(target, index, Node(2, "2", 1), epoch=1, attempt="2", marks=[Mark("s3", 1, b"")])
        target.maintain(index)
        assert target.committed(index, first, ["s1", "s2", "s3", "s4"]) == {"s1": b"\x00one", "s2": b"2", "s3": b""}
        assert target.committed(index, second, ["s1", "s3"]) == {"s3": b""}
        assert target.committed(index, first, []) == {}

    def test_a_fence_mark_is_no_outcome(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        target.fence(index, 2, [Mark("s1", 2, b"")])
        assert target.committed(index, base, ["s1"]) == {}

    def test_an_attempt_without_changes_is_still_marked(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        empty = target.writer(index, base).stage(iter([]))
        target.commit(index, base=base, epoch=1, attempt="1", staged=[empty], marks=[Mark("s1", 1, b"nothing")])
        target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=[Mark("s2", 1, b"-")])
        assert target.committed(index, base, ["s1", "s2"]) == {"s1": b"nothing", "s2": b"-"}

    def test_many_slices_and_large_outcomes(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        outcome = bytes(range(256)) * 4_000
        marks = [Mark("s1", 1, outcome), Mark("s2", 1, outcome[::-1]), *(Mark(f"m{n}'\\", 1, b"m") for n in range(500))]
        target.commit(index, base=base, epoch=1, attempt="1", staged=[], marks=marks)
        assert target.committed(index, base, [mark.slice_id for mark in marks]) == {
            mark.slice_id: mark.outcome for mark in marks
        }
        target.fence(index, 1, [mark._replace(fence=2, outcome=b"") for mark in marks[400:]])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=marks)

    def test_a_zombie_of_an_older_epoch_is_refused_and_not_visible(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        parts = [staged(target, index, base, Node(1, "zombie", 99), Edge(1, 1, 99))]
        target.fence(index, 2)
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=parts, marks=[Mark("s1", 1, b"z")])
        with pytest.raises(Fenced):
            target.fence(index, 1)
        assert (nodes(target, index), edges(target, index)) == ({}, {})
        assert target.committed(index, base, ["s1"]) == {}

    def test_a_zombie_with_an_older_fence_of_a_slice_is_refused(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        parts = [staged(target, index, base, Node(1, "zombie", 99), Edge(1, 1, 99))]
        target.fence(index, 1, [Mark("s1", 2, b"")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=parts, marks=[Mark("s1", 1, b"z")])
        with pytest.raises(Fenced):
            target.fence(index, 1, [Mark("s1", 1, b"")])
        target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=[Mark("other", 1, b"fine")])
        zombies = ({}, {}) if self.apart else ({1: "zombie"}, {1: 1})
        assert (nodes(target, index), edges(target, index)) == zombies

    def test_of_several_marks_of_a_slice_the_highest_fence_counts(self, target: TableTarget, index: str) -> None:
        target.fence(index, 1, [Mark("s1", 2, b"")])
        target.fence(index, 1, [Mark("s1", 1, b""), Mark("s1", 3, b"")])
        with pytest.raises(Fenced):
            target.fence(index, 1, [Mark("s1", 1, b""), Mark("s1", 2, b"")])

    def test_a_commit_before_the_fence_is_found_by_the_next_claim(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        parts = [staged(target, index, base, Node(1, "first", 1))]
        commit = {"base": base, "epoch": 1, "attempt": "1", "marks": [Mark("s", 1, b"first")]}
        target.commit(index, staged=parts, **commit)  # type: ignore[arg-type]  # a plain dict
        target.fence(index, 1, [Mark("s", 2, b"")])
        assert target.committed(index, base, ["s"]) == {"s": b"first"}
        # A lost reply: the same commit again, by who does not know that it was taken over. No harm.
        target.commit(index, staged=parts, **commit)  # type: ignore[arg-type]  # a plain dict
        assert nodes(target, index) == {1: "first"}

    def test_a_commit_under_a_newer_fence_refuses_the_older_one_by_itself(
        self, target: TableTarget, index: str
    ) -> None:
        base = target.fence(index, 1)
        zombies = [staged(target, index, base, Node(1, "zombie", 1), Edge(1, 1, 1))]
        holders = [staged(target, index, base, Node(1, "holder", 1))]
        target.commit(index, base=base, epoch=1, attempt="2", staged=holders, marks=[Mark("s", 2, b"holder")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=zombies, marks=[Mark("s", 1, b"zombie")])
        assert (nodes(target, index), edges(target, index)) == ({1: "holder"}, {} if self.apart else {1: 1})

    @pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.proof)])
    @pytest.mark.parametrize("by", ["epoch", "fence of the slice"])
    def test_every_interleaving_of_two_writers_ends_as_if_one_had_run(
        self, target: TableTarget, index: str, by: str, share: int
    ) -> None:
        orders = sorted(set(itertools.permutations("AABBB")))
        assert len(orders) == 10
        some = orders[::share]
        fenced = sum(self._interleave(target, f"{index}-{n}", order, by) for n, order in enumerate(some))
        assert 0 < fenced < len(some)

    def _interleave(self, target: TableTarget, index: str, order: Sequence[str], by: str) -> bool:
        """Both write the same rows; A read the source earlier, and belongs to the past once B has fenced. True if A
        was refused.
        """
        target.create(index, SPECS)
        put(target, index, Node(1, "old", 1), Node(2, "old", 1), Edge(1, 1, 1), epoch=1, attempt="0")
        epochs = {"A": 1, "B": 2 if by == "epoch" else 1}
        marks = {"A": [Mark("s", 1, b"a")], "B": [Mark("s", 2, b"b")]}
        rows = {
            "A": (Node(1, "A", 5), Node(2, "A", 5), Edge(1, 5, 5)),
            "B": (Node(1, "B", 5), Node(2, None, 6, deleted=True), Edge(1, None, 6, deleted=True)),
        }
        begun = target.fence(index, 1, marks["A"])
        refused = []

        def steps(name: str, base: int | None) -> Iterator[None]:
            if base is None:
                base = target.fence(index, epochs[name], marks[name])
                yield
            try:
                parts = [staged(target, index, base, *rows[name])]
            except Fenced:
                assert not self.apart
                refused.append(name)
                yield
                yield
                return
            yield
            try:
                target.commit(index, base=base, epoch=epochs[name], attempt=name, staged=parts, marks=marks[name])
            except Fenced:
                refused.append(name)
            yield

        running = {"A": steps("A", begun), "B": steps("B", None)}
        for name in order:
            next(running[name])
        assert "B" not in refused
        assert (nodes(target, index), edges(target, index)) == ({1: "B"}, {}), order
        assert target.committed(index, begun, ["s"]) == {"s": b"b"}
        return "A" in refused

    @pytest.mark.proof
    def test_concurrent_committers_all_land(self, target: TableTarget, index: str) -> None:
        base = target.fence(index, 1)
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=commit_rows, args=(target, index, base, n, 5)) for n in range(3)]
        for each in workers:
            each.start()
        for each in workers:
            each.join(300)
        assert [each.exitcode for each in workers] == [0] * 3
        names = [f"w{worker}-{number}" for worker in range(3) for number in range(5)]
        assert target.committed(index, base, names) == {name: name.encode() for name in names}
        assert edges(target, index) == dict.fromkeys(range(3), 4)
        assert nodes(target, index) == {n: f"w{n}-4" for n in range(3)} | {
            1000 * (worker + 1) + number: f"w{worker}-{number}" for worker in range(3) for number in range(5)
        }
