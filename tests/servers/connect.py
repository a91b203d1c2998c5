"""A Spark Connect server in a process of its own, before a Spark of this machine or a cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.process import Server

_ROOT = Path(__file__).parents[2]
_FIRST = "import sys; from pyspark.sql import SparkSession; SparkSession.builder.remote(sys.argv[1]).create().version"


class ConnectServer(Server):
    kind = "connect"
    farewell = signal.SIGKILL

    def __init__(self, master: str = "local[2]", config: Mapping[str, str] | None = None) -> None:
        """`config`: settings of its Spark. Its temporary files, which are those that sessions send, are in `folder`."""
        super().__init__()
        self._master = master
        self._config = config or {}

    @property
    def address(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @property
    def jvm(self) -> int:
        """The process that answers."""
        return next(each.pid for each in self._family() if each.name() == "java")

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return self.address

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def _install(self) -> None:
        """It has no data."""

    def _command(self) -> Sequence[str | Path]:
        config = {
            **self._config,
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={self.folder}",
        }
        (self.folder / "up").unlink(missing_ok=True)
        # Its Python workers run what tests are made of.
        env = ["env", "-u", "SPARK_REMOTE", f"PYTHONPATH={_ROOT}"]
        return [*env, sys.executable, "-m", "tests.servers.connect", self._master, json.dumps(config), self.folder]

    def _greet(self) -> None:
        (self.folder / "up").stat()


def main(master: str, config: str, folder: str) -> None:
    """Serve until it is killed; the JVM ends with it."""
    from instep.pipeline.engine.session import LazySpark
    from instep.pipeline.engine.settings import SparkSettings

    settings = SparkSettings(master=master, config=json.loads(config), log=Path(folder) / "spark.log")
    LazySpark(settings).get()
    address = f"sc://127.0.0.1:{settings.config['spark.connect.grpc.binding.port']}"
    # Its first session loads all that it is made of, which takes longer than a client waits on a busy machine.
    subprocess.run([sys.executable, "-c", _FIRST, address], check=True)
    (Path(folder) / "up").touch()
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
