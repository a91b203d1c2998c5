"""Promises of a target to many writers: attempts, marks, and fences that keep zombies out."""

from __future__ import annotations

import itertools
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced
from instep.targets.document_target import DocumentTarget
from instep.testing.target_rows import (
    BUCKETS,
    DIMENSIONS,
    Documents,
    OnOneIndex,
    changes_of,
    commit_slices,
    expected,
    put,
    replaced,
)


class WritersContract(OnOneIndex):
    #: Where indexes take long to make or to open: of the interleavings every so manieth, and fewer rounds of processes.
    every = 1
    rounds = 10

    def test_a_replayed_attempt_changes_nothing(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {"a": ["one"]})]
        marks = [Mark("s1", 1, b"outcome")]
        for _ in range(3):
            target.commit(index, base=base, epoch=1, attempt="same", staged=staged, marks=marks)
        target.maintain(index)
        target.commit(index, base=base, epoch=1, attempt="same", staged=staged, marks=marks)
        assert self.content(target, index) == expected({"a": ["one"]})

    def test_committed_returns_the_outcomes(self, target: DocumentTarget, index: str) -> None:
        first = target.fence(index, 1)
        put(target, index, {"a": ["1"]}, epoch=1, attempt="1", marks=[Mark("s1", 1, b"\x00one"), Mark("s2", 1, b"two")])
        second = target.fence(index, 1)
        put(target, index, {"b": ["2"]}, epoch=1, attempt="2", marks=[Mark("s3", 1, b"")])
        target.maintain(index)
        assert target.committed(index, first, ["s1", "s2", "s3", "s4"]) == {"s1": b"\x00one", "s2": b"two", "s3": b""}
        assert target.committed(index, second, ["s1", "s3"]) == {"s3": b""}
        assert target.committed(index, first, []) == {}

    def test_a_fence_mark_is_no_outcome(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        target.fence(index, 2, [Mark("s1", 2, b"")])
        assert target.committed(index, base, ["s1"]) == {}

    def test_an_attempt_without_changes_is_still_marked(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        empty = target.writer(index, base).stage(iter([]))
        mark = Mark("s1", 1, b"nothing to do")
        target.commit(index, base=base, epoch=1, attempt="1", staged=[empty], marks=[mark])
        target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=[Mark("s2", 1, b"-")])
        assert target.committed(index, base, ["s1", "s2"]) == {"s1": b"nothing to do", "s2": b"-"}

    def test_large_outcomes(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        outcome = bytes(range(256)) * 8_000
        marks = [Mark("s1", 1, outcome), Mark("s2", 1, outcome[::-1])]
        target.commit(index, base=base, epoch=1, attempt="1", staged=[], marks=marks)
        assert target.committed(index, base, ["s1", "s2"]) == {"s1": outcome, "s2": outcome[::-1]}

    def test_a_zombie_of_an_older_epoch_is_refused_and_not_visible(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {"a": ["zombie"]})]
        target.fence(index, 2)
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=staged, marks=[Mark("s1", 1, b"z")])
        with pytest.raises(Fenced):
            target.fence(index, 1)
        assert target.epoch(index) == 2
        assert self.content(target, index) in [Counter(), *self.if_idempotent(target, expected({"a": ["zombie"]}))]
        assert target.committed(index, base, ["s1"]) == {}
        put(target, index, {"a": ["holder"]}, epoch=2, attempt="2", marks=[Mark("s1", 1, b"h")])
        assert self.content(target, index) == expected({"a": ["holder"]})

    def test_a_zombie_that_stages_late_changes_nothing_of_a_newer_epoch(
        self, target: DocumentTarget, index: str
    ) -> None:
        """It is refused when it stages or when it commits. What it wanted to write and to remove stays as it is."""
        old = {"a": ["old 1", "old 2"], "b": ["old"], "c": ["old"]}
        put(target, index, old, epoch=1, attempt="0")
        base = target.fence(index, 1)
        writer = target.writer(index, base)
        stale = writer.existing(list(old))
        new = {"a": ["new 1", "new 2"], "b": ["new"]}  # What it leaves as it is has no trace of it.
        put(target, index, new, epoch=2, attempt="2")

        def late() -> None:
            staged = writer.stage(iter([changes_of({"a": ["zombie"], "b": [], "c": []}, stale)]))
            target.commit(index, base=base, epoch=1, attempt="1", staged=[staged], marks=[])

        with pytest.raises(Fenced):
            late()
        assert self.content(target, index) == expected({**old, **new})

    def test_a_zombie_with_an_older_fence_of_a_slice_is_refused(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {"a": ["zombie"]})]
        target.fence(index, 1, [Mark("s1", 2, b"")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=staged, marks=[Mark("s1", 1, b"z")])
        with pytest.raises(Fenced):
            target.fence(index, 1, [Mark("s1", 1, b"")])
        target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=[Mark("other", 1, b"fine")])
        assert self.content(target, index) in [Counter(), *self.if_idempotent(target, expected({"a": ["zombie"]}))]
        put(target, index, {"a": ["holder"]}, epoch=1, attempt="3", marks=[Mark("s1", 2, b"h")])
        assert self.content(target, index) == expected({"a": ["holder"]})

    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    @pytest.mark.parametrize("in_between", [0, 5])
    def test_a_slice_claimed_again_is_lost_to_its_former_holder(
        self, target: DocumentTarget, index: str, in_between: int, upkeep: bool
    ) -> None:
        """Whatever else its commit carries, however old its base, whatever came in between."""
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {name: ["zombie"]}) for name in ("a", "b")]

        def others(name: str) -> Documents:
            documents = {f"{name}-{number}": ["other"] for number in range(in_between)}
            for number, document in enumerate(documents):
                mark = Mark(f"slice of {document}", 1, b"")
                own = replaced(target, index, base, {document: ["other"]})
                target.commit(index, base=base, epoch=1, attempt=f"{name} {number}", staged=[own], marks=[mark])
            if upkeep:
                target.maintain(index, full=True)
            return documents

        documents = dict(others("before"))
        target.fence(index, 1, [Mark("s", 2, b"")])
        documents |= others("after")
        marks = [Mark("own", 1, b"mine"), Mark("s", 1, b"zombie")]
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="zombie", staged=staged, marks=marks)
        seen = expected({**documents, "a": ["zombie"], "b": ["zombie"]})
        assert self.content(target, index) in [expected(documents), *self.if_idempotent(target, seen)]
        assert target.committed(index, base, ["s", "own"]) == {}
        target.commit(index, base=base, epoch=1, attempt="own", staged=staged[1:], marks=[Mark("own", 1, b"mine")])
        assert self.content(target, index) in [
            expected({**documents, "b": ["zombie"]}),
            *self.if_idempotent(target, seen),
        ]
        assert target.committed(index, base, ["s", "own"]) == {"own": b"mine"}

    def test_of_several_marks_of_a_slice_the_highest_fence_counts(self, target: DocumentTarget, index: str) -> None:
        target.fence(index, 1, [Mark("s1", 2, b"")])
        target.fence(index, 1, [Mark("s1", 1, b""), Mark("s1", 3, b"")])
        with pytest.raises(Fenced):
            target.fence(index, 1, [Mark("s1", 1, b""), Mark("s1", 2, b"")])

    def test_a_commit_before_the_fence_is_found_by_the_next_claim(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {"a": ["first"]})]
        target.commit(index, base=base, epoch=1, attempt="1", staged=staged, marks=[Mark("s", 1, b"first")])
        put(target, index, {"b": ["other"]}, epoch=1, attempt="2", marks=[Mark("other", 1, b"")])
        target.fence(index, 1, [Mark("s", 2, b"")])
        assert target.committed(index, base, ["s"]) == {"s": b"first"}
        # A lost reply: the same commit again, by who does not know that it was taken over. No harm.
        target.commit(index, base=base, epoch=1, attempt="1", staged=staged, marks=[Mark("s", 1, b"first")])
        assert self.content(target, index) == expected({"a": ["first"], "b": ["other"]})

    def test_a_commit_under_a_newer_fence_refuses_the_older_one_by_itself(
        self, target: DocumentTarget, index: str
    ) -> None:
        base = target.fence(index, 1)
        staged = [[replaced(target, index, base, {"a": [text]})] for text in ("zombie", "holder")]
        target.commit(index, base=base, epoch=1, attempt="2", staged=staged[1], marks=[Mark("s", 2, b"holder")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=staged[0], marks=[Mark("s", 1, b"zombie")])
        assert self.content(target, index) == expected({"a": ["holder"]})

    def test_halves_of_a_slice_fence_the_whole_without_fencing_each_other(
        self, target: DocumentTarget, index: str
    ) -> None:
        """A holder of the whole is refused under any fence: it is never claimed again."""
        never_again = 2**31 - 1
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {name: ["zombie"]}) for name in ("a", "b")]
        for half, fence in (("sa", 2), ("sa", 3), ("sb", 2)):
            target.fence(index, 1, [Mark(half, fence, b""), Mark("s", never_again, b"")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="whole", staged=staged, marks=[Mark("s", 3, b"")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="sa", staged=staged[:1], marks=[Mark("sa", 2, b"")])
        put(
            target,
            index,
            {"a": ["1"], "b": ["2"]},
            epoch=1,
            attempt="1",
            marks=[Mark("sa", 3, b""), Mark("sb", 2, b"")],
        )
        assert self.content(target, index) == expected({"a": ["1"], "b": ["2"]})

    @pytest.mark.parametrize("fences", [(2, 3), (3, 2)])
    def test_of_several_marks_of_a_slice_the_highest_counts(
        self, target: DocumentTarget, index: str, fences: tuple[int, int]
    ) -> None:
        base = target.fence(index, 1)
        target.fence(index, 1, [Mark("s", fence, b"") for fence in fences])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=[Mark("s", 2, b"")])
        target.commit(index, base=base, epoch=1, attempt="3", staged=[], marks=[Mark("s", 3, b"")])

    @pytest.mark.parametrize("seed", [0, 1, *(pytest.param(each, marks=pytest.mark.proof) for each in range(2, 6))])
    def test_slices_that_change_hands_at_random_go_in_once_each(
        self, target: DocumentTarget, index: str, seed: int
    ) -> None:
        """Three workers, some of them zombies at any moment, and a ledger that says who holds what."""
        chance, slices = random.Random(seed), "pqrst"
        fences = dict.fromkeys(slices, 0)
        begun = target.fence(index, 1)
        running: list[tuple[int, Mark, bytes]] = []
        refused = landed = 0
        for step in range(60):
            # In the end all who are still at it come late.
            if running and (step >= 30 or chance.random() < 0.3):
                base, mark, staged = running.pop(chance.randrange(len(running)))
                try:
                    target.commit(index, base=base, epoch=1, attempt=f"{mark}", staged=[staged], marks=[mark])
                    landed += 1
                except Fenced:
                    refused += 1
                    assert mark.fence < fences[mark.slice_id]
                continue
            if step >= 30:
                break
            slice_id = chance.choice(slices)
            fences[slice_id] += 1
            mark = Mark(slice_id, fences[slice_id], f"{step}".encode())
            base = target.fence(index, 1, [mark._replace(outcome=b"")] if mark.fence > 1 else [])
            if slice_id not in target.committed(index, begun, [slice_id]):
                staged = replaced(target, index, base, {f"{slice_id}-{number}": [f"{step}"] for number in range(3)})
                running.append((base, mark, staged))
        done = {each: outcome.decode() for each, outcome in target.committed(index, begun, slices).items()}
        assert landed == len(done)
        assert refused
        assert self.content(target, index) == expected(
            {f"{slice_id}-{number}": [step] for slice_id, step in done.items() for number in range(3)}
        )

    @pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.proof)])
    @pytest.mark.parametrize("by", ["epoch", "fence of the slice"])
    def test_every_interleaving_of_two_writers_ends_with_one_copy(
        self, target: DocumentTarget, index: str, by: str, share: int
    ) -> None:
        orders = sorted(set(itertools.permutations("AAABBBB")))
        assert len(orders) == 35
        some = orders[:: max(share, self.every)]
        fenced = sum(self._interleave(target, f"{index}-{n}", order, by) for n, order in enumerate(some))
        assert 0 < fenced < len(some)

    def _interleave(self, target: DocumentTarget, index: str, order: Sequence[str], by: str) -> bool:
        """Both replace the same documents; A belongs to the past once B has fenced. True if A was refused."""
        target.create(index, DIMENSIONS, BUCKETS)
        put(target, index, {"x": ["old"], "y": ["old"]}, epoch=1, attempt="0")
        theirs: Documents = {"x": ["new 1", "new 2"], "y": []}
        epoch, refused = (2, 1) if by == "epoch" else (1, 1), []
        marks = {"A": [Mark("s", 1, b"a")], "B": [Mark("s", 2, b"b")]}
        begun = target.fence(index, 1, marks["A"])

        def steps(name: str, epoch: int, base: int | None) -> Iterator[None]:
            if base is None:
                base = target.fence(index, epoch, marks[name])
                yield
            writer = target.writer(index, base)
            stale = writer.existing(list(theirs))
            yield
            try:
                # An idempotent target may find out here already.
                staged = writer.stage(iter([changes_of(theirs, stale, epoch=epoch)]))
            except Fenced:
                assert target.kind == "idempotent"
                refused.append(name)
                yield from (None, None)
                return
            yield
            try:
                target.commit(index, base=base, epoch=epoch, attempt=name, staged=[staged], marks=marks[name])
            except Fenced:
                refused.append(name)
            yield

        running = {"A": steps("A", epoch[1], begun), "B": steps("B", epoch[0], None)}
        for name in order:
            next(running[name])
        assert "B" not in refused
        assert self.content(target, index) == expected(theirs), order
        assert target.committed(index, begun, ["s"]) == {"s": b"b"}
        return "A" in refused

    @pytest.mark.parametrize("beside", [{}, {"b": ["stays"]}], ids=["alone", "beside another"])
    def test_rows_deleted_by_another_writer_are_a_conflict(
        self, target: DocumentTarget, index: str, beside: Documents
    ) -> None:
        if target.kind != "transactional":
            return
        put(target, index, {"a": ["old"], **beside}, epoch=1, attempt="0")
        base = target.fence(index, 1)
        mine, *others = [[replaced(target, index, base, {"a": texts})] for texts in (["mine"], ["yours"], [])]
        target.commit(index, base=base, epoch=1, attempt="1", staged=mine, marks=[])
        for number, staged in enumerate(others):
            with pytest.raises(Conflict):
                target.commit(index, base=base, epoch=1, attempt=f"late {number}", staged=staged, marks=[])
        assert self.content(target, index) == expected({"a": ["mine"], **beside})

    @pytest.mark.proof
    def test_concurrent_committers_all_land(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=commit_slices, args=(target, index, base, n, self.rounds)) for n in range(3)]
        for each in workers:
            each.start()
        for each in workers:
            each.join(300)
        assert [each.exitcode for each in workers] == [0] * 3
        names = [f"w{worker}-{number}" for worker in range(3) for number in range(self.rounds)]
        documents = {f"doc-{name}": [f"text {name}"] for name in names}
        shared = {f"shared-{n}": [f"round {self.rounds - 1}"] for n in range(3)}
        assert self.content(target, index) == expected(documents | shared)
        assert target.committed(index, base, names) == {name: name.encode() for name in names}
