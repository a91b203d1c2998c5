"""What every target for documents must do. Inherit `TargetContract`, give it a `target` and `content`.

The tests are written for transactional targets; what they say about rows holds for any target.
"""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.identity import content_hash
from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced, InstepError, Transient, UserError
from instep.targets.port import ChunkChanges, DocumentTarget, existing_schema, row_schema

DIMENSIONS = 4

#: (document, chunk text) of every row, as often as it is there.
Content = Counter[tuple[str, str]]

#: Documents by id, each the texts of its chunks.
Documents = Mapping[str, Sequence[str]]


def vector_of(text: str) -> list[float]:
    """Some direction that depends on the text."""
    digest = bytes.fromhex(content_hash(text.encode()))
    return [byte / 255 + 0.01 for byte in digest[:DIMENSIONS]]


def rows_of(documents: Documents, *, epoch: int = 1) -> pa.RecordBatch:
    rows = [
        {
            "document_id": document,
            "document_hash": content_hash("|".join(texts).encode()),
            "source_uri": f"file:///{document}",
            "source_version": "1",
            "chunk_id": content_hash(f"{document}|{index}".encode()),
            "chunk_hash": content_hash(text.encode()),
            "chunk_index": index,
            "title": document if index else None,
            "text": text,
            "vector": vector_of(text),
            "_ref": "Document@global",
            "_instance": "i",
            "_version": epoch,
        }
        for document, texts in documents.items()
        for index, text in enumerate(texts)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=row_schema(DIMENSIONS))


def expected(documents: Documents) -> Content:
    return Counter((document, text) for document, texts in documents.items() for text in texts)


NOTHING = existing_schema().empty_table()


def replaced(target: DocumentTarget, physical: str, base: int, documents: Documents, *, epoch: int = 1) -> bytes:
    """Stage these documents in place of whatever is there of them (no texts: delete)."""
    writer = target.writer(physical, base)
    stale = writer.existing(list(documents))
    return writer.stage(iter([ChunkChanges(rows_of(documents, epoch=epoch), stale)]))


def put(
    target: DocumentTarget,
    physical: str,
    documents: Documents,
    *,
    epoch: int,
    attempt: str,
    marks: Sequence[Mark] = (),
) -> int:
    """Fence, replace, commit; returns the base."""
    base = target.fence(physical, epoch, marks)
    staged = replaced(target, physical, base, documents, epoch=epoch)
    target.commit(physical, base=base, epoch=epoch, attempt=attempt, staged=[staged], marks=marks)
    return base


def commit_slices(target: DocumentTarget, physical: str, base: int, worker: int, rounds: int) -> None:
    """What one of several concurrent processes does."""
    for number in range(rounds):
        name = f"w{worker}-{number}"
        documents = {f"doc-{name}": [f"text {name}"], f"shared-{worker}": [f"round {number}"]}
        base = target.fence(physical, 1)
        staged = replaced(target, physical, base, documents)
        mark = Mark(name, 1, name.encode())
        target.commit(physical, base=base, epoch=1, attempt=name, staged=[staged], marks=[mark])


class FailingTarget:
    """A target whose `fails` call number `at` raises `Transient`, before or after it took effect."""

    def __init__(self, target: DocumentTarget, fails: str, *, at: int, after: bool) -> None:
        self._target = target
        self._fails = fails
        self._left = at
        self._after = after
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name == "writer" and self._fails == "stage":
            return lambda *args: _FailingWriter(method(*args), self.strike)
        return method if name != self._fails else self._striking(method)

    def _striking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.strike(lambda: method(*args, **kwargs))

    def strike(self, call: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left != 0:
            return call()
        self.failed = True
        if self._after:
            call()
        raise Transient("injected")


class _FailingWriter:
    def __init__(self, writer: Any, strike: Callable[[Callable[[], Any]], Any]) -> None:
        self._writer = writer
        self._strike = strike
        self.existing = writer.existing

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        staged: bytes = self._strike(lambda: self._writer.stage(changes))
        return staged


def sync(target: DocumentTarget, physical: str, waves: Sequence[Documents], *, epoch: int, since: int | None) -> int:
    """One run over all waves, as the service does it: fence, ask what is in, do the rest, serve it.

    Returns the version to look from at the next try.
    """
    target.create(physical, DIMENSIONS)
    marks = [Mark(f"wave-{number}", epoch, b"") for number in range(len(waves))]
    base = target.fence(physical, epoch, marks if since is not None else ())
    done = target.committed(physical, since, [mark.slice_id for mark in marks]) if since is not None else {}
    for number, documents in enumerate(waves):
        if f"wave-{number}" in done:
            continue
        staged = replaced(target, physical, base, documents, epoch=epoch)
        commit = {"epoch": epoch, "attempt": f"{epoch}-{number}", "marks": [Mark(f"wave-{number}", epoch, b"done")]}
        target.commit(physical, base=base, staged=[staged], **commit)  # type: ignore[arg-type]  # a plain dict
    target.maintain(physical)
    target.promote("served", physical, epoch)
    return base


class TargetContract:
    """Inherit, and provide the fixture `target` and the method `content`."""

    physical = "Document__1"

    def content(self, target: DocumentTarget, physical: str) -> Content:
        raise NotImplementedError

    @pytest.fixture
    def index(self, target: DocumentTarget) -> str:
        target.create(self.physical, DIMENSIONS)
        return self.physical

    # -- being there ---------------------------------------------------------------------------

    def test_create_twice_keeps_what_is_there(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one"]}, epoch=1, attempt="1")
        target.create(index, DIMENSIONS)
        assert self.content(target, index) == expected({"a": ["one"]})

    def test_exists_and_drop(self, target: DocumentTarget, index: str) -> None:
        assert target.exists(index)
        put(target, index, {"a": ["one"]}, epoch=1, attempt="1")
        target.drop(index)
        assert not target.exists(index)
        target.drop(index)
        target.create(index, DIMENSIONS)
        assert self.content(target, index) == Counter()

    def test_an_index_dropped_and_made_again_forgets_its_commits(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one"]}, epoch=7, attempt="1", marks=[Mark("s", 9, b"x")])
        target.drop(index)
        target.create(index, DIMENSIONS)
        put(target, index, {"a": ["two"]}, epoch=1, attempt="1", marks=[Mark("s", 1, b"y")])
        assert self.content(target, index) == expected({"a": ["two"]})

    def test_travels_pickled(self, target: DocumentTarget, index: str) -> None:
        put(pickle.loads(pickle.dumps(target)), index, {"a": ["one"]}, epoch=1, attempt="1")
        assert self.content(target, index) == expected({"a": ["one"]})

    def test_check_passes_on_a_good_place(self, target: DocumentTarget) -> None:
        target.check()

    @pytest.mark.parametrize(
        "name", ["", "..", "a/b", "../a", "a b", "a'b", 'a"b', "a\0b", "a;b", "-a", "a" * 300, "é"]
    )
    def test_names_that_could_leave_their_place_are_refused(self, target: DocumentTarget, name: str) -> None:
        with pytest.raises(UserError):
            target.create(name, DIMENSIONS)
        with pytest.raises(UserError):
            target.served(name)

    def test_an_index_that_is_not_there_is_a_user_error(self, target: DocumentTarget) -> None:
        with pytest.raises(UserError):
            target.search("Missing", entity="D", text="x", vector=None, mode="text", limit=1)
        with pytest.raises(UserError):
            target.promote("served", "Missing", 1)
        assert target.served("served") is None

    def test_only_idle_indexes_of_an_alias_that_are_not_served_are_leftovers(self, target: DocumentTarget) -> None:
        for name in ("D__1", "D__2", "Other__1", "D"):
            target.create(name, DIMENSIONS)
        target.promote("D", "D__2", 1)
        assert target.leftovers("D", idle_seconds=3600) == []
        assert target.leftovers("D", idle_seconds=0) == ["D__1"]
        assert target.leftovers("Nothing", idle_seconds=0) == []

    # -- writing and reading back --------------------------------------------------------------

    def test_what_is_written_is_read_back_as_a_multiset(self, target: DocumentTarget, index: str) -> None:
        documents = {"a": ["same", "same", "other"], "b": ["same"], "c": [""]}
        put(target, index, documents, epoch=1, attempt="1")
        assert self.content(target, index) == expected(documents)
        assert target.rows(index) == 5

    def test_existing_gives_all_rows_of_the_asked_documents_only(self, target: DocumentTarget, index: str) -> None:
        documents = {f"d{n}": [f"{n}-0", f"{n}-1"] for n in range(1500)}
        put(target, index, documents, epoch=1, attempt="1")
        target.maintain(index)
        writer = target.writer(index, target.fence(index, 1))
        asked = [*(f"d{n}" for n in range(0, 1500, 2)), "nobody", "it's", "d0"]
        found = writer.existing(asked)
        assert found.schema == existing_schema()
        assert Counter(found["document_id"].to_pylist()) == Counter({f"d{n}": 2 for n in range(0, 1500, 2)})
        assert writer.existing([]).num_rows == 0

    def test_existing_reads_at_its_base(self, target: DocumentTarget, index: str) -> None:
        if target.kind != "transactional":
            return
        base = target.fence(index, 1)
        writer = target.writer(index, base)
        put(target, index, {"a": ["one"]}, epoch=1, attempt="1")
        assert writer.existing(["a"]).num_rows == 0
        assert target.writer(index, target.fence(index, 1)).existing(["a"]).num_rows == 1

    def test_updates_and_deletes_of_one_commit(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["1", "2"], "b": ["3"], "c": ["4"]}, epoch=1, attempt="1")
        put(target, index, {"a": ["1", "new"], "b": []}, epoch=2, attempt="2")
        assert self.content(target, index) == expected({"a": ["1", "new"], "c": ["4"]})

    def test_all_rows_deleted_then_written_again(self, target: DocumentTarget, index: str) -> None:
        for epoch in range(1, 5):
            put(target, index, {"a": [f"text {epoch}"]}, epoch=2 * epoch, attempt=f"w{epoch}")
            target.maintain(index)
            assert self.content(target, index) == expected({"a": [f"text {epoch}"]})
            put(target, index, {"a": []}, epoch=2 * epoch + 1, attempt=f"d{epoch}")
            assert self.content(target, index) == Counter()

    def test_duplicate_rows_of_a_document_are_all_replaced(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        writer = target.writer(index, base)
        twice = [writer.stage(iter([ChunkChanges(rows_of({"a": ["same"]}), NOTHING)])) for _ in range(2)]
        target.commit(index, base=base, epoch=1, attempt="1", staged=twice, marks=[])
        put(target, index, {"a": ["only"]}, epoch=2, attempt="2")
        assert self.content(target, index) == expected({"a": ["only"]})

    def test_parts_of_several_tasks_become_visible_at_once(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {name: [name]}) for name in "abcd"]
        if target.kind == "transactional":
            assert self.content(target, index) == Counter()
        target.commit(index, base=base, epoch=1, attempt="1", staged=staged, marks=[])
        assert self.content(target, index) == expected({name: [name] for name in "abcd"})

    def test_a_reader_never_sees_half_a_commit(self, target: DocumentTarget, index: str) -> None:
        documents = {f"d{n}": ["round 0"] for n in range(20)}
        put(target, index, documents, epoch=1, attempt="0")
        stop, wrong = threading.Event(), []

        def read() -> None:
            while not stop.is_set():
                seen = self.content(target, index)
                if sum(seen.values()) != 20 or len({text for _, text in seen}) != 1:
                    wrong.append(seen)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1, 21):
                put(target, index, {key: [f"round {number}"] for key in documents}, epoch=1, attempt=str(number))
        finally:
            stop.set()
            reader.join()
        assert wrong == []

    def test_an_error_while_staging_stays_itself_and_changes_nothing(self, target: DocumentTarget, index: str) -> None:
        threads = []

        def changes() -> Iterator[ChunkChanges]:
            threads.append(threading.current_thread())
            yield ChunkChanges(rows_of({"a": ["one"]}), NOTHING)
            raise KeyError("embedder")

        writer = target.writer(index, target.fence(index, 1))
        with pytest.raises(KeyError, match="embedder"):
            writer.stage(changes())
        assert threads == [threading.current_thread()]
        assert self.content(target, index) == Counter()

    def test_many_batches_in_one_task(self, target: DocumentTarget, index: str) -> None:
        writer = target.writer(index, target.fence(index, 1))
        staged = writer.stage(ChunkChanges(rows_of({f"d{n}": [f"{n}"]}), NOTHING) for n in range(50))
        target.commit(index, base=target.fence(index, 1), epoch=1, attempt="1", staged=[staged], marks=[])
        assert self.content(target, index) == expected({f"d{n}": [f"{n}"] for n in range(50)})

    # -- attempts, marks, fences ---------------------------------------------------------------

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
        assert self.content(target, index) == Counter()
        assert target.committed(index, base, ["s1"]) == {}

    def test_a_zombie_with_an_older_fence_of_a_slice_is_refused(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        staged = [replaced(target, index, base, {"a": ["zombie"]})]
        target.fence(index, 1, [Mark("s1", 2, b"")])
        with pytest.raises(Fenced):
            target.commit(index, base=base, epoch=1, attempt="1", staged=staged, marks=[Mark("s1", 1, b"z")])
        with pytest.raises(Fenced):
            target.fence(index, 1, [Mark("s1", 1, b"")])
        target.commit(index, base=base, epoch=1, attempt="2", staged=[], marks=[Mark("other", 1, b"fine")])
        assert self.content(target, index) == Counter()

    # -- many writers in one index -------------------------------------------------------------

    @pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
    @pytest.mark.parametrize("in_between", [0, 5])
    def test_a_slice_that_was_claimed_again_is_lost_to_who_had_it(
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
        assert self.content(target, index) == expected(documents)
        assert target.committed(index, base, ["s", "own"]) == {}
        target.commit(index, base=base, epoch=1, attempt="own", staged=staged[1:], marks=[Mark("own", 1, b"mine")])
        assert self.content(target, index) == expected({**documents, "b": ["zombie"]})
        assert target.committed(index, base, ["s", "own"]) == {"own": b"mine"}

    def test_what_landed_before_the_fence_is_found_by_who_claims_the_slice_next(
        self, target: DocumentTarget, index: str
    ) -> None:
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
        """Whoever holds the whole is refused under any fence: it is never claimed again."""
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

    @pytest.mark.parametrize("seed", range(6))
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

    @pytest.mark.parametrize("by", ["epoch", "fence of the slice"])
    def test_every_interleaving_of_two_writers_ends_with_one_copy(
        self, target: DocumentTarget, index: str, by: str
    ) -> None:
        orders = sorted(set(itertools.permutations("AAABBBB")))
        assert len(orders) == 35
        fenced = sum(self._interleave(target, f"{index}-{n}", order, by) for n, order in enumerate(orders))
        assert 0 < fenced < len(orders)

    def _interleave(self, target: DocumentTarget, index: str, order: Sequence[str], by: str) -> bool:
        """Both replace the same documents; A belongs to the past once B has fenced. True if A was refused."""
        target.create(index, DIMENSIONS)
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
            staged = writer.stage(iter([ChunkChanges(rows_of(theirs), stale)]))
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

    def test_rows_deleted_by_somebody_else_are_a_conflict(self, target: DocumentTarget, index: str) -> None:
        if target.kind != "transactional":
            return
        put(target, index, {"a": ["old"]}, epoch=1, attempt="0")
        base = target.fence(index, 1)
        staged = [[replaced(target, index, base, {"a": [text]})] for text in ("mine", "yours")]
        target.commit(index, base=base, epoch=1, attempt="1", staged=staged[0], marks=[])
        with pytest.raises(Conflict):
            target.commit(index, base=base, epoch=1, attempt="2", staged=staged[1], marks=[])
        assert self.content(target, index) == expected({"a": ["mine"]})

    def test_concurrent_committers_all_land(self, target: DocumentTarget, index: str) -> None:
        base = target.fence(index, 1)
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=commit_slices, args=(target, index, base, n, 10)) for n in range(4)]
        for each in workers:
            each.start()
        for each in workers:
            each.join(60)
        assert [each.exitcode for each in workers] == [0] * 4
        names = [f"w{worker}-{number}" for worker in range(4) for number in range(10)]
        documents = {f"doc-{name}": [f"text {name}"] for name in names}
        assert self.content(target, index) == expected(documents | {f"shared-{n}": ["round 9"] for n in range(4)})
        assert target.committed(index, base, names) == {name: name.encode() for name in names}

    # -- failures ------------------------------------------------------------------------------

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("at", [1, 2])
    @pytest.mark.parametrize("fails", ["create", "fence", "stage", "commit", "maintain", "promote"])
    def test_repeating_after_a_failure_converges(
        self, target: DocumentTarget, fails: str, at: int, after: bool
    ) -> None:
        """A failure in the first run (at=1) or, for what is called twice in a run, in the middle of it."""
        if at == 2 and fails not in ("stage", "commit"):
            return
        waves: list[Documents] = [{"a": ["1", "2"], "b": ["3"]}, {"c": ["4"], "d": []}]
        put_before = {"a": ["old"], "d": ["gone"]}
        target.create(self.physical, DIMENSIONS)
        put(target, self.physical, put_before, epoch=1, attempt="before")
        failing = FailingTarget(target, fails, at=at, after=after)
        since: int | None = target.fence(self.physical, 2)
        for epoch in itertools.count(3):
            try:
                sync(failing, self.physical, waves, epoch=epoch, since=since)
            except InstepError:
                continue
            break
        assert failing.failed
        assert self.content(target, self.physical) == expected({**waves[0], **waves[1]})
        assert target.served("served") == self.physical

    # -- serving -------------------------------------------------------------------------------

    @pytest.fixture
    def staged(self, target: DocumentTarget) -> tuple[str, str, str]:
        """Three physical indexes with one document each, to be served."""
        names = ("Document__1", "Document__2", "Document__3")
        for physical in names:
            target.create(physical, DIMENSIONS)
            put(target, physical, {"a": ["common words"]}, epoch=1, attempt="1")
        return names

    def test_promote_is_idempotent_and_moves(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        assert target.served("Document") is None
        for epoch, physical in enumerate([staged[0], staged[0], staged[1], staged[0]], start=9):
            for _ in range(2):
                target.promote("Document", physical, epoch)
                assert target.served("Document") == physical

    def test_aliases_do_not_touch_each_other(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        aliases = {"D": 0, "D.alias-0000000007": 1, "D.alias": 2, "Document": 0, "D-1": 1}
        for epoch, (alias, number) in enumerate(aliases.items(), start=1):
            target.promote(alias, staged[number], 10 - epoch)
        assert {alias: target.served(alias) for alias in aliases} == {
            alias: staged[number] for alias, number in aliases.items()
        }
        target.promote("D", staged[2], 10)
        assert [target.served(alias) for alias in aliases] == [staged[number] for number in (2, 1, 2, 0, 1)]

    def test_an_older_epoch_never_overrides_a_newer_one(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        """However late a zombie comes, and though it only repeats what once was right."""
        old, new, other = staged
        target.promote("Document", old, 99)
        target.promote("Document", new, 100)
        for epoch, physical in [(99, old), (99, new), (2, other), (1, new)]:
            with pytest.raises(Fenced):
                target.promote("Document", physical, epoch)
            assert target.served("Document") == new

    def test_an_epoch_that_went_on_serving_the_same_is_not_overridden_either(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        served, other, _ = staged
        target.promote("Document", served, 3)
        target.promote("Document", served, 5)
        with pytest.raises(Fenced):
            target.promote("Document", other, 4)
        assert target.served("Document") == served

    def test_one_epoch_serves_one_index(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        target.promote("Document", staged[0], 5)
        with pytest.raises(Conflict):
            target.promote("Document", staged[1], 5)
        target.promote("Document", staged[0], 5)
        assert target.served("Document") == staged[0]

    def test_of_promoters_at_once_the_newest_epoch_wins(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        """Finishers of three epochs, two of each, all at the same moment."""
        for round_ in range(10):
            start = threading.Barrier(6)

            def promote(epoch: int, physical: str, start: threading.Barrier = start) -> bool:
                start.wait()
                try:
                    target.promote("Document", physical, epoch)
                except Fenced:
                    return False
                return True

            promoters = [(3 * round_ + number, staged[number - 1]) for number in (1, 2, 3) for _ in range(2)]
            with ThreadPoolExecutor(6) as pool:
                done = list(pool.map(lambda each: promote(*each), promoters))
            assert done[4:] == [True, True]
            assert target.served("Document") == staged[2]

    def test_readers_never_notice_a_promotion(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        target.promote("Document", staged[0], 1)
        stop, answers, errors = threading.Event(), [], []

        def read() -> None:
            while not stop.is_set():
                try:
                    physical = target.served("Document")
                    assert physical is not None
                    found = target.search(physical, entity="D", text="common", vector=None, mode="text", limit=1)
                    answers.append(len(found))
                except Exception as error:
                    errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(2, 40):
                target.promote("Document", staged[number % 3], number)
        finally:
            while not answers and not errors:
                pass
            stop.set()
            reader.join()
        assert errors == []
        assert set(answers) == {1}

    # -- searching -----------------------------------------------------------------------------

    @pytest.fixture(params=["indexed", "not indexed", "half indexed"])
    def library(self, request: pytest.FixtureRequest, target: DocumentTarget, index: str) -> str:
        documents = {
            "cats": ["The cat sat on the mat.", "Cats sleep all day; sleeping is what they do."],
            "dogs": ["A dog barks at night.", "Dogs run in the park."],
            "quotes": ['She said "don\'t" -- and left; DROP TABLE rows.'],
            "unicode": ["Crème brûlée in Zürich", "数据 索引 同步"],
        }
        first, second = dict(list(documents.items())[:2]), dict(list(documents.items())[2:])
        put(target, index, first, epoch=1, attempt="1")
        if request.param != "not indexed":
            target.maintain(index)
        put(target, index, second, epoch=2, attempt="2")
        if request.param == "indexed":
            target.maintain(index, full=True)
        return index

    def found(self, target: DocumentTarget, physical: str, text: str, mode: Any = "text", limit: int = 10) -> list[str]:
        hits = target.search(physical, entity="D", text=text, vector=vector_of(text), mode=mode, limit=limit)
        assert len(hits) <= limit
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert all(hit.entity == "D" for hit in hits)
        return [hit.text for hit in hits]

    def test_text_search_finds_words(self, target: DocumentTarget, library: str) -> None:
        assert self.found(target, library, "barks")[0] == "A dog barks at night."
        assert self.found(target, library, "MAT")[0] == "The cat sat on the mat."
        assert self.found(target, library, "zurich creme") == ["Crème brûlée in Zürich"]
        assert self.found(target, library, "数据") == ["数据 索引 同步"]
        assert self.found(target, library, "absentword") == []

    def test_vector_search_finds_the_nearest(self, target: DocumentTarget, library: str) -> None:
        for text in ("Dogs run in the park.", "数据 索引 同步"):
            assert self.found(target, library, text, "vector", 1) == [text]
        assert len(self.found(target, library, "x", "vector", 100)) == 7

    def test_hybrid_search_puts_first_what_both_find(self, target: DocumentTarget, library: str) -> None:
        assert self.found(target, library, "A dog barks at night.", "hybrid")[0] == "A dog barks at night."
        assert len(self.found(target, library, "absentword", "hybrid", 3)) == 3

    def test_hits_say_where_they_come_from(self, target: DocumentTarget, library: str) -> None:
        (hit,) = target.search(library, entity="D", text="sleeping", vector=None, mode="text", limit=1)
        assert (hit.document_id, hit.chunk_index, hit.title, hit.source_uri) == ("cats", 1, "cats", "file:///cats")
        assert hit.chunk_id == content_hash(b"cats|1")

    @pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
    @pytest.mark.parametrize(
        "text",
        ["", "   ", "'", '"', "don't", '"cat', "cat AND (", "'; DROP TABLE rows; --", "*", "cat~2^", "text:cat", "\0",
         "\\", "%_", "😀", "\u202e", "a" * 100_000, "cat " * 5_000, "NOT", "-cat", "$1 {} []"],
    )  # fmt: skip
    def test_what_is_typed_is_data(self, target: DocumentTarget, index: str, text: str, mode: Any) -> None:
        put(target, index, {"cats": ["The cat sat."]}, epoch=1, attempt="1")
        target.maintain(index)
        assert set(self.found(target, index, text, mode)) <= {"The cat sat."}

    def test_searching_an_empty_index(self, target: DocumentTarget, index: str) -> None:
        for mode in ("text", "vector", "hybrid"):
            assert self.found(target, index, "cat", mode) == []
        target.maintain(index)
        assert self.found(target, index, "cat", "hybrid") == []

    def test_limits(self, target: DocumentTarget, library: str) -> None:
        assert self.found(target, library, "cat", "hybrid", 0) == []
        assert len(self.found(target, library, "cat dog", "hybrid", 2)) == 2
        assert len(self.found(target, library, "cat dog", "hybrid", 10**9)) == 7

    def test_vectors_that_cannot_be_searched_for(self, target: DocumentTarget, library: str) -> None:
        for vector in (None, [1.0], [float("nan")] * DIMENSIONS):
            with pytest.raises(UserError):
                target.search(library, entity="D", text="cat", vector=vector, mode="vector", limit=1)
        assert target.search(library, entity="D", text="", vector=[0.0] * DIMENSIONS, mode="vector", limit=1) == []

    # -- upkeep --------------------------------------------------------------------------------

    def test_upkeep_changes_no_content(self, target: DocumentTarget, index: str) -> None:
        target.maintain(index)
        documents = {f"d{n}": [f"{n}-{k}" for k in range(3)] for n in range(100)}
        put(target, index, documents, epoch=1, attempt="1")
        target.maintain(index)
        changed = {f"d{n}": ["changed"] for n in range(0, 100, 3)} | {f"d{n}": [] for n in range(1, 100, 3)}
        put(target, index, changed, epoch=2, attempt="2")
        for full in (False, True, True):
            target.maintain(index, full=full)
            assert self.content(target, index) == expected(documents | changed)
