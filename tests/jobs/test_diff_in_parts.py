"""A comparison of a corpus in many parts, and a repair whose plan is cut out of files: as one of all of it at once."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from instep.cli import main
from instep.domain.identity import canonical_uri, content_hash, document_id
from instep.entities.documents import differences
from instep.entities.documents.differences import Differences
from tests.contracts.document_diff import CLEAN, DiffContract, seen
from tests.e2e.tickets import Desk

from .projects import Home, home
from .tampering import Tamperer, altered, stranger

FEED = """\
name: feed
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: feed, path: feed}
    embed: {type: hashing, dimensions: 8}
"""


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.document_state.corpus_parts._DOCUMENTS", 2)
    monkeypatch.setattr("instep.entities.documents.source_parts.FEW", 2)
    monkeypatch.setattr("instep.pipeline.documents.stored_changes.FEW", 0)
    monkeypatch.setattr("instep.ledger.plans._FILE_ROWS", 1)


@pytest.mark.usefixtures("in_parts")
class TestLance(DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: lance, uri: .instep/index}"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A table that has changed since it was indexed, in an index that others have changed."""
    made = Desk(tmp_path / "desk", "parquet")
    made.declare()
    made.fill(60)
    made.run()
    tamperer = Tamperer(Home(made.root), "Ticket")
    for number in range(10, 20):
        tamperer.change(ticket(number), lambda row: [])
    for number in range(20, 24):
        tamperer.change(ticket(number), altered)
    tamperer.change(ticket(24), lambda row: [row, row])
    gone = [f"table://Ticket/{number}" for number in (700, 701)]
    # Neither recorded nor listed; the first under the id that it would have, the other under a foreign one.
    row = stranger(gone[0]) | {"document_id": document_id(canonical_uri(gone[0])), "chunk_id": content_hash(b"700")}
    tamperer.add(row, stranger(gone[1]))
    made.change(3, body="Another text.")
    made.change(11, body="Another one.")
    made.remove(6)
    made.save()
    return made


def ticket(number: int) -> str:
    return document_id(canonical_uri(f"table://Ticket/{number}"))


def said(found: Differences) -> dict[str, Any]:
    examples = {(*each.document, each.pending, each.failed) for each in found.examples}
    numbers = (found.rows, found.recorded, found.found, found.pending, found.changes)
    return {"examples": examples, "numbers": numbers, "served": found.served}


def test_a_table_in_parts_differs_as_it_does_as_a_whole(desk: Desk, request: pytest.FixtureRequest) -> None:
    place = Home(desk.root)
    whole = said(seen(place))
    found = seen(place)
    assert found.counts == {"missing": 10, "stale": 4, "orphan": 2, "duplicate": 1}
    assert (found.pending["changed"], found.pending["deleted"], found.pending["new"]) == (2, 1, 0)
    assert [each.document.uri for each in found.examples if each.pending] == ["table://Ticket/11"]
    request.getfixturevalue("in_parts")
    assert said(seen(place)) == whole


@pytest.mark.usefixtures("in_parts")
def test_a_repair_in_parts_mends_all_and_leaves_changes_of_the_table_to_the_next_run(desk: Desk) -> None:
    place = Home(desk.root)
    (result,) = place.open().repair()
    assert result.problem is None
    assert result.plan.found.counts["unchanged"] == 60 - 15
    assert (result.counts.failed, result.counts.deleted) == (0, 2)
    found = seen(place)
    assert found.counts == CLEAN
    assert found.changes == 2  # One of the three was missing, and is read as it is now.
    del result  # Whoever has the plan may read its files.
    gc.collect()
    assert not (desk.root / ".instep" / "planning").exists()
    desk.change(24, body="Written anew.")  # Its row has the right hash, and another text behind it.
    desk.save()
    desk.run()
    assert desk.wrong() == ""


def test_a_feed_in_parts_differs_as_it_does_as_a_whole(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place, feed = Home(tmp_path), tmp_path / "feed"
    (tmp_path / "instep.yaml").write_text(FEED)
    feed.mkdir()

    def tell(name: str, **values: object) -> None:
        with (feed / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")

    for number in range(12):
        tell("ab"[number % 2], id=str(number), version="1", op="upsert", text=f"Text of {number}.")
    place.run()
    tamperer = Tamperer(place)
    for number in range(6):
        tamperer.change(document_id(canonical_uri(f"feed://Document/{number}")), lambda row: [])
    (feed / "b.jsonl").unlink()  # Nothing is said of these any more.
    tell("a", id="2", version="2", op="delete")
    tell("a", id="4", version="2", op="upsert", text="Another text.")
    whole = said(seen(place))
    assert (seen(place).counts["missing"], seen(place).pending["deleted"], seen(place).pending["changed"]) == (6, 1, 1)
    request.getfixturevalue("in_parts")
    assert said(seen(place)) == whole
    (result,) = place.open().repair(allow_deletes=True)
    assert (result.counts.written, result.counts.deleted) == (2, 1)
    (left,) = result.plan.found.problems
    assert left.startswith("3 documents cannot be repaired: the source does not list feed://Document/")


def test_a_bounded_number_of_documents_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = home(tmp_path, 30)
    place.run()
    tamperer = Tamperer(place)
    tamperer.target.drop(tamperer.physical)
    assert len(seen(place).examples) == 30
    assert main(["diff", "--quiet", "--project", str(place.root)]) == 2
    assert "and 10 more" in capsys.readouterr().out
    monkeypatch.setattr(differences, "NAMED", 3)
    (found,) = place.open().diff()
    assert found.documents is not None
    assert len(found.documents) == 3
    assert found.found is not None
    assert found.found["missing"].documents == 30
