"""The Spark engine on Connect. Run in a process of its own by `test_spark_connect.py`, because a
process that has talked Connect cannot use classic Spark any more. SPARK_REMOTE says where the server is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from instep.pipeline.engine.engine import Engine
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.spark_engine import SparkEngine
from tests.contracts.spark_engine import SparkEngineContract


@pytest.fixture(scope="module")
def spark() -> Iterator[LazySpark]:
    lazy = LazySpark()
    yield lazy
    lazy.close()


class TestSparkEngineOnConnect(SparkEngineContract):
    @pytest.fixture
    def engine(self, spark: LazySpark) -> Engine:
        return SparkEngine(spark)
