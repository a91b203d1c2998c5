"""The same target on a real Elasticsearch: the contract again, of which `make test` plays a part."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from instep.errors import UserError
from instep.targets.opensearch.target import OpenSearchTarget
from instep.testing.ownership import DocumentOwnership
from tests.servers.elasticsearch import running_elasticsearch
from tests.targets.opensearch.conftest import forget_all
from tests.targets.opensearch.test_contract import TestOpenSearch as FullOnOpenSearch


@pytest.fixture(scope="session")
def elasticsearch() -> str:
    return os.environ.get("ELASTICSEARCH_URL") or running_elasticsearch().url()


@pytest.fixture
def target(elasticsearch: str) -> Iterator[OpenSearchTarget]:
    target = OpenSearchTarget(elasticsearch)
    yield target
    forget_all(target)


class TestElasticsearch(FullOnOpenSearch):
    pass


class TestOwnership(DocumentOwnership):
    pass


@pytest.mark.proof
def test_the_server_is_recognized_by_its_answer(target: OpenSearchTarget) -> None:
    target.check()
    assert target.indexes.dialect.name == "Elasticsearch"


@pytest.mark.proof
def test_the_longest_vectors_are_those_that_the_server_says(target: OpenSearchTarget) -> None:
    longest = target.indexes.dialect.longest
    target.create("Long__1", longest, 1)
    with pytest.raises(UserError, match=f"{longest}"):
        target.create("Long__2", longest + 1, 1)
