"""The Spark engine on Connect. Run in a process of its own by `test_spark_connect.py`, because a
process that has talked Connect cannot use classic Spark any more. SPARK_REMOTE says where the server is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.pipeline.engine.engine import Engine
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.spark_engine import SparkEngine
from tests.contracts.engine import Upkeep
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

    def test_upkeep_is_done_by_a_task(self, engine: Engine, tmp_path: Path) -> None:
        assert engine.once(Upkeep(tmp_path)) > 0
        assert (tmp_path / "upkeep").read_text().split() != [str(os.getpid())]
