"""One cluster for all of these tests. They start and end Spark themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.hosts import Hosts
from tests.servers.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    shared, laptop, far, own = (tmp_path_factory.mktemp(name) for name in ("shared", "laptop", "far", "own"))
    (shared / "half" / "unseen").mkdir(parents=True)
    cluster = SparkCluster([laptop, shared / "half" / "unseen"], hidden_from_last=[far], own=own)
    cluster.start()
    yield Hosts(cluster, shared, laptop, far, own)
    cluster.stop()
