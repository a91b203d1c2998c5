"""PySpark is imported while several threads are at work."""

from __future__ import annotations

import subprocess
import sys

#: Says which thread looked for a package of PySpark first. Nothing listens at port 1, so no Spark is started.
_FIRST_IMPORTS = """
import sys, threading

class Watch:
    first = {}
    def find_spec(self, name, path=None, target=None):
        if name in ("pyspark", "pyspark.sql", "pyspark.errors"):
            self.first.setdefault(name, threading.current_thread().name)

sys.meta_path.insert(0, Watch())
from instep.errors import InstepError
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings

assert not Watch.first, "the module itself loads PySpark"
spark = LazySpark(SparkSettings(master="sc://127.0.0.1:1"))
spark.begin()
try:
    spark.get()
except InstepError:
    print("no Spark")
print(sorted(set(Watch.first.values())))
"""


def test_pyspark_is_loaded_before_the_thread_that_starts_spark() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_IMPORTS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["no Spark", "['MainThread']"]
