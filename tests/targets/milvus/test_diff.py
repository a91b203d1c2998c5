"""`instep diff` on Milvus."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.document_diff import DiffContract


class TestMilvus(DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: milvus, uri: .instep/milvus.db}"
