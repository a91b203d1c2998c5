"""The Spark session of these tests: one for the process."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings
from tests.servers.jars import jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@functools.cache
def _spark() -> LazySpark:
    """With the drivers that can be had: a jar must be there when Java starts."""
    drivers = [jar(each).path for each in ("postgresql", "mariadb")]
    log = Path(tempfile.gettempdir()) / f"instep-tests-spark-{os.getpid()}.log"
    config = {"spark.jars": ",".join(str(each) for each in drivers if each), "spark.sql.shuffle.partitions": "2"}
    lazy = LazySpark(SparkSettings(master="local[2]", config=config, log=log))
    atexit.register(lazy.close)
    return lazy


def session() -> SparkSession:
    return _spark().get()


def end() -> None:
    """For tests that start a Spark of their own: a process has one. The next `session` starts another."""
    if _spark.cache_info().currsize:
        _spark().close()
        _spark.cache_clear()
