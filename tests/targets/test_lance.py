"""The Lance target: the contract, and what is Lance's own."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.waves import Mark
from instep.domain.words import text_query
from instep.errors import Conflict, Fenced, Transient, Unknown, UserError
from instep.targets.document_target import DocumentTarget
from instep.targets.lance import LanceTarget, upkeep
from instep.targets.lance.upkeep import TAIL_FRAGMENTS, most_segments, trailing_merge
from instep.testing.ownership import DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import BUCKETS, DIMENSIONS, Content, expected, put, replaced, vector_of


def dataset_of(target: LanceTarget, physical: str) -> Any:
    return target._place.open(physical)


class TestLance(TargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> LanceTarget:
        return LanceTarget(str(tmp_path / "index"))

    def content(self, target: DocumentTarget, physical: str) -> Content:
        assert isinstance(target, LanceTarget)
        table = dataset_of(target, physical).to_table(columns=["document_id", "text"])
        return Counter(zip(table["document_id"].to_pylist(), table["text"].to_pylist(), strict=True))


class TestOwnership(DocumentOwnership):
    @pytest.fixture(params=["folder", "object store"])
    def target(self, request: pytest.FixtureRequest, tmp_path: Path) -> LanceTarget:
        folder = request.param == "folder"
        return LanceTarget(str(tmp_path / "index") if folder else f"file-object-store://{tmp_path}/index")


@pytest.fixture
def target(tmp_path: Path) -> LanceTarget:
    made = LanceTarget(str(tmp_path / "index"))
    made.create("D", DIMENSIONS, BUCKETS)
    return made


def content(target: LanceTarget) -> Content:
    return TestLance().content(target, "D")


def found(target: LanceTarget, *documents: str) -> list[str]:
    """Documents found through the index."""
    rows = target.writer("D", target.fence("D", 1_000_000)).existing(documents)
    return sorted(str(document) for document in rows["document_id"].to_pylist())


# -- addresses ---------------------------------------------------------------------------------


def test_fragment_ids_are_never_used_again(target: LanceTarget) -> None:
    """An index names rows by fragment id: a new row in an old place would answer for the dead one."""
    put(target, "D", {"a": ["1"]}, epoch=1, attempt="1")
    put(target, "D", {"last": ["2"]}, epoch=1, attempt="2")
    target.maintain("D")
    highest = max(each.fragment_id for each in dataset_of(target, "D").get_fragments())
    put(target, "D", {"last": []}, epoch=1, attempt="3")
    assert highest not in {each.fragment_id for each in dataset_of(target, "D").get_fragments()}
    put(target, "D", {"new": ["3"]}, epoch=1, attempt="4")
    assert max(each.fragment_id for each in dataset_of(target, "D").get_fragments()) > highest
    assert found(target, "last", "new", "a") == ["a", "new"]
    assert found(target, "last") == []


def test_a_compaction_since_the_base_is_a_conflict(target: LanceTarget) -> None:
    for n in range(4):
        put(target, "D", {f"d{n}": ["old"]}, epoch=1, attempt=str(n))
    base = target.fence("D", 1)
    staged = [replaced(target, "D", base, {"d0": ["new"]})]
    target.maintain("D", full=True)
    with pytest.raises(Conflict):
        target.commit("D", base=base, epoch=1, attempt="x", staged=staged, marks=[])
    assert content(target) == expected({f"d{n}": ["old"] for n in range(4)})


def test_new_rows_are_no_conflict_with_a_compaction(target: LanceTarget) -> None:
    for n in range(4):
        put(target, "D", {f"d{n}": ["old"]}, epoch=1, attempt=str(n))
    base = target.fence("D", 1)
    staged = [replaced(target, "D", base, {"e": ["new"]})]
    target.maintain("D", full=True)
    target.commit("D", base=base, epoch=1, attempt="x", staged=staged, marks=[])
    assert found(target, "d0", "d3", "e") == ["d0", "d3", "e"]


@pytest.mark.proof
def test_upkeep_beside_commits_loses_nothing(target: LanceTarget) -> None:
    """Compaction and index builds race with commits of another process's kind (fresh handles)."""
    stop, errors = threading.Event(), []

    def upkeep() -> None:
        while not stop.is_set():
            try:
                target.maintain("D", full=True)
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=upkeep)
    thread.start()
    documents: dict[str, list[str]] = {}
    try:
        for n in range(60):
            change = {f"d{n}": ["new"], f"d{n // 2}": [f"changed {n}"]}
            while True:
                base = target.fence("D", 1)
                staged = [replaced(target, "D", base, change)]
                try:
                    target.commit("D", base=base, epoch=1, attempt=f"{n}-{base}", staged=staged, marks=[])
                except Conflict:
                    continue
                break
            documents |= change
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert content(target) == expected(documents)
    assert found(target, *documents) == sorted(documents)


# -- history -----------------------------------------------------------------------------------


def test_without_the_history_since_the_base_nothing_is_committed(target: LanceTarget) -> None:
    base = target.fence("D", 1)
    staged = [replaced(target, "D", base, {"a": ["1"]})]
    put(target, "D", {"b": ["2"]}, epoch=1, attempt="1")
    dataset_of(target, "D").cleanup_old_versions(retain_versions=1)
    with pytest.raises(Fenced):
        LanceTarget(target.uri).commit("D", base=base - 1, epoch=1, attempt="2", staged=staged, marks=[])
    assert content(target) == expected({"b": ["2"]})


def test_a_base_that_was_cleaned_away_belongs_to_the_past(target: LanceTarget) -> None:
    base = target.fence("D", 1)
    target.fence("D", 2)
    dataset_of(target, "D").cleanup_old_versions(retain_versions=1)
    with pytest.raises(Fenced):
        target.writer("D", base)


def test_a_commit_in_a_removed_version_is_unknown_not_absent(target: LanceTarget) -> None:
    base = target.fence("D", 1)
    dataset_of(target, "D").cleanup_old_versions(retain_versions=1)
    put(target, "D", {"b": ["2"]}, epoch=1, attempt="1")
    dataset_of(target, "D").cleanup_old_versions(retain_versions=1)
    with pytest.raises(Unknown):
        target.committed("D", base - 1, ["s"])


def test_upkeep_never_drops_the_history_of_the_present_epoch(target: LanceTarget) -> None:
    eager = LanceTarget(target.uri, keep_seconds=0)
    put(eager, "D", {"a": ["0"]}, epoch=1, attempt="0")
    base = eager.fence("D", 2)
    for n in range(10):
        put(eager, "D", {f"d{n}": ["1"]}, epoch=2, attempt=f"{n}", marks=[Mark(f"s{n}", 1, b"o")])
        eager.maintain("D", full=True)
    assert eager.committed("D", base, [f"s{n}" for n in range(10)]) == {f"s{n}": b"o" for n in range(10)}
    staged = [replaced(eager, "D", base, {"new": ["x"]})]
    eager.commit("D", base=base, epoch=2, attempt="late", staged=staged, marks=[])
    assert sum(content(eager).values()) == 12
    newest = eager.fence("D", 3)
    eager.maintain("D", full=True)
    assert min(each["version"] for each in dataset_of(eager, "D").versions()) == newest


def test_marks_of_a_fence_outlive_upkeep_as_long_as_the_epoch_lasts(target: LanceTarget) -> None:
    eager = LanceTarget(target.uri, keep_seconds=0)
    put(eager, "D", {"a": ["0"]}, epoch=1, attempt="0")
    base = eager.fence("D", 2)
    staged = [replaced(eager, "D", base, {"new": ["zombie"]})]
    eager.fence("D", 2, [Mark("s", 2, b"")])
    for n in range(5):
        put(eager, "D", {f"d{n}": ["1"]}, epoch=2, attempt=f"{n}")
        eager.maintain("D", full=True)
    with pytest.raises(Fenced):
        eager.commit("D", base=base, epoch=2, attempt="zombie", staged=staged, marks=[Mark("s", 1, b"")])


@pytest.mark.parametrize("renewed", [True, False], ids=["newer epoch", "same epoch"])
def test_a_zombie_whose_history_was_cleaned_away_is_refused(target: LanceTarget, renewed: bool) -> None:
    """Also when no transaction says so any more: its marks and who took its slice are gone with the transactions."""
    eager = LanceTarget(target.uri, keep_seconds=0)
    base = eager.fence("D", 1)
    staged = [replaced(eager, "D", base, {"new": ["zombie"]})]
    eager.fence("D", 1, [Mark("s", 2, b"")])
    for n in range(3):
        put(eager, "D", {f"d{n}": ["1"]}, epoch=2 if renewed else 1, attempt=f"{n}")
        eager.maintain("D", full=True)
    if not renewed:
        # Upkeep keeps this epoch's versions, another program may not.
        dataset_of(eager, "D").cleanup_old_versions(retain_versions=1)
    assert base not in [each["version"] for each in dataset_of(eager, "D").versions()]
    for marks in ([Mark("s", 1, b"")], [Mark("another", 1, b"")]):
        with pytest.raises(Fenced):
            eager.commit("D", base=base, epoch=1, attempt="zombie", staged=staged, marks=marks)
    assert content(eager) == expected({f"d{n}": ["1"] for n in range(3)})


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_without_a_reply_is_looked_up(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    import lance

    base = target.fence("D", 1)
    staged = [replaced(target, "D", base, {"a": ["1"]})]
    real = lance.LanceDataset.commit

    def cut_off(*args: Any, **kwargs: Any) -> Any:
        if applied:
            real(*args, **kwargs)
        raise OSError("connection reset")

    def commit() -> None:
        target.commit("D", base=base, epoch=1, attempt="1", staged=staged, marks=[])

    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, "commit", cut_off)
        if applied:
            commit()
        else:
            with pytest.raises(Transient):
                commit()
    assert content(target) == (expected({"a": ["1"]}) if applied else Counter())
    commit()
    assert content(target) == expected({"a": ["1"]})


@pytest.mark.parametrize("said", ["No space left on device (os error 28)", "File too large (os error 27)"])
def test_a_full_disk_is_for_the_user(target: LanceTarget, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    import lance

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(f"LanceError(IO): {said}")

    monkeypatch.setattr(lance.LanceDataset, "commit", full)
    with pytest.raises(UserError, match="no space left"):
        target.fence("D", 1)


# -- upkeep ------------------------------------------------------------------------------------


@pytest.mark.proof
def test_two_hundred_tiny_runs_leave_few_pieces(target: LanceTarget) -> None:
    eager = LanceTarget(target.uri, keep_seconds=0)
    documents = {f"d{n}": [f"text {n}"] for n in range(100)}
    put(eager, "D", documents, epoch=1, attempt="first")
    eager.maintain("D")
    fragments = []
    for run in range(200):
        change = {f"d{run % 100}": [f"changed {run}"], f"d{(run * 7) % 100}": [f"changed {run}"]}
        put(eager, "D", change, epoch=run + 2, attempt=str(run))
        eager.maintain("D")
        documents |= change
        fragments.append(len(dataset_of(eager, "D").get_fragments()))
    dataset = dataset_of(eager, "D")
    assert max(fragments) <= TAIL_FRAGMENTS + 4
    assert all(len(index.segments) <= 3 for index in dataset.describe_indices())
    assert len(dataset.versions()) <= 120
    assert len(list(Path(eager.uri).rglob("*"))) <= 600
    assert content(eager) == expected(documents)


@given(st.lists(st.integers(1, 10_000), max_size=300))
def test_deltas_stay_few(tails: list[int]) -> None:
    sizes: list[int] = []
    for tail in tails:
        merged = trailing_merge(sizes, tail)
        sizes = [*sizes[: len(sizes) - merged], tail + sum(sizes[len(sizes) - merged :])]
    assert sum(sizes) == sum(tails)
    assert len(sizes) <= 1 + math.log2(max(sum(sizes), 1)) + 1


@given(st.lists(st.integers(upkeep.TAIL_ROWS, 500_000), max_size=300))
def test_deltas_that_have_a_bound_stay_below_it_and_few(tails: list[int]) -> None:
    sizes: list[int] = []
    for tail in tails:
        merged = trailing_merge(sizes, tail, 1_000_000)
        sizes = [*sizes[: len(sizes) - merged], tail + sum(sizes[len(sizes) - merged :])]
    assert sum(sizes) == sum(tails)
    assert max(sizes, default=0) <= 1_000_000
    assert len(sizes) <= most_segments(sum(sizes), 1_000_000)


@given(st.integers(1, 100_000))
def test_a_small_delta_never_swallows_a_large_index(size: int) -> None:
    assert trailing_merge([size], size // 2 - 1 if size > 3 else 0) == 0


def test_a_tail_is_indexed_when_it_is_worth_it(target: LanceTarget) -> None:
    put(target, "D", {f"d{n}": ["x"] for n in range(100)}, epoch=1, attempt="1")
    target.maintain("D")
    put(target, "D", {f"e{n}": ["x"] for n in range(100)}, epoch=1, attempt="2")
    target.maintain("D")
    assert {each.num_rows_indexed for each in dataset_of(target, "D").describe_indices()} == {100}
    put(target, "D", {f"f{n}": ["x"] for n in range(6000)}, epoch=1, attempt="3")
    target.maintain("D")
    assert {each.num_rows_indexed for each in dataset_of(target, "D").describe_indices()} == {6200}


def test_a_first_text_index_is_built_in_segments_that_cover_every_row(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SEGMENT_ROWS", 100)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for part in range(5):
        put(target, "D", {f"d{part}-{n}": [f"word{part}x{n}"] for n in range(100)}, epoch=1, attempt=str(part))
    target.maintain("D")
    (text,) = [each for each in dataset_of(target, "D").describe_indices() if each.name == "_searched_idx"]
    assert len(text.segments) == 3
    assert text.num_rows_indexed == 500
    for wanted in ("word0x0", "word4x99"):
        hits = target.search("D", entity="D", text=text_query(wanted), vector=None, mode="text", limit=5)
        assert [hit.text for hit in hits] == [wanted]
    put(target, "D", {f"e{n}": [f"late{n}"] for n in range(6000)}, epoch=1, attempt="late")
    target.maintain("D")
    (hit,) = target.search("D", entity="D", text=text_query("late5999"), vector=None, mode="text", limit=5)
    assert hit.text == "late5999"


def test_segments_of_a_text_index_are_not_larger_than_what_fits_into_memory(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_MOST_ROWS", 100)
    monkeypatch.setattr(upkeep, "_MOST_SHARE", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for part in range(10):
        put(target, "D", {f"d{part}-{n}": [f"word{part}x{n}"] for n in range(50)}, epoch=1, attempt=str(part))
    target.maintain("D")
    (text,) = [each for each in dataset_of(target, "D").describe_indices() if each.name == "_searched_idx"]
    assert len(text.segments) == 5
    assert text.num_rows_indexed == 500
    for wanted in [f"word{part}x{n}" for part in range(10) for n in (0, 49)]:
        hits = target.search("D", entity="D", text=text_query(wanted), vector=None, mode="text", limit=5)
        assert [hit.text for hit in hits] == [wanted]


def test_segments_of_a_text_index_stay_few_while_its_rows_are_replaced(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_MOST_ROWS", 200)
    monkeypatch.setattr(upkeep, "_MOST_SHARE", 0)
    monkeypatch.setattr(upkeep, "TAIL_ROWS", 20)
    some, texts, most = random.Random(1), {f"d{n}": [f"first{n}"] for n in range(600)}, 0
    put(target, "D", texts, epoch=1, attempt="first")
    for part in range(45):
        target.maintain("D")
        indexes = {each.name: each for each in dataset_of(target, "D").describe_indices()}
        most = max(most, len(indexes["_searched_idx"].segments))
        changed = {document: [f"word{part}of{document}"] for document in some.sample(sorted(texts), 60)}
        put(target, "D", changed, epoch=part + 2, attempt=str(part))
        texts |= changed
    assert most <= most_segments(900, 200) + 1
    for wanted in (text for document in some.sample(sorted(texts), 20) for text in texts[document]):
        hits = target.search("D", entity="D", text=text_query(wanted), vector=None, mode="text", limit=5)
        assert [hit.text for hit in hits] == [wanted]


def test_vectors_get_an_index_when_there_are_many(target: LanceTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ANN_ROWS", 1_000)

    def nearest(text: str) -> str:
        vector = vector_of(text)
        (hit,) = target.search("D", entity="D", text=text_query(""), vector=vector, mode="vector", limit=1)
        assert hit.score == pytest.approx(1.0, abs=1e-5)
        return hit.text

    def indexes() -> set[str]:
        return {each.name for each in dataset_of(target, "D").describe_indices()}

    put(target, "D", {f"d{n}": [f"text {n}"] for n in range(900)}, epoch=1, attempt="0")
    assert not target.refinable("D")
    target.refine("D")
    put(target, "D", {f"d{n}": [f"text {n}"] for n in range(900, 1_500)}, epoch=1, attempt="1")
    target.maintain("D")
    assert "vector_idx" not in indexes()
    assert nearest("text 700") == "text 700"
    assert target.refinable("D")
    target.refine("D")
    assert "vector_idx" in indexes()
    assert not target.refinable("D")
    put(target, "D", {"d700": ["another"], "new": ["text new"]}, epoch=1, attempt="2")
    target.maintain("D")
    put(target, "D", {"d701": ["changed"], "newer": ["text newer"]}, epoch=1, attempt="3")
    for full in (False, True):
        target.maintain("D", full=full)
        for text in ("another", "text new", "changed", "text newer", "text 1499"):
            assert nearest(text) == text
    assert target.rows("D") == 1_502


# -- the place ---------------------------------------------------------------------------------


def test_no_rows_leave_no_file(target: LanceTarget) -> None:
    before = sorted(Path(target.uri).rglob("*.lance"))
    target.writer("D", target.fence("D", 1)).stage(iter([]))
    assert sorted(Path(target.uri).rglob("*.lance")) == before


def test_a_relative_address_is_fixed_where_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LanceTarget("a/b").uri == str(tmp_path / "a/b")
    assert LanceTarget(f"file://{tmp_path}/with%20space").uri == f"{tmp_path}/with space"


def test_odd_folders(tmp_path: Path) -> None:
    target = LanceTarget(str(tmp_path / "a b%20c ü'#?x"))
    target.check()
    target.create("D", DIMENSIONS, BUCKETS)
    put(target, "D", {"a": ["1"], "b": ["2"]}, epoch=1, attempt="1")
    put(target, "D", {"a": [], "b": []}, epoch=1, attempt="2")
    put(target, "D", {"a": ["3"]}, epoch=1, attempt="3")
    target.maintain("D")
    target.promote("alias", "D", 1)
    assert target.served("alias") == "D"
    assert content(target) == expected({"a": ["3"]})
    target.drop("D")
    assert not target.exists("D")


def test_a_place_that_is_a_file_is_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for uri in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError):
            LanceTarget(str(uri)).check()


def test_a_store_that_refuses_is_for_the_user_and_keeps_secrets() -> None:
    options = {
        "aws_access_key_id": "AKIAVERYSECRET",
        "aws_secret_access_key": "sesamopen-secret",
        "aws_region": "us-east-1",
        "aws_endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "client_max_retries": "0",
        "download_retry_count": "0",
    }
    target = LanceTarget("s3://bucket/prefix", options)
    with pytest.raises(UserError) as caught:
        target.check()
    shown = f"{caught.value}{caught.value.__cause__}{target!r}"
    assert "VERYSECRET" not in shown
    assert "sesamopen" not in shown


def test_another_number_of_dimensions_is_refused(target: LanceTarget) -> None:
    with pytest.raises(UserError, match="dimensions"):
        target.create("D", DIMENSIONS + 1, BUCKETS)


def test_importing_the_target_does_not_import_lance() -> None:
    code = "import sys, instep.targets.lance; assert 'lance' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_written_to_the_terminal(tmp_path: Path) -> None:
    code = """
import sys
from instep.domain.words import text_query
from instep.targets.lance import LanceTarget, upkeep
from instep.testing.target_rows import *
target = LanceTarget(sys.argv[1])
target.create("D", DIMENSIONS, BUCKETS)
for n in range(3):
    put(target, "D", {"a": [f"{n}"], f"b{n}": ["x"]}, epoch=1, attempt=f"{n}")
    target.maintain("D", full=True)
target.search("D", entity="D", text=text_query("x"), vector=[1.0] * DIMENSIONS, mode="hybrid", limit=3)
put(target, "D", {"a": [], "b0": [], "b1": [], "b2": []}, epoch=1, attempt="last")
target.maintain("D", full=True)
target.drop("D")
"""
    environment = {key: value for key, value in os.environ.items() if key != "LANCE_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x")], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout + done.stderr == ""


def test_ctrl_c_within_lance_is_neither_an_outage_nor_an_error(target: LanceTarget, tmp_path: Path) -> None:
    import lance
    import pyarrow as pa

    schema = pa.schema([("a", pa.int64())])

    def interrupted() -> Iterator[pa.RecordBatch]:
        raise KeyboardInterrupt
        yield

    read = pa.RecordBatchReader.from_batches(schema, interrupted())
    with pytest.raises(KeyboardInterrupt), target._place.understood():
        lance.write_dataset(read, tmp_path / "other")
    with pytest.raises(KeyboardInterrupt), target._place.understood():
        raise RuntimeError("External error: KeyboardInterrupt: ")


def test_an_outage_that_names_an_interrupt_is_an_outage(target: LanceTarget) -> None:
    with pytest.raises(Transient), target._place.understood():
        raise OSError("the store: no such object notes/KeyboardInterrupt.md")


def test_a_file_of_the_index_that_is_gone_is_an_error_with_a_hint(target: LanceTarget) -> None:
    with pytest.raises(UserError, match="files of the index are gone") as raised, target._place.understood():
        raise ValueError("External error: Not found: index/Document__01.lance/data/10.lance")
    assert "instep run --full-refresh" in (raised.value.hint or "")


@pytest.mark.parametrize("how", ["take", "count", "delete"])
def test_a_lost_file_of_rows_is_no_outage_however_it_is_met(target: LanceTarget, how: str) -> None:
    import lance
    import pyarrow as pa

    made = lance.write_dataset(pa.table({"a": [1, 2, 3]}), target._place.dataset_uri("Document__01"))
    calls = {
        "take": lambda: made.take([0]),
        "count": lambda: made.count_rows("a > 1"),
        "delete": lambda: made.delete("a > 1"),
    }
    (file,) = Path(target._place.dataset_uri("Document__01"), "data").iterdir()
    file.unlink()
    with pytest.raises(UserError, match="files of the index are gone") as raised, target._place.understood():
        calls[how]()
    assert "instep run --full-refresh" in (raised.value.hint or "")


def test_a_file_of_an_older_version_that_was_cleaned_away_is_worth_another_try(target: LanceTarget) -> None:
    from datetime import timedelta

    import lance
    import pyarrow as pa

    uri = target._place.dataset_uri("Document__01")
    older = lance.write_dataset(pa.table({"a": [1, 2, 3]}), uri)
    lance.write_dataset(pa.table({"a": [4]}), uri, mode="overwrite").cleanup_old_versions(
        timedelta(0), delete_unverified=True
    )
    with pytest.raises(Transient), target._place.understood():
        older.take([0])
