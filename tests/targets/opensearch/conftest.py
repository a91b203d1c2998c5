"""One server for all of these tests: a real one, started here or named by OPENSEARCH_URL."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest

from instep.targets.opensearch.layout import STATE, coded
from instep.targets.opensearch.server import OpenSearchIndexes
from tests.servers.opensearch import running_opensearch

#: What is the same at greater length than elsewhere, or again with other numbers: run by `make soak`.
LONG = (
    "test_contents_are_all_rows_in_bounded_batches",
    "test_every_interleaving_of_two_writers_ends_with_one_copy[fence of the slice",
    "test_a_slice_claimed_again_is_lost_to_its_former_holder[0-",
    "test_a_slice_claimed_again_is_lost_to_its_former_holder[5-no upkeep]",
    *(f"test_slices_that_change_hands_at_random_go_in_once_each[{seed}]" for seed in range(1, 6)),
    # What happens before its effect is what a try that never was leaves behind.
    *(f"test_repeating_after_a_failure_converges[{step}-{at}-before]" for step in ("stage", "commit") for at in (1, 2)),
    *(f"test_repeating_after_a_failure_converges[{step}-1-before]" for step in ("create", "fence", "maintain")),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "targets/opensearch/test_contract" in item.nodeid and item.name.startswith(LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def opensearch() -> str:
    return os.environ.get("OPENSEARCH_URL") or running_opensearch().url()


def forget_all(target: OpenSearchIndexes) -> None:
    """Leave the server as it was: indexes go in one request, and of the journals only what they say."""
    indexes = target.indexes
    if names := indexes.names():
        indexes.connection.ask("DELETE", "/" + ",".join(quote(coded(each)) for each in names))
    indexes.refresh(STATE)
    indexes.delete(STATE, {"match_all": {}})
