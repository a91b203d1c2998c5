"""These tests start and end Spark themselves: no other test has left one."""

from __future__ import annotations

import pytest

from tests.sources.tables import sessions

#: Of the contract on classic Spark, what always runs; all of it is a proof.
_ALWAYS = (
    "test_rows_of_a_wave_are_written_and_counted_slice_by_slice",
    "test_an_interrupt_ends_the_tasks",
    "test_a_poisoned_document_fails_alone",
    "test_an_outage_of_something_else_leaves_spark_running",
    "test_a_user_error_in_a_task_keeps_its_hint",
    "test_workers_come_from_a_daemon_that_has_loaded_what_they_import",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/test_spark_classic.py" in item.nodeid and getattr(item, "originalname", "") not in _ALWAYS:
            item.add_marker(pytest.mark.proof)


@pytest.fixture(scope="module", autouse=True)
def _no_spark() -> None:
    sessions.end()
