"""`instep diff` on Qdrant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.chunk_identity import FRONT, PARAGRAPHS, PROJECT, ChunkIdentityContract
from tests.contracts.document_diff import DiffContract
from tests.doubles.qdrant_server import QdrantServer
from tests.jobs.projects import Home


class TestQdrant(ChunkIdentityContract, DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: qdrant, uri: .instep/qdrant}"


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    with QdrantServer() as running:
        yield running


def sent(server: QdrantServer) -> int:
    """Points that came over the wire since this was last asked."""
    bodies = [body for method, path, body in server.requests if method == "PUT" and path.endswith("/points")]
    server.requests.clear()
    # Records of Instep's own are points of a collection without chunks.
    return sum("text" in each for body in bodies for each in body["batch"]["payloads"])


def test_one_point_goes_over_the_wire_for_a_paragraph_in_front_of_sixteen(server: QdrantServer, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "instep.yaml").write_text(PROJECT.format(setting=f"{{type: qdrant, uri: '{server.url}'}}"))
    place = Home(tmp_path)
    for paragraphs, points in (
        (PARAGRAPHS, 16),
        ([FRONT, *PARAGRAPHS], 1),
        ([*PARAGRAPHS[:8], f"Again: {FRONT}", *PARAGRAPHS[9:]], 1),
        (PARAGRAPHS[1:], 1),
    ):
        (place.docs / "one.txt").write_text("\n\n".join(paragraphs) + "\n")
        place.run()
        assert sent(server) == points
