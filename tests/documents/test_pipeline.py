"""Documents end to end through read and write, into a target in memory; compared with a model."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.domain.counts import Counts
from instep.domain.identity import content_hash
from instep.domain.manifest import DocumentChange, ManifestEntry, difference
from instep.domain.planning import SliceSizing, cut_documents
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, Mark, SliceOutcome, Wave, WaveSlice
from instep.errors import Transient, UserError
from instep.pipeline.documents.chunk import Chunker, Limits, Oversize
from instep.pipeline.documents.embed.embedder import PROBE, EmbedRejected, as_list
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.documents.embed.http import HttpEmbedder, close_connections
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.reading import BATCH_BYTES, BATCH_ROWS
from instep.pipeline.documents.rows import CHUNK_SCHEMA, change_batch
from instep.pipeline.documents.writing import IncompleteDocument
from instep.pipeline.outcomes import task_outcomes
from instep.sources.files import FilesSource
from instep.targets.document_target import ChunkChanges, row_schema
from tests.documents.chunks import texts_of
from tests.documents.endpoint import Answer, Endpoint, good, serving
from tests.doubles.memory_target import MemoryTarget, MemoryWriter

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Vectors

CHUNKER = Chunker(40)


class Project:
    """A folder, a target and a manifest, synchronised as the service does it."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.source = FilesSource((str(folder),))
        self.target = MemoryTarget()
        self.program = DocumentProgram(
            source=self.source,
            chunker=CHUNKER,
            embedder=HashingEmbedder(16),
            target=self.target,
            physical="p",
            base=0,
            ref="Document@global",
            instance="i",
            version=1,
            limits=Limits(max_document_bytes=100_000, max_line_bytes=1_000),
        )
        self.program = dataclasses.replace(self.program, **changes)
        self.target.create("p", self.program.embedder.dimensions, 4)
        self.manifest: dict[str, ManifestEntry] = {}
        self.failed: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}
        self.runs = 0

    def put(self, name: str, text: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def uri(self, name: str) -> str:
        return f"file://{self.folder}/{name}"

    def changes(self, *, retry: bool = False) -> list[DocumentChange]:
        listed = self.source.list()
        found = difference(listed.documents, self.manifest, self.failed, complete=True, buckets=4, retry_failures=retry)
        return list(found.changes)

    def sync(self, changes: list[DocumentChange] | None = None, *, retry: bool = False) -> Counts:
        """One wave of everything that changed; returns what it did, all slices together."""
        self.runs += 1
        base = self.target.fence("p", self.runs)
        program = dataclasses.replace(self.program, base=base, version=self.runs)
        plans = cut_documents(self.changes(retry=retry) if changes is None else changes, SliceSizing(40, 1_000))
        parts = tuple(WaveSlice(f"s{plan.index}", 5, plan.bucket, plan.work, _decoded(plan.payload)) for plan in plans)
        wave = Wave(f"w{self.runs}", PartitionRef("Document"), "i", "p", self.runs, base, parts)
        rows = list(program.write(program.read(change_batch(part) for part in parts)))
        assert sum(batch.num_rows for batch in rows) == 1
        (task,) = task_outcomes(pa.Table.from_batches(rows), wave)
        assert sorted(each.slice_id for each in task.slices) == sorted(part.slice_id for part in parts)
        for part in parts:
            outcome = next(each for each in task.slices if each.slice_id == part.slice_id)
            assert outcome.counts.balanced
            assert outcome.counts.read == len(part.changes)
            self._record(outcome)
        marks = [Mark(each.slice_id, self.runs, b"") for each in task.slices]
        self.target.commit("p", base=base, epoch=self.runs, attempt=wave.id, staged=[task.staged], marks=marks)
        return sum((each.counts for each in task.slices), Counts())

    def _record(self, outcome: SliceOutcome) -> None:
        for entry in outcome.entries:
            self.manifest[entry.uri] = entry
            self.failed.pop(entry.uri, None)
        gone = set(outcome.removed)
        self.manifest = {uri: entry for uri, entry in self.manifest.items() if entry.document_id not in gone}
        for failure in outcome.failures:
            self.failed[failure.uri] = failure.version
            self.failures[failure.uri.rsplit("/", 1)[-1]] = failure

    def stored(self) -> Counter[tuple[str, str]]:
        return Counter((row["source_uri"], row["text"]) for row in self.target.stored("p"))

    def expected(self, texts: Mapping[str, str]) -> Counter[tuple[str, str]]:
        chunks = texts_of(CHUNKER, *(("text", text) for text in texts.values()))
        return Counter((self.uri(name), each) for name, cut in zip(texts, chunks, strict=True) for each in cut)


def _decoded(payload: bytes) -> list[DocumentChange]:
    from instep.domain.manifest import decode_changes

    return decode_changes(payload)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def paragraphs(*numbers: int) -> str:
    return "\n\n".join(f"Paragraph number {number} of this text." for number in numbers)


class TestLifecycle:
    def test_new_changed_touched_renamed_and_removed(self, project: Project) -> None:
        texts = {"a.txt": paragraphs(1, 2, 3), "b.txt": paragraphs(4, 5), "empty.txt": ""}
        for name, text in texts.items():
            project.put(name, text)
        first = project.sync()
        assert (first.read, first.written, first.skipped, first.embedded, first.rows_written) == (3, 2, 1, 5, 5)
        assert first.bytes_read == sum(map(len, texts.values()))
        assert project.stored() == project.expected(texts)
        assert project.manifest[project.uri("empty.txt")].chunks == 0
        assert project.changes() == []

        texts["a.txt"] = paragraphs(1, 9, 3)
        project.put("a.txt", texts["a.txt"])
        os.utime(project.folder / "b.txt", ns=(1, 1))
        second = project.sync()
        assert (second.written, second.skipped) == (1, 1)
        assert (second.rows_written, second.rows_deleted, second.rows_kept, second.embedded) == (1, 1, 4, 1)
        assert project.stored() == project.expected(texts)
        assert project.manifest[project.uri("b.txt")].chunks == 2
        assert project.changes() == []

        (project.folder / "b.txt").rename(project.folder / "c.txt")
        texts["c.txt"] = texts.pop("b.txt")
        third = project.sync()
        assert (third.written, third.deleted, third.rows_deleted) == (1, 1, 2)
        assert project.stored() == project.expected(texts)

        (project.folder / "empty.txt").unlink()
        assert project.sync() == Counts(read=1, deleted=1)
        assert set(project.manifest) == {project.uri("a.txt"), project.uri("c.txt")}

    def test_a_text_that_only_moves_changes_no_row_when_all_chunks_are_equal(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1, 2))
        project.sync()
        project.put("a.txt", paragraphs(1, 2) + "\n\n")
        assert project.sync() == Counts(read=1, skipped=1, rows_kept=2, bytes_read=68)
        assert project.changes() == []

    def test_a_file_removed_after_the_listing_is_skipped_and_deleted_by_the_next(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1))
        project.put("b.txt", paragraphs(2))
        changes = project.changes()
        (project.folder / "a.txt").unlink()
        counts = project.sync(changes)
        assert (counts.read, counts.written, counts.skipped) == (2, 1, 1)
        assert set(project.manifest) == {project.uri("b.txt")}

    def test_rows_carry_ref_instance_and_version_and_fit_the_schema(self, project: Project) -> None:
        project.put("a.md", "# Title\n\nSome words.")
        project.sync()
        (row,) = project.target.stored("p")
        assert set(row) == set(row_schema(16).names)
        assert (row["title"], row["_ref"], row["_instance"], row["_version"]) == ("Title", "Document@global", "i", 1)
        assert row["chunk_hash"] == content_hash(f"{row['title']}\0{row['text']}".encode())
        assert np.allclose(row["vector"], HashingEmbedder(16).embed([row["text"]])[0])

    def test_duplicate_rows_in_the_target_are_repaired(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1, 2))
        project.sync()
        index = project.target._store.indexes["p"]
        index.rows[99], index.written_at[99] = index.rows[0], 0
        project.put("a.txt", paragraphs(1, 3))
        assert project.sync().rows_deleted == 2
        assert project.stored() == project.expected({"a.txt": paragraphs(1, 3)})

    @given(st.lists(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 9), max_size=4)), max_size=4))
    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_the_target_always_equals_the_folder(
        self, tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, list[int]]]
    ) -> None:
        project = Project(tmp_path_factory.mktemp("folder"))
        for state in states:
            texts = {f"{name}.txt": paragraphs(*numbers) for name, numbers in state.items()}
            for name in ("a.txt", "b.txt", "c.txt"):
                if name in texts:
                    project.put(name, texts[name])
                else:
                    (project.folder / name).unlink(missing_ok=True)
            # Sizes and times may be equal: these versions say that everything may have changed.
            project.manifest = {uri: entry._replace(version="0") for uri, entry in project.manifest.items()}
            project.sync()
            assert project.stored() == project.expected(texts)


class TestFailures:
    def test_broken_documents_fail_with_a_reason_and_their_neighbours_are_indexed(self, project: Project) -> None:
        project.put("good.txt", paragraphs(1))
        project.put("latin.txt", b"caf\xe9")
        project.put("nul.txt", b"a\x00b")
        project.put("line.txt", b"x" * 1_001)
        project.put("large.txt", b"word\n" * 30_000)
        project.put("cut.pdf", b"%PDF-1.4\n1 0 obj")
        counts = project.sync()
        assert (counts.written, counts.failed) == (1, 5)
        assert project.stored() == project.expected({"good.txt": paragraphs(1)})
        reasons = {name: (failure.stage, failure.reason) for name, failure in project.failures.items()}
        assert reasons == {
            "latin.txt": ("parse", "not UTF-8 at byte 3; if it is cp1252, say so: `encoding: cp1252`"),
            "nul.txt": ("parse", "binary, not text: NUL at byte 1"),
            "line.txt": ("parse", "a line of more than 1,000 bytes (max_line_bytes), at byte 0"),
            "large.txt": ("read", "too large: 150,000 bytes; max_document_bytes is 100,000"),
            "cut.pdf": ("parse", "truncated PDF: its end mark is missing"),
        }
        assert project.changes() == []

    def test_a_document_that_breaks_keeps_its_old_rows_until_it_is_repaired(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1))
        project.sync()
        project.put("a.txt", b"\xff")
        assert project.sync().failed == 1
        assert project.stored() == project.expected({"a.txt": paragraphs(1)})
        project.put("a.txt", paragraphs(2))
        assert project.sync().written == 1
        assert project.stored() == project.expected({"a.txt": paragraphs(2)})
        assert project.failed == {}

    @pytest.mark.parametrize("what", list(Oversize))
    def test_documents_over_a_limit_follow_on_oversize(self, tmp_path: Path, what: Oversize) -> None:
        limits = Limits(max_document_bytes=1_000, max_chunks=3, on_oversize=what)
        project = Project(tmp_path, limits=limits)
        before = {"grows.txt": paragraphs(1), "parts.txt": paragraphs(2), "good.txt": paragraphs(3)}
        for name, text in before.items():
            project.put(name, text)
        project.sync()
        after = {"grows.txt": "word\n" * 201, "parts.txt": paragraphs(1, 2, 3, 4), "good.txt": paragraphs(3, 4)}
        for name, text in {**after, "huge.txt": "word\n" * 801}.items():
            project.put(name, text)
        counts = project.sync()
        reasons = {name: (failure.stage, failure.reason) for name, failure in project.failures.items()}
        if what is Oversize.WARN:
            assert (counts.written, counts.failed, counts.skipped) == (3, 1, 0)
            assert project.stored() == project.expected(after)
            too_large = "too large: 4,005 bytes; not even with a warning are more than 4,000 read"
            assert reasons == {"huge.txt": ("read", too_large)}
        else:
            # What is indexed of them stays.
            assert project.stored() == project.expected({**before, "good.txt": after["good.txt"]})
            skips = what is Oversize.SKIP
            assert (counts.written, counts.failed, counts.skipped) == (1, *((0, 3) if skips else (3, 0)))
            assert reasons == {
                "grows.txt": ("skipped" if skips else "read", "too large: 1,005 bytes; max_document_bytes is 1,000"),
                "huge.txt": ("skipped" if skips else "read", "too large: 4,005 bytes; max_document_bytes is 1,000"),
                "parts.txt": ("skipped" if skips else "chunk", "too large: 4 chunks; max_chunks is 3"),
            }
        assert project.changes() == []
        project.put("parts.txt", paragraphs(5))
        assert project.sync().written == 1

    def test_rows_without_an_end_row_are_refused(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1, 2))
        project.target.fence("p", 1)
        part = WaveSlice("s", 1, 0, 1, project.changes())
        rows = pa.Table.from_batches(project.program.read(iter([change_batch(part)])))
        for broken in (rows.slice(0, 2), rows.slice(0, 1), pa.concat_tables([rows.slice(0, 2), _other(rows)])):
            with pytest.raises(IncompleteDocument):
                list(project.program.write(iter(broken.to_batches())))

    def test_rows_that_a_transform_multiplies_are_refused(self, project: Project) -> None:
        """Such a join would end each document twice, the second time without chunks."""
        project.put("a.txt", paragraphs(1, 2))
        project.put("empty.txt", "")
        part = WaveSlice("s", 1, 0, 1, project.changes())
        rows = pa.Table.from_batches(project.program.read(iter([change_batch(part)])))
        twice = rows.take([place // 2 for place in range(2 * len(rows))])
        for batches in (twice.to_batches(), twice.to_batches(max_chunksize=1)):
            with pytest.raises(IncompleteDocument, match="two end rows"):
                list(project.program.write(iter(batches)))

    def test_a_row_that_does_not_fit_the_target_is_a_failure_of_its_document(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is not embedded either, an older version stays, and the next run may do better."""
        project.put("a.txt", paragraphs(1, 2))
        project.put("b.txt", paragraphs(3))
        project.sync()

        def unfit(_: MemoryWriter, rows: pa.Table) -> Mapping[int, str]:
            return {place: "too long" for place, text in enumerate(rows["text"].to_pylist()) if "number 7" in str(text)}

        monkeypatch.setattr(MemoryWriter, "unfit", unfit)
        project.put("a.txt", paragraphs(1, 5, 7, 6))
        project.put("b.txt", paragraphs(3, 4))
        counts = project.sync()
        assert (counts.written, counts.failed, counts.embedded) == (1, 1, 1)
        assert (project.failures["a.txt"].stage, project.failures["a.txt"].reason) == ("write", "too long")
        assert project.stored() == project.expected({"a.txt": paragraphs(1, 2), "b.txt": paragraphs(3, 4)})
        monkeypatch.undo()
        project.sync(retry=True)
        assert project.stored() == project.expected({"a.txt": paragraphs(1, 5, 7, 6), "b.txt": paragraphs(3, 4)})

    def test_a_row_refused_by_the_index_fails_its_document_alone(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = MemoryWriter.stage

        def refusing(self: MemoryWriter, changes: Iterator[ChunkChanges]) -> bytes:
            return stage(self, (change for change in changes if not _refused(change)))

        monkeypatch.setattr(MemoryWriter, "stage", refusing)
        project.put("a.txt", "poison")
        counts = project.sync()
        assert (counts.written, counts.failed, counts.rows_written) == (0, 1, 0)
        assert (project.failures["a.txt"].stage, project.failures["a.txt"].reason) == ("write", "too bad")
        monkeypatch.undo()
        project.put("b.txt", "fine")
        project.sync(retry=True)
        assert project.stored() == project.expected({"a.txt": "poison", "b.txt": "fine"})


def _refused(change: ChunkChanges) -> bool:
    """Says so of documents with poison in them."""
    bad = [
        document
        for document, text in zip(
            *(change.rows.column(name).to_pylist() for name in ("document_id", "text")), strict=True
        )
        if "poison" in text
    ]
    for each in bad:
        change.refuse(each, "too bad")
    return bool(bad)


def _other(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("document_id")
    return rows.set_column(place, CHUNK_SCHEMA.field(place), pa.array(["doc_other"] * len(rows)))


class TestBatches:
    def test_batches_are_bounded_and_a_large_document_spans_several(self, tmp_path: Path) -> None:
        project = Project(tmp_path, chunker=Chunker(3_000), limits=Limits(100_000_000, 10_000))
        project.put("large.txt", "\n\n".join("word " * 590 for _ in range(6_000)))
        for number in range(500):
            project.put(f"{number}.txt", "small")
        batches = list(project.program.read(iter([change_batch(WaveSlice("s", 1, 0, 1, project.changes()))])))
        assert all(batch.schema.equals(CHUNK_SCHEMA) for batch in batches)
        assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
        assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES
        assert len(batches) > 4
        assert project.sync().rows_written == sum(batch.num_rows for batch in batches) - 501

    def test_many_tiny_documents_in_several_groups(self, project: Project) -> None:
        texts = {f"{number}.txt": f"tiny {number}" for number in range(3_000)}
        for name, text in texts.items():
            project.put(name, text)
        assert project.sync().written == 3_000
        assert project.stored() == project.expected(texts)

    def test_no_changes_give_one_outcome_of_nothing(self, project: Project) -> None:
        assert project.sync() == Counts()

    def test_the_program_travels(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1))
        project.program = pickle.loads(pickle.dumps(project.program))
        assert project.sync().written == 1


class TestTransforms:
    def outcome(self, project: Project, change: Any) -> SliceOutcome:
        project.program = dataclasses.replace(project.program, transformed=True, base=project.target.fence("p", 1))
        part = WaveSlice("s", 1, 0, 1, project.changes())
        rows = pa.Table.from_batches(project.program.read(iter([change_batch(part)]))).to_pylist()
        made = pa.Table.from_pylist(change(rows), schema=CHUNK_SCHEMA)
        wave = Wave("w", PartitionRef("Document"), "i", "p", 1, 0, (part,))
        (task,) = task_outcomes(pa.Table.from_batches(project.program.write(iter(made.to_batches()))), wave)
        project.target.commit("p", base=0, epoch=1, attempt="w", staged=[task.staged], marks=[])
        return task.slices[0]

    def test_a_changed_text_is_hashed_again(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1))

        def shout(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**row, "text": row["text"] and row["text"].upper()} for row in rows]

        assert self.outcome(project, shout).counts.written == 1
        (row,) = project.target.stored("p")
        assert row["text"] == paragraphs(1).upper()
        assert row["chunk_hash"] == content_hash(f"{row['title']}\0{row['text']}".encode())

    def test_texts_that_were_one_and_were_changed_apart_have_vectors_of_their_own(self, project: Project) -> None:
        for name in ("a.txt", "b.txt"):
            project.put(name, paragraphs(1))
        project.program = dataclasses.replace(project.program, embedder=Picky())

        def name_them(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**row, "text": row["text"] and f"{row['source_uri'][-5:]} {row['text']}"} for row in rows]

        assert self.outcome(project, name_them).counts.written == 2
        for row in project.target.stored("p"):
            assert np.allclose(row["vector"], HashingEmbedder(16).embed([row["text"]])[0])

    def test_rows_that_are_no_use_fail_their_document_only(self, project: Project) -> None:
        project.put("a.txt", paragraphs(1))
        project.put("b.txt", paragraphs(2, 3))
        project.put("c.txt", paragraphs(4))

        def spoil(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            for row in rows:
                if row["source_uri"].endswith("a.txt"):
                    row["text"] = None
                yield row
                if row["source_uri"].endswith("b.txt") and not row["end_of_document"]:
                    yield row

        outcome = self.outcome(project, lambda rows: list(spoil(rows)))
        assert (outcome.counts.written, outcome.counts.failed) == (1, 2)
        assert {failure.stage for failure in outcome.failures} == {"transform"}
        assert project.stored() == project.expected({"c.txt": paragraphs(4)})


@dataclasses.dataclass(frozen=True)
class Picky:
    """Hashing, but it refuses some words and spoils others."""

    dimensions: int = 16
    batch: int = 8
    cached: bool = True
    fingerprint: str = "picky"

    def embed(self, texts: Any) -> Vectors:
        words = as_list(texts)
        if any("refuse" in word for word in words):
            raise EmbedRejected("the embedder refused it (400): api_key=verysecret too long")
        if any("outage" in word for word in words):
            raise Transient("the embedder is out of reach")
        made = HashingEmbedder(self.dimensions).embed(words)
        made[["spoil" in word for word in words]] = np.nan
        return made


class TestEmbedding:
    def test_only_the_documents_at_fault_fail_and_keep_their_old_rows(self, tmp_path: Path) -> None:
        project = Project(tmp_path, embedder=Picky())
        texts = {f"{number}.txt": paragraphs(number, number + 1) for number in range(20)}
        for name, text in texts.items():
            project.put(name, text)
        project.sync()
        project.put("3.txt", paragraphs(3) + "\n\nrefuse this paragraph, please do so.")
        project.put("5.txt", "spoil this one")
        project.put("7.txt", paragraphs(70, 71))
        counts = project.sync()
        assert (counts.written, counts.failed) == (1, 2)
        assert project.stored() == project.expected({**texts, "7.txt": paragraphs(70, 71)})
        assert {name: failure.stage for name, failure in project.failures.items()} == {
            "3.txt": "embed",
            "5.txt": "embed",
        }
        assert project.failures["5.txt"].reason == "the vector has NaN in it"
        assert "verysecret" not in project.failures["3.txt"].reason

    def test_an_outage_ends_the_task_and_fails_no_document(self, tmp_path: Path) -> None:
        project = Project(tmp_path, embedder=Picky())
        project.put("a.txt", "outage")
        with pytest.raises(Transient):
            project.sync()
        assert project.failures == {}

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    def test_an_embedder_that_refuses_all_texts_is_an_error_of_the_project(self, tmp_path: Path, status: int) -> None:
        with serving() as endpoint:
            endpoint.behave = lambda _: (status, {}, {"error": "the model is being loaded"})
            embedder = HttpEmbedder(endpoint.url, "model", 3, batch=8, attempts=2, first_wait=0.01)
            project = Project(tmp_path, embedder=embedder)
            for number in range(20):
                project.put(f"{number}.txt", paragraphs(number))
            try:
                with pytest.raises(UserError, match="the model is being loaded"):
                    project.sync()
            finally:
                close_connections()
            assert len(endpoint.asked) <= 2
            assert project.failures == {}

    def test_over_http_a_rebuild_pays_nothing_twice(self, tmp_path: Path) -> None:
        with serving() as endpoint:
            try:
                self._pays_once(tmp_path, endpoint)
            finally:
                close_connections()

    def _pays_once(self, tmp_path: Path, endpoint: Endpoint) -> None:
        def picky(texts: list[str]) -> Answer:
            return (400, {}, {"error": "no"}) if any("number 6 " in text for text in texts) else good(texts)

        endpoint.behave = picky
        embedder = HttpEmbedder(endpoint.url, "model", 3, batch=4, attempts=2, first_wait=0.01)
        cache = str(tmp_path / "cache")
        project = Project(tmp_path / "docs", embedder=embedder, cache=cache)
        texts = {f"{number}.txt": paragraphs(number % 4, 100 + number) for number in range(10)}
        for name, text in {**texts, "bad.txt": paragraphs(6)}.items():
            project.put(name, text)
        counts = project.sync()
        assert (counts.written, counts.failed, counts.embedded) == (10, 1, 14)
        embedded = Counter(text for texts in endpoint.asked for text in texts if "number 6 " not in text)
        assert embedded.pop(PROBE) == 1  # Whether it refuses all texts, or that one.
        assert set(embedded) == {text for _, text in project.stored()}

        endpoint.asked.clear()
        again = Project(tmp_path / "docs", embedder=embedder, cache=cache)
        counts = again.sync()
        assert (counts.written, counts.failed, counts.embedded) == (10, 1, 0)
        assert again.stored() == project.expected(texts)
        assert {text for texts in endpoint.asked for text in texts} == {paragraphs(6), PROBE}
        assert again.target.stored("p")[0]["vector"] == project.target.stored("p")[0]["vector"]
