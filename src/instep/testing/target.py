"""The contract of targets for documents. Inherit `TargetContract`, give it a `target` and `content`.

The tests are written for transactional targets; what they say about rows holds for any target.
"""

from __future__ import annotations

import itertools
import math
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.waves import Mark
from instep.domain.words import text_query
from instep.errors import InstepError, Transient, UserError
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ChunkChanges,
    DocumentTarget,
    contents_schema,
    existing_schema,
    retold_schema,
    written_schema,
)
from instep.targets.trial import ALIAS, trial_of_documents
from instep.testing.target_columns import ColumnsContract
from instep.testing.target_filters import FiltersContract
from instep.testing.target_rows import (
    BUCKETS,
    DIMENSIONS,
    NOTHING,
    Documents,
    changes_of,
    expected,
    put,
    replaced,
    rows_of,
)
from instep.testing.target_searching import SearchingContract
from instep.testing.target_serving import ServingContract
from instep.testing.target_writers import WritersContract


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        staged: bytes = self._strike(lambda: self._writer.stage(changes))
        return staged


def sync(target: DocumentTarget, physical: str, waves: Sequence[Documents], *, epoch: int, since: int | None) -> int:
    """One run over all waves, as the service does it: fence, ask what is in, do the rest, serve it.

    Returns the version to look from at the next try.
    """
    target.create(physical, DIMENSIONS, BUCKETS)
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


class TargetContract(WritersContract, ServingContract, SearchingContract, ColumnsContract, FiltersContract):
    """Inherit, and provide the fixture `target` and the method `content`."""

    # -- being there ---------------------------------------------------------------------------

    def test_creating_twice_keeps_the_rows(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one"]}, epoch=1, attempt="1")
        target.create(index, DIMENSIONS, BUCKETS)
        assert self.content(target, index) == expected({"a": ["one"]})

    def test_exists_and_drop(self, target: DocumentTarget, index: str) -> None:
        assert target.exists(index)
        put(target, index, {"a": ["one"]}, epoch=1, attempt="1")
        target.drop(index)
        assert not target.exists(index)
        target.drop(index)
        target.create(index, DIMENSIONS, BUCKETS)
        assert self.content(target, index) == Counter()

    def test_an_index_dropped_and_recreated_forgets_its_commits(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one"]}, epoch=7, attempt="1", marks=[Mark("s", 9, b"x")])
        target.drop(index)
        target.create(index, DIMENSIONS, BUCKETS)
        put(target, index, {"a": ["two"]}, epoch=1, attempt="1", marks=[Mark("s", 1, b"y")])
        assert self.content(target, index) == expected({"a": ["two"]})

    def test_travels_pickled(self, target: DocumentTarget, index: str) -> None:
        put(pickle.loads(pickle.dumps(target)), index, {"a": ["one"]}, epoch=1, attempt="1")
        assert self.content(target, index) == expected({"a": ["one"]})

    def test_a_trial_counts_a_row_of_each_host_and_leaves_nothing(
        self, target: DocumentTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trial = trial_of_documents(target, DIMENSIONS)
        try:
            begun = trial.begun()
            staged = []
            for host in ("one", "two"):
                monkeypatch.setattr("instep.targets.trial.gethostname", lambda host=host: host)
                staged.append(pickle.loads(pickle.dumps(begun)).stage())
            begun.commit(staged)
            assert pickle.loads(pickle.dumps(begun)).rows() == 2
        finally:
            trial.end()
        assert not target.exists(trial.physical)
        assert target.leftovers(ALIAS, idle_seconds=0) == []

    def test_check_passes_on_a_good_place(self, target: DocumentTarget) -> None:
        target.check()

    @pytest.mark.parametrize(
        "name", ["", "..", "a/b", "../a", "a b", "a'b", 'a"b', "a\0b", "a;b", "-a", "a" * 300, "é"]
    )
    def test_names_that_could_leave_their_place_are_refused(self, target: DocumentTarget, name: str) -> None:
        with pytest.raises(UserError):
            target.create(name, DIMENSIONS, BUCKETS)
        with pytest.raises(UserError):
            target.served(name)

    def test_an_index_that_is_not_there_is_a_user_error(self, target: DocumentTarget) -> None:
        with pytest.raises(UserError):
            target.search("Missing", entity="D", text=text_query("x"), vector=None, mode="text", limit=1)
        with pytest.raises(UserError):
            target.promote("served", "Missing", 1)
        assert target.served("served") is None

    def test_only_idle_indexes_of_an_alias_that_are_not_served_are_leftovers(self, target: DocumentTarget) -> None:
        for name in ("D__1", "D__2", "Other__1", "D_1"):
            target.create(name, DIMENSIONS, BUCKETS)
        target.promote("D", "D__2", 1)
        assert target.leftovers("D", idle_seconds=3600) == []
        assert target.leftovers("D", idle_seconds=0) == ["D__1"]
        assert target.leftovers("Nothing", idle_seconds=0) == []

    # -- writing and reading back --------------------------------------------------------------

    def test_written_rows_are_read_back_as_a_multiset(self, target: DocumentTarget, index: str) -> None:
        documents = {"a": ["same", "same", "other"], "b": ["same"], "c": [""]}
        put(target, index, documents, epoch=1, attempt="1")
        assert self.content(target, index) == expected(documents)
        assert target.rows(index) == 5

    def test_existing_gives_all_rows_of_the_asked_documents_only(self, target: DocumentTarget, index: str) -> None:
        documents = {f"d{n}": [f"{n}-0", f"{n}-1"] for n in range(1500)}
        put(target, index, documents, epoch=1, attempt="1")
        target.maintain(index)
        writer = target.writer(index, target.fence(index, 1))
        asked = [*(f"d{n}" for n in range(0, 1500, 2)), "unknown", "it's", "d0"]
        found = writer.existing(asked)
        assert found.schema == existing_schema()
        assert Counter(found["document_id"].to_pylist()) == Counter({f"d{n}": 2 for n in range(0, 1500, 2)})
        assert writer.existing([]).num_rows == 0

    def test_existing_tells_where_each_row_stands(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one", "two"], "b": ["three"]}, epoch=1, attempt="1")
        found = target.writer(index, target.fence(index, 1)).existing(["a", "b"])
        rows = rows_of({"a": ["one", "two"], "b": ["three"]})
        assert dict(zip(found["chunk_id"].to_pylist(), found["chunk_index"].to_pylist(), strict=True)) == dict(
            zip(rows["chunk_id"].to_pylist(), rows["chunk_index"].to_pylist(), strict=True)
        )

    def test_a_row_gets_another_place_without_its_vector(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one", "two"]}, epoch=1, attempt="1")
        base = target.fence(index, 2)
        writer = target.writer(index, base)
        there = writer.existing(["a"]).sort_by("chunk_index")
        moved = pa.Table.from_batches([rows_of({"a": ["one", "two"]}, epoch=2)]).sort_by("chunk_index")
        at = moved.schema.get_field_index("chunk_index")
        moved = moved.set_column(at, moved.schema.field(at), pa.array([-1, 7], pa.int32()))
        moved = moved.drop_columns("vector").append_column("locator", there["locator"]).cast(retold_schema([]))
        staged = writer.stage(iter([ChunkChanges(rows_of({}), NOTHING, retold=moved)]))
        target.commit(index, base=base, epoch=2, attempt="2", staged=[staged], marks=[])
        after = target.writer(index, target.fence(index, 3)).existing(["a"]).sort_by("chunk_index")
        assert after["chunk_index"].to_pylist() == [-1, 7]
        assert after["chunk_id"].to_pylist() == there["chunk_id"].to_pylist()
        assert self.content(target, index) == expected({"a": ["one", "two"]})
        vectors = target.written(index, ["a"])["vector"].to_pylist()
        assert all(vector and any(vector) for vector in vectors)
        first = target.row(index, "a")
        assert first is not None
        assert first.chunk_index == -1

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

    def test_of_removed_documents_their_number_of_rows_is_enough(self, target: DocumentTarget, index: str) -> None:
        put(target, index, {"a": ["one", "two"], "b": ["three"], "c": ["four"]}, epoch=1, attempt="w1")
        base = target.fence(index, 1)
        writer = target.writer(index, base)
        stale = writer.existing(["a", "b", "never there"], {"a", "never there"})
        assert Counter(stale["document_id"].to_pylist()) == {"a": 2, "b": 1}
        staged = writer.stage(iter([changes_of({"a": [], "b": ["new"], "never there": []}, stale)]))
        target.commit(index, base=base, epoch=1, attempt="w2", staged=[staged], marks=[])
        assert self.content(target, index) == expected({"b": ["new"], "c": ["four"]})

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
                # An idempotent target shows what is written at once: no document is ever without its chunk.
                mixed = target.kind == "transactional" and len({text for _, text in seen}) != 1
                if sum(seen.values()) != 20 or mixed:
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
        # Whole documents, of an idempotent target; what comes after them repairs nothing, and breaks nothing.
        assert self.content(target, index) in [Counter(), *self.if_idempotent(target, expected({"a": ["one"]}))]
        put(target, index, {"a": ["two"]}, epoch=1, attempt="1")
        assert self.content(target, index) == expected({"a": ["two"]})

    def test_many_batches_in_one_task(self, target: DocumentTarget, index: str) -> None:
        writer = target.writer(index, target.fence(index, 1))
        staged = writer.stage(ChunkChanges(rows_of({f"d{n}": [f"{n}"]}), NOTHING) for n in range(50))
        target.commit(index, base=target.fence(index, 1), epoch=1, attempt="1", staged=[staged], marks=[])
        assert self.content(target, index) == expected({f"d{n}": [f"{n}"] for n in range(50)})

    def test_contents_are_all_rows_in_bounded_batches(self, target: DocumentTarget, index: str) -> None:
        documents = {f"d{n}": [f"{n}-{k}" for k in range(3)] for n in range(CONTENTS_ROWS // 3 + 10)}
        put(target, index, documents, epoch=1, attempt="1")
        changed: Documents = {"d0": ["new"], "d1": []}
        put(target, index, changed, epoch=2, attempt="2")
        batches = list(target.contents(index))
        assert all(batch.schema == contents_schema() and 0 < batch.num_rows <= CONTENTS_ROWS for batch in batches)
        rows = rows_of({**documents, **changed}).select(contents_schema().names).to_pylist()
        found = [row for batch in batches for row in batch.to_pylist()]
        assert Counter(map(repr, found)) == Counter(map(repr, rows))

    def test_contents_of_nothing(self, target: DocumentTarget, index: str) -> None:
        assert list(target.contents(index)) == []
        with pytest.raises(UserError):
            list(target.contents("Missing"))

    def test_contents_show_duplicates(self, target: DocumentTarget, index: str) -> None:
        """A transactional target may hold them; deterministic ids allow none."""
        base = target.fence(index, 1)
        writer = target.writer(index, base)
        twice = [writer.stage(iter([ChunkChanges(rows_of({"a": ["same"]}), NOTHING)])) for _ in range(2)]
        target.commit(index, base=base, epoch=1, attempt="1", staged=twice, marks=[])
        assert sum(batch.num_rows for batch in target.contents(index)) == target.rows(index)
        assert target.rows(index) == (2 if target.kind == "transactional" else 1)

    def test_rows_of_documents_are_given_back_whole(self, target: DocumentTarget, index: str) -> None:
        documents: Documents = {"a": ["one", "two", "three"], "b'\"": ["four"], "c": ["five"]}
        put(target, index, documents, epoch=1, attempt="1")
        found = target.written(index, ["a", "b'\"", "nothing"])
        assert found.schema == written_schema()
        wanted = rows_of({name: documents[name] for name in ("a", "b'\"")}).select(found.column_names).to_pylist()
        given = sorted(found.to_pylist(), key=lambda each: str(each["chunk_id"]))
        for here, there in zip(given, sorted(wanted, key=lambda each: str(each["chunk_id"])), strict=True):
            assert {**here, "vector": None} == {**there, "vector": None}
            length = math.hypot(*there["vector"]) / math.hypot(*here["vector"])
            assert [each * length for each in here["vector"]] == pytest.approx(there["vector"], abs=1e-4)

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
        target.create(self.physical, DIMENSIONS, BUCKETS)
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
