"""A standalone Spark cluster of PySpark's own programs: a master, and workers that do not see all of this machine.

Each worker has a host name and a mount namespace of its own. The sources of Instep and the folders that are named are
empty there, so that nothing is found on an executor that was not sent to it, or lies where all hosts look.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil
import pyspark

import instep
from tests.servers.process import Server, free_port

_SPARK = Path(pyspark.__file__).parent
#: Small and quick to start: they hand out cores, and do no work.
_JAVA = "java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEPLOY = "org.apache.spark.deploy"


class SparkCluster(Server):
    kind = "spark"
    farewell = signal.SIGKILL

    def __init__(
        self,
        hidden: Iterable[Path],
        *,
        workers: int = 2,
        hidden_from_last: Iterable[Path] = (),
        own: Path | None = None,
        options: Mapping[str, str] | None = None,
        home: Path = _SPARK,
        respawns: bool = False,
    ) -> None:
        """With so many workers of one core each, to whom the `hidden` folders are empty. They are called `worker-0`, …;
        the last one sees even less, and `own` is another folder on each (`own_of`). `options` are Spark's own, of
        master and workers, `home` is where it is. It `respawns`: a master or worker that is killed comes back, as under
        a service manager.
        """
        super().__init__()
        self._hidden = [Path(instep.__file__).parents[1], *hidden]
        self._hidden_from_last = list(hidden_from_last)
        self._own = own
        self._workers = workers
        self._options = options or {}
        self._home = home
        self._respawns = respawns
        self._page = 0

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def page(self) -> str:
        """The page of the master."""
        return f"http://127.0.0.1:{self._page}"

    @property
    def executors(self) -> list[psutil.Process]:
        """The processes of executors that run now."""
        return self._running("CoarseGrainedExecutorBackend")

    @property
    def masters(self) -> list[psutil.Process]:
        """The process of the master, unless it was killed just now."""
        return self._running(f"{_DEPLOY}.master.Master")

    @property
    def workers(self) -> list[psutil.Process]:
        """The processes that start executors. With one of them its executors end."""
        return self._running(f"{_DEPLOY}.worker.Worker")

    def url(self, database: str = "ledger", *, user: str | None = None, password: str | None = None) -> str:
        raise NotImplementedError("it has no databases")

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no databases")

    def _install(self) -> None:
        """It has no data."""

    def _command(self) -> Sequence[str | Path]:
        self._page = free_port()
        options = " ".join(shlex.quote(f"-D{key}={value}") for key, value in self._options.items())
        java = f"exec {_JAVA} {options} -cp {shlex.quote(str(self._home / 'jars'))}/'*' {_DEPLOY}"
        master = f"({java}.master.Master --host 127.0.0.1 --port {self.port} --webui-port {self._page})"
        workers = [f"unshare --mount --uts sh -c {shlex.quote(self._worker(java, at))}" for at in range(self._workers)]
        lines = [
            # What another test of this process has left in its environment would be that of executors, too.
            "unset PYTHONPATH ${!PYSPARK_*} ${!SPARK_*} ${!HADOOP_*}",
            f"export SPARK_HOME={shlex.quote(str(self._home))} SPARK_LOCAL_IP=127.0.0.1 SPARK_SCALA_VERSION=2.13",
            *map(self._kept, [master, *workers]),
            "wait",
        ]
        return ["bash", "-c", "\n".join(lines)]

    def _kept(self, program: str) -> str:
        return f"(while :; do {program}; sleep 1; done) &" if self._respawns else f"{program} &"

    def own_of(self, worker: int) -> Path:
        """The folder that this worker has where `own` is."""
        assert self._own is not None
        return self._own.with_name(f"{self._own.name}-of-worker-{worker}")

    def _running(self, what: str) -> list[psutil.Process]:
        """Processes of Java that run this class."""
        found = [(each, _command_line(each)) for each in self._family()]
        return [
            each for each, line in found if line and line[0].endswith("java") and any(what in word for word in line)
        ]

    def _worker(self, java: str, at: int) -> str:
        hidden = self._hidden + (self._hidden_from_last if at == self._workers - 1 else [])
        hide = "".join(f"mount -t tmpfs none {shlex.quote(str(each))} && " for each in hidden)
        if self._own is not None:
            self.own_of(at).mkdir(exist_ok=True)
            hide += f"mount --bind {shlex.quote(str(self.own_of(at)))} {shlex.quote(str(self._own))} && "
        work = shlex.quote(str(self.folder / "work"))
        run = f"{java}.worker.Worker --host 127.0.0.1 --webui-port 0 --cores 1 --memory 1g -d {work} {self.master}"
        return f"hostname worker-{at} && {hide}{run}"

    def _greet(self) -> None:
        with urllib.request.urlopen(f"{self.page}/json/", timeout=5) as answer:
            assert json.load(answer)["aliveworkers"] == self._workers


def outside(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which nothing is found by chance: without what is set for Spark and Python here, by this
    process, too.
    """
    left_out = ("PYTHONPATH", "PYSPARK_", "SPARK_", "HADOOP_")
    return {key: value for key, value in os.environ.items() if not key.startswith(left_out)} | dict(more or {})


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
