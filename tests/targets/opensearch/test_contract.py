"""The OpenSearch target on a real server: the contract, and what is OpenSearch's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from instep.targets.opensearch.names import coded
from instep.targets.opensearch.target import OpenSearchTarget
from instep.targets.port import DocumentTarget
from tests.contracts.target import TargetContract
from tests.contracts.target_rows import Content
from tests.targets.opensearch.conftest import forget_all


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTarget]:
    target = OpenSearchTarget(opensearch)
    yield target
    forget_all(target)


class TestOpenSearch(TargetContract):
    every = 8
    rounds = 2
    upkeep = ("indexed",)

    def content(self, target: DocumentTarget, physical: str) -> Content:
        """As a reader finds it."""
        assert isinstance(target, OpenSearchTarget)
        target.indexes.refresh(coded(physical))
        body = {"size": 10_000, "_source": ["document_id", "text"]}
        found = target.indexes.connection.ask("POST", f"/{coded(physical)}/_search", body)["hits"]["hits"]
        return Counter((each["_source"]["document_id"], each["_source"]["text"]) for each in found)
