"""Settings of Spark: the project's, and the options with which a local Spark is started."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LOG4J = Path(__file__).with_name("log4j2.properties")
_POOLS = Path(__file__).with_name("pools.xml")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark of a project. `remote` (or SPARK_REMOTE) is a Connect address and wins over `master`.

    `scans`: the project has tables, which Spark itself reads.
    """

    master: str = "local[*]"
    remote: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    scans: bool = False

    @property
    def address(self) -> str | None:
        return self.remote or os.environ.get("SPARK_REMOTE") or None

    @property
    def place(self) -> str:
        """The place where Spark runs, without its number of cores: all that share a process have to agree on it."""
        return "local" if self.is_local else self.master

    @property
    def shown(self) -> str:
        """The address without its token, to be shown."""
        return without_token(self.address or self.master)

    @property
    def is_local(self) -> bool:
        return self.address is None and self.master.startswith("local") and not submitted()


def local_options(java_options: Sequence[str] = (), *, scans: bool = False) -> dict[str, str]:
    """Options with which a local Spark is started; the project's own settings override them."""
    # Measured on 2 cores: serial collector 0.4 s less at the start, first-tier compiler only 1.2 s less (5.4 →
    # 4.2 s). The second tier pays in long scans, which document waves do not have: their work is in Python.
    java = ["-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]
    java += [] if scans else ["-XX:TieredStopAtLevel=1"]
    java += [f'"{each}"' if " " in each else each for each in java_options]
    return {
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "instep.pipeline.engine.worker_daemon",
        # To the Python workers without TCP: no other user of the machine can connect, and a job takes 0.2 s less.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
    } | ({**_SCANS, "spark.scheduler.allocation.file": _POOLS.as_uri()} if scans else _DOCUMENTS)


_DOCUMENTS = {
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Compiling a plan pays in long scans; the first job of a document wave takes 0.6 s less without.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "4",
}

# 5,000,000 rows of Parquet to Python and back, on 2 cores with other work on them: 6 to 8 s, and 22 s with the options
# of documents. The parallel collector was not faster than the serial one.
_SCANS = {
    "spark.driver.memory": "2g",
    # Each batch has its price, for targets above all: Lance takes half as long again for batches of 10,000 rows. Wide
    # rows come in smaller ones, of 64 MB (`maxBytesPerBatch`).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # What has no zone is read as UTC, wherever the machine stands.
    "spark.sql.session.timeZone": "UTC",
    # A large wave does not delay small ones: see `pools.xml`. A core that is taken stays taken until its task ends, so
    # tasks are short, half a million rows or so; with many of them the cores also end at about the same time.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.files.maxPartitionBytes": "16m",
}


def submitted() -> bool:
    """Whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def without_token(address: str) -> str:
    """A Connect address without its parameters, and what else may hold a token where it does not belong: a user's name,
    a query.
    """
    plain = re.split("[;?#]", address, maxsplit=1)[0]
    scheme, mark, rest = plain.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
