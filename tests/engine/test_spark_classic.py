"""The Spark engine on classic Spark: one session for the whole module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.engine.port import Engine
from instep.engine.session import LazySpark, SparkSettings
from instep.engine.spark import SparkEngine
from tests.contracts.engine import RowFiles, a_wave
from tests.contracts.spark_engine import SparkEngineContract

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LazySpark]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    lazy = LazySpark(SparkSettings(master="local[2]", log=log))
    lazy.begin()
    yield lazy
    lazy.close()


class TestSparkEngineOnClassic(SparkEngineContract):
    @pytest.fixture
    def engine(self, spark: LazySpark) -> Engine:
        return SparkEngine(spark)

    def test_a_session_passed_in_is_used_and_not_stopped(self, spark: LazySpark, tmp_path: Path) -> None:
        session = spark.get()
        engine = SparkEngine(LazySpark(given=session))
        assert len(engine.run(a_wave(), RowFiles(tmp_path))) == 4
        engine.close()
        assert session.range(3).count() == 3

    def test_a_session_that_is_already_active_is_used_and_not_stopped(self, spark: LazySpark, tmp_path: Path) -> None:
        session = spark.get()
        other = LazySpark(SparkSettings(master="local[1]"))
        assert other.warm
        assert other.get() is session
        other.close()
        assert session.range(3).count() == 3
