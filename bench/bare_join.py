"""The limit for planning on Spark: what it costs Spark alone to see which rows have another version than was recorded.

An anti-join of ids and versions, counted, on `local[2]`: it lists, joins and says how many; no ids, no plan.

    python -P bench/bare_join.py PARQUET RECORDED
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(table: str, recorded: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "2g").config("spark.log.level", "ERROR").getOrCreate()
    listed, known = (session.read.parquet(each).select("id", "version") for each in (table, recorded))
    print(listed.join(known, ["id", "version"], "left_anti").count())
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
