"""What Spark says of a table, told by us."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import logging
from instep.sources.tables.spark_reading import told
from pyspark.logger import PySparkLogger
with told("a table", {}):
    assert logging.getLogger("SQLQueryContextLogger").disabled
for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    assert isinstance(logging.getLogger(name), PySparkLogger), name
    assert not logging.getLogger(name).disabled, name
"""


def test_loggers_that_pyspark_has_not_made_yet_are_made_as_it_would() -> None:
    """In a process of its own: a logger is of the class that it was first asked for as."""
    subprocess.run([sys.executable, "-c", CODE], check=True)
