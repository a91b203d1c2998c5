"""A laptop and a cluster: projects whose driver is here, and whose executors see only what all hosts share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e import corpus, truth
from tests.servers.spark_cluster import SparkCluster, outside

TIMEOUT_SECONDS = 400
#: Of a Spark application whose executors are small, and soon there.
SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": sys.executable,
}


@dataclass(frozen=True)
class Hosts:
    """`shared` is seen by executors, `laptop` only by the driver; `worker-1` does not see `far`, nor `half/unseen`.
    `own` is another folder on each host.
    """

    cluster: SparkCluster
    shared: Path
    laptop: Path
    far: Path
    own: Path

    def declare(
        self,
        name: str,
        docs: Path,
        *,
        entity: str = "",
        index: Path | None = None,
        extra: str = "",
        config: Mapping[str, str] | None = None,
        remote: str = "",
    ) -> Path:
        """A project on the laptop, with its index where all see it. `remote`: through this Connect server."""
        folder = self.laptop / name
        where = f"remote: '{remote}'" if remote else f"master: '{self.cluster.master}'"
        settings = {} if remote else {**SETTINGS, **(config or {})}
        spark = f"engine: spark\nspark: {{{where}, config: {json.dumps(settings)}}}"
        file = corpus.project(folder, docs, extra=f"{spark}\n{extra}", entity=entity)
        place = index or self.index(name)
        place.mkdir(parents=True, exist_ok=True)
        file.write_text(file.read_text().replace("uri: .instep/index", f"uri: {place}"))
        return folder

    def index(self, name: str) -> Path:
        return self.shared / name / "index"

    def wrong(self, name: str, docs: Path) -> str:
        """What differs between an index and the truth; empty when nothing does."""
        return truth.difference(truth.expected(docs), truth.stored(self.index(name)))


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "instep", *words, "--project", str(folder)]


def instep(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that is given from another folder."""
    return subprocess.run(
        command(folder, *words),
        cwd="/",
        env=outside(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
