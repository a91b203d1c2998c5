"""A Spark Connect server on this machine: `python -m tests.engine.connect_server PORT LOG FOLDER`, till its input ends.

FOLDER is for its temporary files. When it is there it prints the process id of its JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkContext

from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings


def main(port: str, log: str, folder: str) -> None:
    config = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={folder}",
    }
    spark = LazySpark(SparkSettings(master="local[2]", config=config, log=Path(log)))
    spark.get()
    print(SparkContext._gateway.proc.pid, flush=True)
    sys.stdin.read()
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
