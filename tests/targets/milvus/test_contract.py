"""What every target for documents must do, by Milvus: all of it in this process, on a server what may differ there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from instep.targets.document_target import DocumentTarget
from instep.targets.milvus.location import Location
from instep.targets.milvus.target import MilvusTarget
from instep.targets.ownership import NotOurs
from instep.testing.ownership import OURS, DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import Content, OnOneIndex
from tests.contracts.target_in_short import ShortContract
from tests.targets.milvus.reading import content

ANOTHER_PROCESS = """
import sys
from instep.targets.milvus.target import MilvusTarget
try:
    MilvusTarget(sys.argv[1], None, "bucket").check()
except Exception as error:
    print(type(error).__name__, error)
"""


class OnMilvusLite(OnOneIndex):
    @pytest.fixture
    def target(self, embedded: MilvusTarget) -> MilvusTarget:
        return embedded

    def content(self, target: DocumentTarget, physical: str) -> Content:
        return content(target, physical)


class TestMilvusLiteInShort(OnMilvusLite, ShortContract):
    def test_concurrent_committers_all_land(self, target: DocumentTarget, index: str) -> None:
        """A file is for one process at a time, and another one is refused."""
        assert isinstance(target, MilvusTarget)
        command = [sys.executable, "-c", ANOTHER_PROCESS, target.uri]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(f"Away {target.uri}: another process has it open")
        assert done.stderr == ""


@pytest.mark.proof
class TestMilvusLite(OnMilvusLite, TargetContract):
    every = 5

    test_concurrent_committers_all_land = TestMilvusLiteInShort.test_concurrent_committers_all_land


class TestMilvusServer(ShortContract):
    @pytest.fixture
    def target(self, served: MilvusTarget) -> MilvusTarget:
        return served

    def content(self, target: DocumentTarget, physical: str) -> Content:
        return content(target, physical)


@pytest.mark.proof
class TestOwnership(DocumentOwnership):
    @pytest.fixture(params=["embedded", "served"])
    def target(self, request: pytest.FixtureRequest) -> MilvusTarget:
        found = request.getfixturevalue(request.param)
        assert isinstance(found, MilvusTarget)
        return found

    def test_an_alias_of_no_ledger_is_left_alone(self, target: MilvusTarget) -> None:
        """It may be a person's own."""
        ours, place, (index, other) = target.owned_by(OURS), Location(target.uri, target.token), self.names
        self.make(target, index)
        self.make(ours, other)
        place.call("create_alias", index, "Document")
        with pytest.raises(NotOurs):
            ours.promote("Document", other, 1)
        assert place.call("describe_alias", "Document")["collection_name"] == index
        ours.claim("Document", of="")
        ours.promote("Document", other, 1)
        assert place.call("describe_alias", "Document")["collection_name"] == other
