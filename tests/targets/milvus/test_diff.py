"""`instep diff` on Milvus."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.targets.milvus import layout, location
from instep.targets.milvus.location import Location
from tests.contracts.chunk_identity import ChunkIdentityContract
from tests.contracts.document_diff import DiffContract, repaired, seen
from tests.jobs.projects import Home
from tests.jobs.tampering import Tamperer


@pytest.mark.proof
class TestMilvus(ChunkIdentityContract, DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: milvus, uri: .instep/milvus.db}"

    def test_rows_that_another_client_wrote_are_found_and_removed(self, place: Home) -> None:
        before = self.contents(place)
        physical = Tamperer(place).physical
        collection = location.collection(physical)
        lite = Location(str(place.root / ".instep" / "milvus.db"))
        (row, *_) = lite.call("query", collection, filter='chunk_id != ""', output_fields=["*"])
        theirs = {name: value for name, value in row.items() if name != "_words"} | {"chunk_id": "theirs"}
        partition = layout.found(lite, physical).partition(row["document_id"])
        lite.call("upsert", collection, [theirs], partition_name=partition)
        assert seen(place).counts["orphan"] == 1
        repaired(place)
        assert self.contents(place) == before
