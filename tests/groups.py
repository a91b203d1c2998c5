"""Which tests need the same server or Spark. They run in one worker process, so that it is started once.

Tests of any other module are a group of their own: their fixtures are made once, too.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

#: By the beginnings of paths, the one that takes longest first: what is long is not what both workers wait for last.
#: A test of some other group that needs one of these works as well; its process starts another.
GROUPS: Final = {
    "spark": (
        "sources/tables/test_database_probe.py",
        "sources/tables/test_spark_files.py",
        "sources/tables/test_spark_jdbc.py",
        "sources/tables/test_spark_parquet.py",
        "sources/tables/test_spark_reading.py",
        "sources/tables/test_clickhouse.py",
        "sources/tables/test_row_documents.py",
        "sources/tables/test_table_files.py",
        "e2e/tables/test_main_job.py",
        "e2e/tables/test_open_lineage.py",
        "e2e/tables/test_processes.py",
        "e2e/tables/test_queued_clickhouse.py",
        "e2e/tables/test_queued_kinds.py",
        "e2e/tables/test_reconcile.py",
        "e2e/tables/test_types.py",
        "e2e/lakes/test_delta.py",
        "e2e/lakes/test_nodes.py",
        "e2e/test_git_example.py",
        "e2e/test_row_documents.py",
        "e2e/test_files_on_spark.py",
        "e2e/test_joined_documents.py",
        "e2e/test_watch.py",
    ),
    "postgres": (
        "ledger/test_postgres.py",
        # Beside an object store, which is up in three seconds.
        "ledger/test_bases.py",
        "ledger/test_plans.py",
        "ledger/test_state_files.py",
        "cli/test_state_url.py",
        "e2e/test_state_at_url.py",
        "sources/test_object_store.py",
        "sources/test_sqs_events.py",
        "sources/test_s3_inventory.py",
        "sources/test_s3_listing.py",
        "documents/test_files_corpus.py",
        "jobs/test_inventories.py",
        "bus/test_servers.py",
        "targets/postgres/",
        "queues/test_postgres",
        "queues/test_killed_backfill.py",
        "jobs/test_queue_consumers.py",
        "cli/test_queue_commands.py",
    ),
    "cluster": ("e2e/cluster/",),
    "lakes": ("sources/tables/test_lake_versions.py", "sources/tables/test_spark_lakes.py"),
    "nats": ("bus/test_nats", "telemetry/test_traces.py"),
    "kafka": ("e2e/kafka/",),
    "milvus": ("targets/milvus/",),
    "mariadb": ("ledger/test_mysql.py", "ledger/test_open_servers.py", "docs/test_monitoring.py"),
    "opensearch": ("targets/opensearch/", "targets/elasticsearch/"),
    "clickhouse": ("targets/test_clickhouse_server.py", "queues/test_clickhouse"),
}
#: These take seconds each: before the many short ones.
_EARLY: Final = (
    "engine/",
    "simulator/",
    "e2e/",
    "cli/",
    "soak/",
    "docs/",
    "ledger/test_sqlite.py",
    "targets/test_lance",
)


def group(path: str) -> str:
    """Of a module in `tests`, by its path there."""
    return next((name for name, prefixes in GROUPS.items() if path.startswith(prefixes)), path)


def mark(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server or Spark."""
    for item in items:
        if _of(item) in GROUPS:
            item.add_marker(pytest.mark.server)


def arrange(items: list[pytest.Item]) -> None:
    """The groups that take longest come first."""
    items.sort(key=lambda item: _place(_of(item)))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """A worker process takes a whole group at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.partition("::")[0].removeprefix("tests/"))


def path_of(item: pytest.Item) -> str:
    """In `tests`."""
    return item.nodeid.partition("::")[0].removeprefix("tests/")


def _of(item: pytest.Item) -> str:
    return group(path_of(item))


def _place(name: str) -> int:
    beginnings = (*GROUPS, *_EARLY)
    return next((place for place, each in enumerate(beginnings) if name.startswith(each)), len(beginnings))
