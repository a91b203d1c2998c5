"""Times an initial run in a warm Spark session, as in a notebook: `python warm.py instep.yaml`.

Two entities are declared: `Warm`, small, is run first and not timed; then `Document` is.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    from pyspark.sql import SparkSession

    import instep

    # As in an activated environment, where python3 is the one that runs this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    project = instep.Instep(instep.load(sys.argv[1]).project, spark=spark)
    project.run(["Warm"], engine="spark")
    started = time.perf_counter()
    project.run(["Document"], engine="spark")
    print(json.dumps({"seconds": time.perf_counter() - started}))
    spark.stop()


if __name__ == "__main__":
    main()
