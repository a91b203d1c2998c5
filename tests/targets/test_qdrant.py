"""The Qdrant target in this process, by the engine of Qdrant itself: the contract, and what is Qdrant's own."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.targets.port import DocumentTarget
from instep.targets.qdrant.folder import folder
from instep.targets.qdrant.target import QdrantTarget
from tests.contracts.target import TargetContract
from tests.contracts.target_rows import Content


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: Qdrant waits for the disk at every step, which is not tested here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        path = Path(made)
        yield path
        folder(path).close()


class TestQdrantInProcess(TargetContract):
    @pytest.fixture
    def target(self, quick_path: Path) -> QdrantTarget:
        return QdrantTarget(str(quick_path), None)

    def content(self, target: DocumentTarget, physical: str) -> Content:
        """As Qdrant itself has it."""
        assert isinstance(target, QdrantTarget)
        import qdrant_edge as edge

        with target.collections._shard(physical) as shard:
            rows, _ = shard.scroll(edge.ScrollRequest(limit=100_000, with_payload=["document_id", "text"]))
        return Counter((row.payload["document_id"], row.payload["text"]) for row in rows)
