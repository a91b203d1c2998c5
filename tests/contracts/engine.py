"""What every engine owes its callers. Subclass `EngineContract` and give it an `engine` fixture."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.counts import Counts
from instep.domain.manifest import Action, DocumentChange, ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome, TaskOutcome, Wave, WaveSlice
from instep.errors import Away, Conflict, Fenced, Transient, UserError
from instep.pipeline.documents.rows import CHUNK_SCHEMA
from instep.pipeline.engine.engine import Batches, Engine
from instep.pipeline.outcomes import encode_outcome, outcome_batch

BUCKETS = 4


def a_wave(documents: int = 40, *, slices_per_bucket: int = 2, work: int = 1, tasks: int = BUCKETS) -> Wave:
    """Documents `d0`, `d1`, … dealt to buckets and, within one, to slices. `work` counts per document."""
    slices = []
    for bucket in range(BUCKETS):
        for turn in range(slices_per_bucket):
            mine = [n for n in range(documents) if n % BUCKETS == bucket and n // BUCKETS % slices_per_bucket == turn]
            changes = [
                DocumentChange(Action.INSERT, f"d{n}", f"file:///d{n}", 10, f"v{n}", bucket, "", "new") for n in mine
            ]
            if changes:
                fence = 3 + bucket
                slices.append(WaveSlice(f"s{bucket}.{turn}", fence, bucket, work * len(changes), changes))
    ref = PartitionRef.parse("Document")
    return Wave(str(uuid.uuid4()), ref, "instance", "Document__1", 7, 5, tuple(slices), tasks)


@dataclass(frozen=True)
class RowFiles:
    """A whole wave program in small: two chunks per document, written to one file per task.

    `poison` names documents whose reading fails as a document (its neighbours go on), `fail` those
    whose reading, and `fail_write` those whose writing, kills the task, with the error to raise.
    `transform` runs on Spark between the two halves.
    """

    folder: Path
    poison: frozenset[str] = frozenset()
    fail: dict[str, Exception] = field(default_factory=dict)
    fail_write: dict[str, Exception] = field(default_factory=dict)
    transform: Callable[[Any], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """As programs do: the function runs in the driver."""
        return {**self.__dict__, "transform": None}

    def read(self, changes: Batches) -> Batches:
        for batch in changes:
            assert set(batch.column("bucket").to_pylist()) <= set(range(BUCKETS))
            for start in range(0, batch.num_rows, 3):
                rows = [row for change in batch.slice(start, 3).to_pylist() for row in self._rows(change)]
                yield pa.RecordBatch.from_pylist(rows, schema=CHUNK_SCHEMA)

    def _rows(self, change: dict[str, Any]) -> Iterator[dict[str, Any]]:
        document = change["document_id"]
        if document in self.fail:
            raise self.fail[document]
        base = {
            "slice_id": change["slice_id"],
            "document_id": document,
            "document_hash": f"hash of {document}",
            "source_uri": change["uri"],
            "source_version": change["version"],
            "source_size": change["size"],
            "bucket": change["bucket"],
            "end_of_document": False,
            "deleted": False,
            "unchanged": False,
            "vanished": False,
        }
        if document in self.poison:
            yield base | {"end_of_document": True, "failure_stage": "parse", "failure_reason": "poison"}
            return
        for index in range(2):
            yield base | {
                "chunk_index": index,
                "chunk_id": f"{document}/{index}",
                "text": f"text {index} of {document}",
            }
        yield base | {"end_of_document": True}

    def write(self, chunks: Batches) -> Batches:
        file = self.folder / f"{uuid.uuid4()}.jsonl"
        slices: dict[str, SliceOutcome] = {}
        counts: Counter[str] = Counter()
        with file.open("w") as stream:
            for batch in chunks:
                assert list(batch.schema)[: len(CHUNK_SCHEMA)] == list(CHUNK_SCHEMA)
                for row in batch.to_pylist():
                    if row["document_id"] in self.fail_write:
                        raise self.fail_write[row["document_id"]]
                    if row["end_of_document"]:
                        _end(slices, row, counts.pop(row["document_id"], 0))
                    else:
                        assert row["chunk_index"] == counts[row["document_id"]]
                        counts[row["document_id"]] += 1
                        stream.write(json.dumps({"pid": os.getpid(), **row}) + "\n")
        assert not counts
        yield outcome_batch(file.name.encode(), [encode_outcome(each) for each in slices.values()])


def _end(slices: dict[str, SliceOutcome], row: dict[str, Any], chunks: int) -> None:
    outcome = slices.get(row["slice_id"]) or SliceOutcome(row["slice_id"], 0, Counts(), [], [], [])
    failed = row["failure_stage"] is not None
    identity = (row["document_id"], row["source_uri"])
    entry = ManifestEntry(*identity, row["source_size"], row["source_version"], "h", chunks, row["bucket"])
    failure = Failure(*identity, row["source_version"], row["failure_stage"] or "", row["failure_reason"] or "")
    slices[row["slice_id"]] = SliceOutcome(
        row["slice_id"],
        0,
        outcome.counts + Counts(read=1, written=not failed, failed=failed, rows_written=chunks),
        [*outcome.entries, *([] if failed else [entry])],
        [],
        [*outcome.failures, *([failure] if failed else [])],
    )


def written(folder: Path, tasks: list[TaskOutcome]) -> list[dict[str, Any]]:
    """The rows in the files that the outcomes name, each with its file."""
    return [
        {"file": task.staged.decode(), **json.loads(line)}
        for task in tasks
        for line in (folder / task.staged.decode()).read_text().splitlines()
    ]


def by_slice(tasks: list[TaskOutcome]) -> dict[str, SliceOutcome]:
    found = [outcome for task in tasks for outcome in task.slices]
    assert len({outcome.slice_id for outcome in found}) == len(found)
    return {outcome.slice_id: outcome for outcome in found}


class WaitsToBeHeard(RowFiles):
    """A task that gives its last rows only when others were reported."""

    def read(self, changes: Batches) -> Batches:
        *first, last = super().read(changes)
        yield from first
        for _ in range(6_000):
            if (self.folder / "heard").exists():
                yield last
                return
            time.sleep(0.01)
        raise AssertionError("nothing was reported")


@dataclass(frozen=True)
class Upkeep:
    """Something that is done once: it says in which process, or fails."""

    folder: Path
    fail: Exception | None = None

    def __call__(self) -> None:
        if self.fail is not None:
            raise self.fail
        with (self.folder / "upkeep").open("a") as file:
            file.write(f"{os.getpid()}\n")


class EngineContract:
    """Every engine gives the same outcomes for the same wave."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    def test_every_slice_comes_back_once_under_its_own_fence(self, engine: Engine, tmp_path: Path) -> None:
        wave = a_wave()
        outcomes = by_slice(list(engine.run(wave, RowFiles(tmp_path))))
        assert {key: value.fence for key, value in outcomes.items()} == {s.slice_id: s.fence for s in wave.slices}
        for part in wave.slices:
            outcome = outcomes[part.slice_id]
            assert outcome.counts == Counts(
                read=len(part.changes), written=len(part.changes), rows_written=2 * len(part.changes)
            )
            assert {entry.document_id for entry in outcome.entries} == {each.document_id for each in part.changes}
            assert len(outcome.entries) == len(part.changes)

    def test_all_rows_are_written_once_and_staged_files_are_named(self, engine: Engine, tmp_path: Path) -> None:
        tasks = list(engine.run(a_wave(), RowFiles(tmp_path)))
        rows = written(tmp_path, tasks)
        assert sorted(row["chunk_id"] for row in rows) == sorted(f"d{n}/{i}" for n in range(40) for i in range(2))
        assert all(row["document_hash"] == f"hash of {row['document_id']}" for row in rows)

    def test_slices_of_one_bucket_are_read_by_several_tasks_and_each_document_by_one(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        whole = a_wave(tasks=3)
        (first, *_), one_slice = whole.slices, replace(whole, slices=whole.slices[:1])
        alone = list(engine.run(one_slice, RowFiles(tmp_path)))
        assert by_slice(alone)[first.slice_id].counts.read == len(first.changes)
        together = list(engine.run(whole, RowFiles(tmp_path)))
        assert len(alone) == len(together) <= 3
        for tasks, documents in ((alone, len(first.changes)), (together, 40)):
            files: dict[str, set[str]] = {}
            for row in written(tmp_path, tasks):
                files.setdefault(row["document_id"], set()).add(row["file"])
            assert len(files) == documents
            assert all(len(each) == 1 for each in files.values())

    def test_a_poisoned_document_fails_alone(self, engine: Engine, tmp_path: Path) -> None:
        tasks = list(engine.run(a_wave(), RowFiles(tmp_path, poison=frozenset({"d5"}))))
        outcomes = by_slice(tasks)
        failures = [failure for outcome in outcomes.values() for failure in outcome.failures]
        assert [(each.document_id, each.stage, each.reason) for each in failures] == [("d5", "parse", "poison")]
        assert len(written(tmp_path, tasks)) == 2 * 39
        assert all(outcome.counts.balanced for outcome in outcomes.values())

    @pytest.mark.parametrize("where", ["fail", "fail_write"])
    @pytest.mark.parametrize("kind", [Transient, Fenced, Conflict])
    def test_an_error_in_a_task_keeps_its_kind_and_message(
        self, engine: Engine, tmp_path: Path, where: str, kind: type[Exception]
    ) -> None:
        program = RowFiles(tmp_path, **{where: {"d7": kind("the far end said: no\nand that is that")}})  # type: ignore[arg-type]  # the name of the field varies
        with pytest.raises(kind) as raised:
            engine.run(a_wave(), program)
        assert type(raised.value) is kind
        assert str(raised.value) == "the far end said: no\nand that is that"

    def test_a_user_error_in_a_task_keeps_its_hint(self, engine: Engine, tmp_path: Path) -> None:
        program = RowFiles(tmp_path, fail={"d7": UserError("no key", where="Document.embed", hint="Set one.")})
        with pytest.raises(UserError) as raised:
            engine.run(a_wave(), program)
        assert (raised.value.what, raised.value.where, raised.value.hint) == ("no key", "Document.embed", "Set one.")

    @pytest.mark.parametrize("where", ["fail", "fail_write"])
    @pytest.mark.parametrize(
        ("error", "kind", "said"),
        [
            (ModuleNotFoundError("No module named 'httpx'", name="httpx"), UserError, "instep[openai]"),
            (ImportError("libmagic.so: no such file", name="magic"), UserError, "the package magic does not work"),
            (ConnectionRefusedError(111, "Connection refused"), Transient, "Connection refused"),
            (TimeoutError("timed out"), Transient, "timed out"),
            (OSError(errno.ENOSPC, "No space left on device"), UserError, "No space left on device"),
            (Away("the far end is away", hint="Wait."), Away, "Wait."),
        ],
        ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
    )
    def test_an_error_outside_a_document_keeps_its_kind(
        self, engine: Engine, tmp_path: Path, where: str, error: Exception, kind: type[Exception], said: str
    ) -> None:
        program = RowFiles(tmp_path, **{where: {"d7": error}})  # type: ignore[arg-type]  # the name of the field varies
        with pytest.raises(kind) as raised:
            engine.run(a_wave(), program)
        assert type(raised.value) is kind
        assert said in str(raised.value)

    def test_any_other_error_gives_its_own_words_in_few_lines(self, engine: Engine, tmp_path: Path) -> None:
        program = RowFiles(tmp_path, fail={"d7": ZeroDivisionError("seven is no divisor")})
        with pytest.raises(Exception, match="seven is no divisor") as raised:
            engine.run(a_wave(), program)
        assert len(str(raised.value).splitlines()) == 1

    def test_the_engine_works_again_after_a_failed_wave(self, engine: Engine, tmp_path: Path) -> None:
        with pytest.raises(Transient):
            engine.run(a_wave(), RowFiles(tmp_path, fail={"d7": Transient("down")}))
        assert len(written(tmp_path, list(engine.run(a_wave(), RowFiles(tmp_path))))) == 80

    def test_progress_adds_up_to_the_documents_of_the_wave(self, engine: Engine, tmp_path: Path) -> None:
        told: list[int] = []
        lock = threading.Lock()

        def progress(units: int) -> None:
            assert lock.acquire(blocking=False), "progress was called by two threads at once"
            told.append(units)
            lock.release()

        engine.run(a_wave(work=10_000), RowFiles(tmp_path), progress)
        assert sum(told) == 40
        assert all(units > 0 for units in told)

    def test_progress_is_reported_before_the_only_task_has_ended(self, engine: Engine, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        engine.run(a_wave(tasks=1), WaitsToBeHeard(tmp_path), lambda _: heard.touch())
        assert heard.exists()

    def test_a_wave_of_one_document_is_one_task(self, engine: Engine, tmp_path: Path) -> None:
        tasks = list(engine.run(a_wave(1), RowFiles(tmp_path)))
        assert len(tasks) == 1
        assert len(written(tmp_path, tasks)) == 2

    def test_upkeep_is_done_once(self, engine: Engine, tmp_path: Path) -> None:
        assert engine.once(Upkeep(tmp_path)) >= 0
        assert len((tmp_path / "upkeep").read_text().split()) == 1

    @pytest.mark.parametrize("error", [UserError("the table is gone", hint="Rebuild."), Transient("down")])
    def test_an_error_of_upkeep_says_who_should_act(self, engine: Engine, tmp_path: Path, error: Exception) -> None:
        with pytest.raises(type(error), match=str(error).split("\n")[0].rstrip(".")):
            engine.once(Upkeep(tmp_path, fail=error))
