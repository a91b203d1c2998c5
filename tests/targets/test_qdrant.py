"""The Qdrant target in this process, by the engine of Qdrant itself: the contract, and what is Qdrant's own."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import qdrant_edge

from instep.domain.waves import Mark
from instep.errors import Fenced, UserError
from instep.targets.document_target import DocumentTarget
from instep.targets.journal import Journal
from instep.targets.ownership import NotOurs
from instep.targets.qdrant import collections, edge, writing
from instep.targets.qdrant.collections import point_id
from instep.targets.qdrant.edge import EdgeCollections
from instep.targets.qdrant.folder import folder
from instep.targets.qdrant.target import QdrantTarget
from instep.testing.ownership import OURS, DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import BUCKETS, DIMENSIONS, Content, OnOneIndex, expected, put, rows_of
from tests.contracts.target_in_short import ShortContract


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: Qdrant waits for the disk at every step, which is not tested here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        path = Path(made)
        yield path
        folder(path).close()


class OnQdrantInProcess(OnOneIndex):
    @pytest.fixture
    def target(self, quick_path: Path) -> QdrantTarget:
        return QdrantTarget(str(quick_path), None)

    def content(self, target: DocumentTarget, physical: str) -> Content:
        """As Qdrant itself has it."""
        assert isinstance(target, QdrantTarget)
        assert isinstance(target.collections, EdgeCollections)
        with target.collections.open(physical) as shard:
            rows, _ = shard.scroll(qdrant_edge.ScrollRequest(limit=100_000, with_payload=["document_id", "text"]))
        return Counter((row.payload["document_id"], row.payload["text"]) for row in rows)


@pytest.mark.proof
class TestQdrantInProcess(OnQdrantInProcess, TargetContract):
    every = 6
    rounds = 2
    upkeep = ("indexed",)
    counts_repeats = False


class TestQdrantInProcessInShort(OnQdrantInProcess, ShortContract):
    pass


class TestOwnership(DocumentOwnership):
    @pytest.fixture
    def target(self, quick_path: Path) -> QdrantTarget:
        return QdrantTarget(str(quick_path), None)


@pytest.fixture
def target(quick_path: Path) -> QdrantTarget:
    made = QdrantTarget(str(quick_path), None)
    made.create("D__1", DIMENSIONS, BUCKETS)
    return made


def test_an_index_that_was_dropped_in_part_is_swept(target: QdrantTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EdgeCollections, "drop", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            target.drop("D__1")
    assert target.leftovers("D", idle_seconds=3600) == ["D__1"]
    assert not target.exists("D__1")
    target.drop("D__1")
    assert target.leftovers("D", idle_seconds=3600) == []


def test_a_partly_dropped_index_is_swept_by_its_owner(target: QdrantTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = target.owned_by(OURS)
    ours.create("D__2", DIMENSIONS, BUCKETS)
    with monkeypatch.context() as patch:
        patch.setattr(EdgeCollections, "drop", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ours.drop("D__2")
    assert target.leftovers("D", idle_seconds=3600) == []
    assert ours.leftovers("D", idle_seconds=3600) == ["D__2"]


def test_an_alias_of_no_ledger_is_left_alone(target: QdrantTarget, quick_path: Path) -> None:
    """It may be a person's own."""
    ours = target.owned_by(OURS)
    ours.create("D__2", DIMENSIONS, BUCKETS)
    target.collections.point("D", "D__1")
    assert ours.owner_of("D") == ""
    with pytest.raises(NotOurs):
        ours.promote("D", "D__2", 1)
    assert (quick_path / "D").readlink().name == "D__1"
    ours.claim("D", of="")
    assert (ours.owner_of("D"), ours.served("D")) == (OURS.id, "D__1")
    ours.promote("D", "D__2", 1)
    assert (quick_path / "D").readlink().name == "D__2"


def test_leftovers_of_a_killed_write_are_removed(target: QdrantTarget, quick_path: Path) -> None:
    def leave() -> None:
        for name in (".new-1", ".gone-1"):
            (quick_path / name / "segments").mkdir(parents=True)
        (quick_path / ".alias-1").symlink_to("D__1", target_is_directory=True)

    there = {each.name for each in quick_path.iterdir()}
    leave()
    target.create("D__2", DIMENSIONS, BUCKETS)
    leave()
    target.drop("D__2")
    assert {each.name for each in quick_path.iterdir()} == there
    assert target.exists("D__1")


def test_ids_never_change() -> None:
    """A change of them would store every chunk a second time."""
    assert point_id("") == "8fd6a1b8-dce9-5cb1-a0cf-4aeaba5e802f"
    assert point_id("doc_1|0") == "9e8fffb1-bee7-529e-89cc-f4b07187e4ee"
    assert point_id("ü\0") == "34f8252c-27c4-5771-bff2-296bb0ac2318"


def test_requests_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of({"small": ["s"] * 7, "large": ["x" * 5_000], "more": ["m"] * 3})
    monkeypatch.setattr(collections, "REQUEST_ROWS", 4)
    monkeypatch.setattr(collections, "REQUEST_BYTES", 4_000)
    parts = list(collections.requests(rows))
    assert [part.num_rows for part in parts] == [4, 3, 1, 3]
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(rows)
    assert list(collections.requests(rows.slice(0, 0))) == []


def test_a_document_with_more_rows_than_an_answer_holds_is_read_whole(
    target: QdrantTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PAGE", 3)
    put(target, "D__1", {"long": [f"{number}" for number in range(8)]}, epoch=1, attempt="1")
    base = put(target, "D__1", {"long": ["new"]}, epoch=1, attempt="2")
    assert target.writer("D__1", base).existing(["long"]).num_rows == 1


def test_a_row_that_no_request_holds_is_no_fit_for_the_index(target: QdrantTarget) -> None:
    rows = rows_of({"a": ["fits", "x" * (writing.ROW_BYTES + 1)], "b": ["fits"]}).drop_columns(["vector"])
    writer = target.writer("D__1", target.fence("D__1", 1))
    unfit = writer.unfit(pa.Table.from_batches([rows]))
    assert list(unfit) == [1]
    assert "16,777," in unfit[1]
    assert writer.unfit(pa.Table.from_batches([rows.slice(0, 0)])) == {}


def test_other_programs_find_a_collection_by_its_alias(target: QdrantTarget, quick_path: Path) -> None:
    put(target, "D__1", {"a": ["one", "two"]}, epoch=2**40, attempt="1")
    target.promote("D", "D__1", 2**40)
    folder(quick_path).close()
    shard = qdrant_edge.EdgeShard.load(str(quick_path / "D"))
    row = rows_of({"a": ["one", "two"]}, epoch=2**40).to_pylist()[1]
    (found,) = shard.retrieve([point_id(row["chunk_id"])], with_payload=True, with_vector=True)
    vector = row.pop("vector")
    assert found.payload == row
    assert found.vector == pytest.approx([each / math.hypot(*vector) for each in vector])
    shard.close()
    target.promote("D", None, 2**40 + 1)
    assert not (quick_path / "D").exists()


def test_the_folder_of_another_mode_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(UserError, match="qdrant-client"):
        QdrantTarget(str(tmp_path), None).check()


def test_staged_rows_outlive_the_process(tmp_path: Path) -> None:
    """It ends without a word, right after it has staged and committed."""
    program = f"""
import os, sys
sys.path.insert(0, {str(Path.cwd())!r})
from instep.targets.qdrant.target import QdrantTarget
from instep.domain.waves import Mark
from instep.testing.target_rows import put
target = QdrantTarget({str(tmp_path / "index")!r}, None)
target.create("D__1", 4, 4)
put(target, "D__1", {{"a": ["one"]}}, epoch=1, attempt="1", marks=[Mark("s", 1, b"done")])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    target = QdrantTarget(str(tmp_path / "index"), None)
    assert target.rows("D__1") == 1
    assert target.committed("D__1", 0, ["s"]) == {"s": b"done"}
    folder(Path(target.uri)).close()


def test_an_index_that_was_not_finished_is_none_yet(target: QdrantTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the collection and the record that it is complete."""
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "made", lambda self: None)
        target.create("D__2", DIMENSIONS, BUCKETS)
    assert not target.exists("D__2")
    assert target.leftovers("D", idle_seconds=3600) == []
    assert target.leftovers("D", idle_seconds=0) == ["D__1", "D__2"]
    target.create("D__2", DIMENSIONS, BUCKETS)
    assert target.exists("D__2")


def test_an_index_of_other_dimensions_is_refused(target: QdrantTarget) -> None:
    with pytest.raises(UserError, match=f"{DIMENSIONS} dimensions, not 7"):
        target.create("D__1", 7, BUCKETS)


def test_an_alias_cannot_be_an_index(target: QdrantTarget) -> None:
    target.create("Plain", DIMENSIONS, BUCKETS)
    with pytest.raises(UserError, match="Plain"):
        target.promote("Plain", "D__1", 1)
    assert target.served("Plain") is None


def test_old_records_are_dropped_once_their_epoch_is_over(
    target: QdrantTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = put(target, "D__1", {"a": ["1"]}, epoch=1, attempt="1", marks=[Mark("s", 1, b"1")])
    put(target, "D__1", {"a": ["2"]}, epoch=2, attempt="2", marks=[Mark("s", 2, b"2")])
    monkeypatch.setattr("instep.targets.logged_target.KEEP_SECONDS", -1)
    before = target.collections.count("_instep")
    target.maintain("D__1")
    assert target.collections.count("_instep") < before
    assert target.committed("D__1", base, ["s"]) == {"s": b"2"}
    assert target.exists("D__1")
    with pytest.raises(Fenced):
        target.writer("D__1", base)


def test_a_large_index_gets_an_index_of_its_vectors(target: QdrantTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it is served, and it is kept up to date from then on."""
    documents = {f"d{number}": [f"{number}"] for number in range(400)}
    put(target, "D__1", documents, epoch=1, attempt="1")
    assert not target.refinable("D__1")
    monkeypatch.setattr(edge, "ANN_ROWS", 300)
    monkeypatch.setattr(edge, "_INDEXED_FROM", 1)
    assert target.refinable("D__1")
    for _ in range(2):
        target.refine("D__1")
        assert not target.refinable("D__1")
    assert isinstance(target.collections, EdgeCollections)
    with target.collections.open("D__1") as shard:
        assert shard.info().indexed_vectors_count == 400
    put(target, "D__1", {"d7": ["changed"]}, epoch=2, attempt="2")
    target.maintain("D__1")
    assert TestQdrantInProcess().content(target, "D__1") == expected({**documents, "d7": ["changed"]})


#: Fills a disk of its own, first by what is indexed and then to its last byte.
ON_A_SMALL_DISK = """
import sys, uuid
from pathlib import Path
import numpy as np
from instep.errors import UserError
from instep.targets.qdrant.edge import EdgeCollections
from instep.targets.qdrant.folder import folder
from instep.targets.qdrant.collections import Points, Where

disk = Path(sys.argv[1])
collections = EdgeCollections(disk / "index")
folder(disk / "index").path.mkdir()
collections.create("A__1", 384, {"document_id": "keyword", "text": "text"})
try:
    for _ in range(1_000):
        payloads = [{"document_id": "d", "text": "word " * 100} for _ in range(500)]
        points = Points([str(uuid.uuid4()) for _ in payloads], payloads, np.ones((500, 384), np.float32))
        collections.upsert("A__1", points, only_if=Where())
except UserError as error:
    print(error.what)
collections.sync("A__1")
print(collections.count("A__1") > 0)
folder(disk / "index").close()
with (disk / "fill").open("wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(1 << 20))
    except OSError:
        pass
for question in (lambda: collections.count("A__1"), lambda: collections.check()):
    try:
        question()
    except UserError as error:
        print(error.what)
(disk / "fill").unlink()
print(collections.count("A__1") > 0)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs Linux namespaces")
@pytest.mark.proof
def test_a_full_disk_is_reported_and_ends_no_process(tmp_path: Path) -> None:
    disk, code = tmp_path / "disk", tmp_path / "fill.py"
    disk.mkdir()
    code.write_text(ON_A_SMALL_DISK)
    script = f"mount -t tmpfs -o size=220m tmpfs {disk} || exit 99; exec {sys.executable} {code} {disk}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (1, 99) and not done.stdout:
        pytest.skip(f"may not mount here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    first, some, opening, writing_, again = done.stdout.splitlines()
    assert first.startswith("no space left for the index: Qdrant needs 128 MB, and ")
    assert opening == "no space left for the index: Qdrant needs 32 MB, and 0 MB are free"
    assert writing_.startswith("no space left for the index") or writing_.startswith("the folder cannot be written")
    assert (some, again) == ("True", "True")
