"""Tables on a real Elasticsearch: the contract again, of which `make test` plays a part."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from instep.targets.opensearch.tables import OpenSearchTables
from instep.testing.table_target import TableTargetContract
from tests.servers.elasticsearch import running_elasticsearch
from tests.targets.opensearch.conftest import forget_all
from tests.targets.opensearch.test_tables import OnOpenSearch


@pytest.fixture
def target() -> Iterator[OpenSearchTables]:
    target = OpenSearchTables(os.environ.get("ELASTICSEARCH_URL") or running_elasticsearch().url())
    yield target
    forget_all(target)


@pytest.mark.proof
class TestTables(OnOpenSearch, TableTargetContract):
    pass
