"""`instep diff` on Qdrant."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.chunk_identity import ChunkIdentityContract
from tests.contracts.document_diff import DiffContract


class TestQdrant(ChunkIdentityContract, DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: qdrant, uri: .instep/qdrant}"
