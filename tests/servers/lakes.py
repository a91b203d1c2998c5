"""A Spark Connect server with Delta and Iceberg, of the newest Spark that both of them have a release for."""

from __future__ import annotations

import atexit
import functools
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from instep.pipeline.engine.java import find_java
from tests.servers.jars import LAKES, jars
from tests.servers.process import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPEN = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


class LakeServer(Server):
    kind = "lakes"
    farewell = signal.SIGKILL

    def __init__(self, jars: Path) -> None:
        super().__init__()
        self._jars = jars

    def _install(self) -> None:
        (self.folder / "tables").mkdir()

    def _command(self) -> Sequence[str | Path]:
        settings = {
            "spark.master": "local[2]",
            "spark.app.name": "lakes",
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.extensions": ",".join(_EXTENSIONS),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(self.folder / "tables"),
            "io.netty.tryReflectionSetAccessible": "true",
            "derby.system.home": str(self.folder),
        }
        java = find_java()
        assert java is not None
        return [
            java,
            *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPEN),
            *("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-cp", f"{self._jars}/*", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        ]

    def _greet(self) -> None:
        # A client would wait for it, patiently.
        socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
        assert _session(self.port).version

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        return [tuple(row) for row in _session(self.port).sql(statement).collect()]

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return f"sc://127.0.0.1:{self.port}"


def _session(port: int) -> SparkSession:
    # Not through `SparkSession.builder`, which refuses while this process has a classic session as well.
    from pyspark.sql.connect.session import SparkSession

    found: SparkSession = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    return found


@functools.cache
def running_lakes() -> LakeServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = LakeServer(jars(LAKES).needed())
    atexit.register(server.stop)
    server.start()
    return server


@functools.cache
def lake_session() -> SparkSession:
    return _session(running_lakes().port)


def main() -> None:
    """`python -m tests.servers.lakes`: how long it takes to have one."""
    started = time.perf_counter()
    print(f"Spark {lake_session().version}: up after {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
