"""Tables in OpenSearch on a real server: the contract, and what is OpenSearch's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from instep.targets.opensearch.tables import OpenSearchTables
from tests.contracts.ownership import TableOwnership
from tests.contracts.table_target import TableTargetContract
from tests.contracts.target_in_short import ShortTableContract
from tests.targets.opensearch.conftest import forget_all


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTables]:
    target = OpenSearchTables(opensearch)
    yield target
    forget_all(target)


class OnOpenSearch:
    #: Tasks write by themselves.
    apart: ClassVar[bool] = False


@pytest.mark.proof
class TestTables(OnOpenSearch, TableTargetContract):
    """All of it."""


class TestTablesInShort(OnOpenSearch, ShortTableContract):
    pass


@pytest.mark.proof
class TestOwnership(TableOwnership):
    """With the `target` of this module."""
