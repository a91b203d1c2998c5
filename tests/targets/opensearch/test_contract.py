"""The OpenSearch target on a real server: the contract, and what is OpenSearch's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from instep.targets.document_target import DocumentTarget
from instep.targets.opensearch.layout import LATER, STATE, STATE_INDEX, coded
from instep.targets.opensearch.target import OpenSearchTarget
from instep.targets.ownership import NotOurs, Owner
from instep.testing.ownership import OURS, DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import Content, OnOneIndex
from tests.contracts.target_in_short import ShortContract
from tests.targets.opensearch.conftest import forget_all


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTarget]:
    target = OpenSearchTarget(opensearch)
    yield target
    forget_all(target)


class OnOpenSearch(OnOneIndex):
    def content(self, target: DocumentTarget, physical: str) -> Content:
        """As a reader finds it."""
        assert isinstance(target, OpenSearchTarget)
        target.indexes.refresh(coded(physical))
        body = {"size": 10_000, "_source": ["document_id", "text"]}
        found = target.indexes.connection.ask("POST", f"/{coded(physical)}/_search", body)["hits"]["hits"]
        return Counter((each["_source"]["document_id"], each["_source"]["text"]) for each in found)


@pytest.mark.proof
class TestOpenSearch(OnOpenSearch, TargetContract):
    every = 8
    rounds = 2
    upkeep = ("indexed",)


class TestOpenSearchInShort(OnOpenSearch, ShortContract):
    pass


@pytest.mark.proof
class TestOwnership(DocumentOwnership):
    def test_a_journal_of_earlier_versions_takes_owners(self, target: OpenSearchTarget) -> None:
        indexes = target.indexes
        indexes.connection.ask("DELETE", f"/{quote(STATE)}")
        mappings = STATE_INDEX["mappings"]
        properties = {name: kind for name, kind in mappings["properties"].items() if name not in LATER}
        indexes.create(STATE, {**STATE_INDEX, "mappings": {**mappings, "properties": properties}})
        index = self.names[0]
        self.make(target, index)
        target.promote("Document", index, 5)
        before = target.owned_by(Owner(OURS.id, frozenset({index})))
        self.write(before, index, before.fence(index, 6), epoch=6, attempt="1")
        assert [target.owner_of(name) for name in (index, "Document")] == [OURS.id, OURS.id]

    def test_an_alias_of_no_ledger_is_left_alone(self, target: OpenSearchTarget) -> None:
        """It may be a person's own."""
        ours, (index, other) = target.owned_by(OURS), self.names
        self.make(target, index)
        self.make(ours, other)
        target.indexes.point("Document", index)
        with pytest.raises(NotOurs):
            ours.promote("Document", other, 1)
        assert target.indexes.behind("Document") == [coded(index)]
        ours.claim("Document", of="")
        assert (ours.owner_of("Document"), ours.served("Document")) == (OURS.id, index)
        ours.promote("Document", other, 1)
        assert target.indexes.behind("Document") == [coded(other)]
