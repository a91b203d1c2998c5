"""The double keeps the contract of the targets that it stands for."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.targets.document_target import DocumentTarget
from instep.testing.ownership import DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import Content, commit_slices
from tests.doubles.memory_target import MemoryTarget


@pytest.mark.proof
class TestMemoryTarget(TargetContract):
    @pytest.fixture
    def target(self) -> MemoryTarget:
        return MemoryTarget()

    def content(self, target: DocumentTarget, physical: str) -> Content:
        assert isinstance(target, MemoryTarget)
        return Counter((row["document_id"], row["text"]) for row in target.stored(physical))

    def test_concurrent_committers_all_land(self, target: DocumentTarget, index: str) -> None:
        """In threads: rows in memory are not shared between processes."""
        base = target.fence(index, 1)
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(commit_slices, target, index, base, worker, 10) for worker in range(4)]:
                done.result()
        names = [f"w{worker}-{number}" for worker in range(4) for number in range(10)]
        assert target.committed(index, base, names) == {name: name.encode() for name in names}
        assert target.rows(index) == len(names) + 4


class TestOwnership(DocumentOwnership):
    @pytest.fixture
    def target(self) -> MemoryTarget:
        return MemoryTarget()
