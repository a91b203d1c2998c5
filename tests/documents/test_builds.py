"""Two builds side by side: in parts they are what they are at once, and no document is an object of Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instep.document_state import corpus_parts
from instep.document_state.losses import emptied, missing, tally
from instep.domain.counts import Counts
from instep.domain.identity import canonical_uri, document_id
from instep.domain.manifest import ManifestEntry
from instep.domain.rows import DocumentColumns
from instep.domain.waves import SliceOutcome
from instep.entities.documents import builds
from instep.entities.documents.builds import Beside, side_by_side
from instep.ledger import documents
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.sources.tables.row_documents import RowDocuments
from tests.contracts.ledger.building import START, VirtualClock


def uri(number: int) -> str:
    return f"table://Row/{number}"


def write(ledger: Ledger, instance: str, numbers: range, *, version: str, chunks: int = 1) -> None:
    entries = [
        ManifestEntry(document_id(canonical_uri(uri(each))), uri(each), 10, version, "hash", chunks, 0)
        for each in numbers
    ]
    ledger.database.write(lambda tx: documents._write(tx, instance, [SliceOutcome("s", 1, Counts(), entries, [])]))


def setup() -> Any:
    unread: Any = None
    return SimpleNamespace(source=RowDocuments("Row", DocumentColumns(("id",), "text"), unread, unread))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A build of 400 documents, 100 of which come, go, have changed, or lost their chunks."""
    found = open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=VirtualClock(START))
    write(found, "served", range(300), version="1")
    write(found, "built", range(100, 400), version="1")
    write(found, "built", range(150, 200), version="2")
    write(found, "built", range(200, 220), version="1", chunks=0)
    return found


FAILED = {uri(number): "1" for number in range(90, 100)}


def numbers(found: list[Beside]) -> tuple[list[int], int, list[int]]:
    tallied = [tally(each.served, each.built, each.failed["uri"].combine_chunks()) for each in found]
    return (
        [sum(column) for column in zip(*tallied, strict=True)],
        sum(missing(each.served["uri"], each.built["uri"]) for each in found),
        [sum(column) for column in zip(*(emptied(each.served, each.built) for each in found), strict=True)],
    )


@pytest.mark.parametrize("base", [False, True])
def test_parts_of_two_builds_add_up_to_the_whole(ledger: Ledger, base: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(side_by_side(setup(), ledger, "served", "built", FAILED))
    assert len(whole) == 1
    monkeypatch.setattr(builds, "TOGETHER", 100)
    monkeypatch.setattr(corpus_parts, "_DOCUMENTS", 50)
    if base:
        monkeypatch.setattr(documents, "_BASE_ROWS", 1)
        ledger.documents.compact("served", in_pieces=True)
    some = list(side_by_side(setup(), ledger, "served", "built", FAILED))
    assert len(some) == 8
    assert all(each.failed.num_rows < len(FAILED) for each in some)
    assert numbers(some) == numbers(whole)
    assert numbers(whole) == ([300, 0, 200, 0, 150, 0], 100, [20, 20, 20])


def test_builds_side_by_side_are_no_objects(ledger: Ledger) -> None:
    numbers(list(side_by_side(setup(), ledger, "served", "built", FAILED)))  # What is imported stays.
    before = sys.getallocatedblocks()
    found = list(side_by_side(setup(), ledger, "served", "built", FAILED))
    kept = numbers(found)
    assert sys.getallocatedblocks() - before < 300  # There are 600 documents.
    assert kept
