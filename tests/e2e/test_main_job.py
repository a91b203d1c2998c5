"""The main job against an independent truth: first build, edits, deletes, renames, rebuilds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from instep.domain.jobs import JobState
from instep.domain.status import IndexState
from instep.entities.plan_request import Kind
from instep.errors import UserError

from . import corpus, truth
from .conftest import Location


def test_the_first_run_indexes_every_document_exactly_once(place: Location) -> None:
    result = place.run()
    assert result.state is JobState.COMPLETED
    assert result.promoted
    assert result.notes == []
    assert place.wrong() == ""
    assert result.counts.read == result.counts.written == 60
    assert result.counts.rows_written == sum(truth.stored(place.index).values())


def test_a_second_run_finds_nothing_to_do_and_writes_nothing(place: Location) -> None:
    place.run()
    before = _files(place)
    result = place.run()
    assert result.state is None
    assert result.plan.kind is Kind.NOTHING
    assert result.plan.found.counts["unchanged"] == 60
    # SQLite may touch its shared-memory file when the ledger is opened.
    assert {name: size for name, size in _files(place).items() if "ledger" not in name} == {
        name: size for name, size in before.items() if "ledger" not in name
    }


def test_plan_shows_the_actions_of_a_run_and_writes_no_state(place: Location) -> None:
    (plan,) = place.open().plan()
    assert plan.kind is Kind.FIRST_BUILD
    assert plan.counts["new"] == 60
    assert plan.units == 60
    assert plan.work > 0
    assert not (place.root / ".instep").exists()


def test_edits_deletes_and_additions_reach_the_index_and_nothing_else_is_touched(place: Location) -> None:
    place.run()
    edited = corpus.path(place.docs, 3)
    edited.write_text(edited.read_text() + "\n## More\n\nA new ending that was not there before.\n")
    corpus.path(place.docs, 4).unlink()
    corpus.write(place.docs, range(60, 62))
    (plan,) = place.open().plan()
    assert (plan.counts["new"], plan.counts["changed"], plan.counts["deleted"]) == (2, 1, 1)
    result = place.run()
    assert place.wrong() == ""
    assert (result.counts.written, result.counts.deleted, result.counts.failed) == (3, 1, 0)
    assert result.counts.balanced
    # Of the edited document only the chunks that differ were written.
    assert result.counts.rows_kept > 0


def test_only_the_changed_chunk_of_a_document_is_embedded_and_written(place: Location) -> None:
    place.run()
    edited = corpus.path(place.docs, 7)
    lines = edited.read_text().splitlines()
    edited.write_text("\n".join([*lines[:-1], lines[-1].replace("a", "e", 1)]) + "\n")
    result = place.run()
    assert place.wrong() == ""
    assert result.counts.rows_written == 1
    assert result.counts.embedded == 1
    assert (
        result.counts.rows_kept
        == sum(1 for identity, _ in truth.stored(place.index) if identity == _identity(place, 7)) - 1
    )


def test_a_touched_file_with_equal_bytes_is_read_but_not_chunked(place: Location) -> None:
    place.run()
    os.utime(corpus.path(place.docs, 5))
    result = place.run()
    assert (result.counts.read, result.counts.skipped, result.counts.rows_written) == (1, 1, 0)
    assert place.run().state is None


def test_a_rename_is_a_delete_and_an_insert(place: Location) -> None:
    place.run()
    corpus.path(place.docs, 8).rename(place.docs / "renamed.md")
    result = place.run()
    assert (result.counts.written, result.counts.deleted) == (1, 1)
    assert place.wrong() == ""


def test_a_changed_chunk_size_rebuilds_beside_the_live_index_and_plan_gives_the_reason(place: Location) -> None:
    place.run()
    old = truth.served(place.index)
    place.declare(chunk=300)
    (plan,) = place.open().plan()
    assert plan.kind is Kind.REBUILD
    assert "chunker changed" in plan.why
    result = place.run()
    assert result.promoted
    assert truth.served(place.index) != old
    assert place.wrong() == ""


def test_a_changed_embedder_rebuilds(place: Location) -> None:
    place.run()
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace("dimensions: 32", "dimensions: 48"))
    (plan,) = place.open().plan()
    assert plan.kind is Kind.REBUILD
    assert any(why.startswith("embedder") for why in plan.why)
    place.run()
    assert place.wrong() == ""


def test_another_bucket_count_is_refused_and_a_full_refresh_accepts_it(place: Location) -> None:
    place.run()
    place.declare(entity="buckets: 5")
    with pytest.raises(UserError, match="16 buckets"):
        place.run()
    assert place.run(full_refresh=True).promoted
    assert place.wrong() == ""


def test_mass_deletion_is_refused_until_it_is_allowed(place: Location) -> None:
    corpus.write(place.docs, range(60, 200))
    place.run()
    for number in range(120):
        corpus.path(place.docs, number).unlink()
    with pytest.raises(UserError, match="120 of 200") as refused:
        place.run()
    assert "--allow-deletes" in str(refused.value)
    assert sum(truth.stored(place.index).values()) > 0
    assert place.run(allow_deletes=True).counts.deleted == 120
    assert place.wrong() == ""


def test_a_missing_source_folder_is_an_error_and_deletes_nothing(place: Location) -> None:
    place.run()
    before = truth.stored(place.index)
    shutil.move(place.docs, place.docs.with_name("elsewhere"))
    with pytest.raises(UserError, match="docs"):
        place.run()
    assert truth.stored(place.index) == before


def test_a_saved_plan_runs_exactly_or_is_refused_when_the_world_moved(place: Location) -> None:
    (plan,) = place.open().plan()
    digests = {str(plan.ref): plan.digest}
    corpus.write(place.docs, range(60, 61))
    with pytest.raises(UserError, match="out of date"):
        place.run(expected=digests)
    corpus.path(place.docs, 60).unlink()
    assert place.run(expected=digests).state is JobState.COMPLETED
    with pytest.raises(UserError, match="out of date"):
        place.run(expected=digests)


def test_search_finds_words_meanings_and_both(place: Location) -> None:
    (place.docs / "tides.md").write_text("# Tides\n\nThe moon pulls the sea twice a day.\n")
    place.run()
    project = place.open()
    for mode in ("text", "vector", "hybrid"):
        found = project.search("moon pulls the sea", mode=mode, limit=3)
        assert found[0].source_uri.endswith("tides.md"), mode
    (start, end), *_ = found[0].marks
    assert found[0].snippet[start:end] == "moon"


def test_search_before_the_first_run_gives_a_hint(place: Location) -> None:
    with pytest.raises(UserError, match="nothing is indexed yet"):
        place.open().search("anything")


def test_status_shows_the_state_before_and_after(place: Location) -> None:
    (before,) = place.open().status()
    assert before.state is IndexState.NOT_INDEXED
    place.run()
    (after,) = place.open().status()
    assert after.state is IndexState.INDEXED
    assert after.documents == 60
    assert after.rows == sum(truth.stored(place.index).values())


def test_an_index_deleted_by_others_is_unknown_and_a_run_says_how_to_repair_it(place: Location) -> None:
    place.run()
    shutil.rmtree(truth.served(place.index))
    (status,) = place.open().status()
    assert status.state is IndexState.UNKNOWN
    corpus.write(place.docs, range(60, 61))
    with pytest.raises(UserError, match="gone") as gone:
        place.run()
    assert "--full-refresh" in str(gone.value)
    place.run(full_refresh=True)
    assert place.wrong() == ""


def test_rows_removed_by_others_are_noticed(place: Location) -> None:
    import lance

    place.run()
    lance.dataset(truth.served(place.index)).delete("chunk_index = 0")
    (status,) = place.open().status()
    assert any("rows" in note for note in status.notes)


def test_every_row_names_the_partition_instance_and_epoch_that_wrote_it(place: Location) -> None:
    import lance

    place.run()
    (status,) = place.open().status()
    table = lance.dataset(truth.served(place.index)).to_table(columns=["_ref", "_instance", "_version"])
    assert set(table["_ref"].to_pylist()) == {"Document@global"}
    assert set(table["_instance"].to_pylist()) == {status.instance}
    assert all(version >= 1 for version in table["_version"].to_pylist())


def test_a_run_with_nothing_to_do_starts_no_jvm_and_imports_no_spark(place: Location) -> None:
    place.run()
    code = (
        "import sys, instep; instep.load('.').run();"
        "print([name for name in ('pyspark', 'py4j', 'lance', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place.root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _identity(place: Location, number: int) -> str:
    import hashlib

    return "doc_" + hashlib.sha256(corpus.path(place.docs, number).as_uri().encode()).hexdigest()


def _files(place: Location) -> dict[str, int]:
    return {
        str(path.relative_to(place.root)): path.stat().st_size
        for path in place.root.rglob("*")
        if path.is_file() and "/.lock" not in str(path)
    }
