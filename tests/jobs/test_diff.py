"""Comparing targets with what they should hold: the contract on Lance, and rows without an owner."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from instep.cli import main
from instep.domain.identity import content_hash
from instep.entities.documents import comparing, source_parts
from instep.errors import Away, UserError
from instep.jobs.slice_claims import SliceClaims
from instep.pipeline.documents import comparison
from instep.targets.lance import LanceTarget
from tests.contracts.chunk_identity import ChunkIdentityContract
from tests.contracts.document_diff import CLEAN, DiffContract, identity, repaired, seen

from ..e2e import corpus
from .projects import home
from .tampering import Tamperer, stranger


class TestLance(ChunkIdentityContract, DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: lance, uri: .instep/index}"


def test_nothing_is_compared_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing is built"):
        home(tmp_path).open().diff()


def test_after_a_lost_ledger_the_way_to_an_index_is_reported(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    for file in (tmp_path / ".instep").glob("ledger.db*"):
        file.unlink()
    with pytest.raises(UserError, match="nothing is built of Document@global, as far as this ledger knows") as refused:
        place.open().diff()
    assert refused.value.hint == "Build it: instep run Document"
    with pytest.raises(UserError, match="nothing is built of generation 'v2'") as refused:
        place.open().diff(generation="v2")
    assert refused.value.hint == "Build it: instep run Document --generation v2"


def test_a_generation_that_is_not_the_one_that_is_read_is_named_in_the_way_to_it(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.open().run(generation="v2")
    place.open().promote("Document", "v2")
    with pytest.raises(UserError, match="nothing is built of the generation without a name") as refused:
        place.open().diff(generation="")
    assert refused.value.hint == "Build it: instep run Document --generation '' (built: 'v2')"


def test_while_a_job_has_not_ended_the_target_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    place.run()
    Tamperer(place).change(identity(place, 2), lambda row: [])
    place.change(1, "one line more")

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SliceClaims, "complete", die)  # It is in the target, and not recorded.
        with pytest.raises(KeyboardInterrupt):
            place.run()
    with pytest.raises(Away, match="has not ended"):
        seen(place)
    repaired(place)  # It ends the job first.
    assert not seen(place).changes


def test_a_job_that_ends_during_a_comparison_invalidates_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    place.run()
    compare = comparison.compare

    def slowly(*args: Any) -> Any:
        found = compare(*args)
        place.change(1, "one line more")
        place.run()
        return found

    monkeypatch.setattr(comparison, "compare", slowly)
    with pytest.raises(Away, match="while it was compared"):
        seen(place)


def test_a_comparison_names_failed_documents(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    place.path(1).write_bytes(b"\x00\x01broken\x00")
    assert place.run().counts.failed == 1
    Tamperer(place).change(identity(place, 1), lambda row: [])
    (found,) = place.open().diff()
    assert found.documents is not None
    assert [(each.kind, each.failed) for each in found.documents] == [("missing", True)]
    assert found.pending is not None
    assert found.pending["known_failures"] == 1
    (result,) = place.open().repair()
    assert result.counts.failed == 1
    assert seen(place).counts == {**CLEAN, "missing": 1}


def test_an_alias_that_leads_elsewhere_is_moved_back(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    target = LanceTarget(str(tmp_path / ".instep" / "index"))
    for alias in (tmp_path / ".instep" / "index").glob("Document.alias-*.json"):
        alias.unlink()
    assert target.served("Document") is None
    assert seen(place).differs
    repaired(place)
    assert target.served("Document") is not None


def test_documents_of_an_older_ledger_are_compared_by_their_number_of_chunks(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    with closing(sqlite3.connect(tmp_path / ".instep" / "ledger.db")) as ledger:
        ledger.execute("UPDATE documents SET digest = NULL")
        ledger.commit()
    Tamperer(place).change(identity(place, 1), lambda row: [row | {"chunk_hash": "0" * 64}])
    Tamperer(place).change(identity(place, 2), lambda row: [row] if row["chunk_index"] else [])
    assert seen(place).counts == {**CLEAN, "missing": 1}


def test_a_comparison_in_columns_says_what_one_of_objects_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long listings are compared in columns: here those of three documents and more."""
    place = home(tmp_path, 8)
    place.run()
    Tamperer(place).change(identity(place, 1), lambda row: [])
    Tamperer(place).change(identity(place, 2), lambda row: [row | {"chunk_hash": "0" * 64}])
    Tamperer(place).change(identity(place, 3), lambda row: [row, row])
    place.path(2).unlink()
    place.change(4, "one line more")
    before = seen(place)
    monkeypatch.setattr(comparing, "FEW", 2)
    monkeypatch.setattr(source_parts, "FEW", 2)
    now = seen(place)
    assert now.examples == before.examples
    assert now.counts == {**CLEAN, "missing": 1, "stale": 1, "duplicate": 1}
    assert now.pending == before.pending
    assert now.changes == 2
    assert (now.recorded, now.rows, now.problems) == (before.recorded, before.rows, before.problems)
    repaired(place)
    assert seen(place).counts == CLEAN


def test_a_comparison_separates_changes_of_the_source(tmp_path: Path) -> None:
    """And left to the next run, by a repair too."""
    place = home(tmp_path, 8)
    place.run()
    checkpoint = place.open().status()[0].watermark
    place.change(1, "one line more")
    place.path(2).unlink()
    place.path(3).write_bytes(b"\xff\xfe\x00broken\x00")
    corpus.write(place.docs, range(8, 9))
    pending = seen(place)
    assert not pending.differs
    assert pending.changes == 4
    Tamperer(place).change(identity(place, 5), lambda row: [])
    repaired(place)
    assert seen(place).changes == 4
    assert place.open().status()[0].watermark == checkpoint
    place.run()
    assert not seen(place).changes


def test_many_rows_are_not_removed_unasked(tmp_path: Path) -> None:
    place = home(tmp_path, 8)
    place.run()
    file = place.root / "instep.yaml"
    file.write_text(file.read_text() + "    deletes: {floor: 1}\n")
    rows = [stranger(f"file:///s{n}") | {"document_id": f"s{n}", "chunk_id": content_hash(b"%d" % n)} for n in range(9)]
    Tamperer(place).add(*rows)
    assert main(["diff", "--repair", "--quiet", "--project", str(place.root)]) == 1
    assert seen(place).counts["orphan"] == 9
    assert main(["diff", "--repair", "--allow-deletes", "--quiet", "--project", str(place.root)]) == 0
    assert seen(place).counts == CLEAN


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = home(tmp_path, 8)
    place.run()
    options = ["Document", "--project", str(place.root), "--quiet"]
    assert main(["diff", *options]) == 0
    Tamperer(place).change(identity(place, 1), lambda row: [])
    capsys.readouterr()
    assert main(["diff", *options]) == 2
    assert "missing" in capsys.readouterr().out
    assert main(["diff", *options, "--json"]) == 2
    (shown,) = json.loads(capsys.readouterr().out)
    (document,) = shown["documents"]
    assert (document["uri"], document["kind"], document["pending"]) == (place.uri(1), "missing", False)
    assert shown["found"]["missing"] == {"documents": 1, "rows": document["rows"]}
    assert main(["diff", *options, "--repair"]) == 0
    assert main(["diff", *options]) == 0


def test_a_repair_gives_no_empty_reason_for_what_could_not_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = home(tmp_path)
    file = place.root / "instep.yaml"
    file.write_text(file.read_text() + "  Note: {source: {type: files, path: notes}}\n")
    (place.root / "notes").mkdir()
    assert main(["diff", "--repair", "--quiet", "--project", str(place.root)]) == 1
    said = capsys.readouterr()
    assert "nothing is built of Note@global" in said.err
    assert [line for line in said.out.splitlines() if line.strip() in ("Document:", "Note:")] == []


def test_unlisted_documents_of_a_feed_are_not_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A feed says nothing of what is as it was; its files may be gone."""
    place = home(tmp_path, 1)
    file = place.root / "instep.yaml"
    lines = [line for line in file.read_text().splitlines() if "source:" not in line]
    lines.insert(lines.index("  Document:") + 1, f'    source: {{type: feed, path: "{tmp_path}/feed"}}')
    file.write_text("\n".join(lines) + "\n")
    feed = tmp_path / "feed"
    feed.mkdir()
    for name in "ab":
        line = json.dumps({"id": name, "version": "1", "op": "upsert", "text": f"text of {name}"})
        (feed / f"{name}.jsonl").write_text(line + "\n")
    place.run()
    assert seen(place).counts == CLEAN
    tamperer = Tamperer(place)
    for row in tamperer.rows():
        tamperer.change(row["document_id"], lambda row: [])
    (feed / "a.jsonl").unlink()
    assert seen(place).counts == {**CLEAN, "missing": 2}
    command = ["diff", "--repair", "--quiet", "--project", str(place.root)]
    main(command)
    assert "1 document cannot be repaired" in capsys.readouterr().out
    assert seen(place).counts == {**CLEAN, "missing": 1}
    assert main(command) == 3
