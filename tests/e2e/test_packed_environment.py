"""Runs on executors that have a bare Python, and all libraries from the archive of `instep pack`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.e2e import corpus, truth
from tests.packaging.test_wheel import REPOSITORY, uv
from tests.servers.spark_cluster import SparkCluster, outside

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

_DOCUMENTS = 40
_TRANSFORM = """
def loud(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("text", F.upper("text"))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def settings(shared: Path) -> dict[str, str]:
    """Those that `instep pack` gives for an environment of what the product itself needs."""
    python = shared / "venv" / "bin" / "python"
    subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, str(python.parents[1])], check=True)
    install = [
        uv(),
        "pip",
        "install",
        "--quiet",
        "--python",
        str(python),
        "--link-mode",
        "symlink",
        "-r",
        "pyproject.toml",
    ]
    pinned = [*install, "--no-compile-bytecode", "--constraints", "requirements.lock"]
    # The cache has it all after `make install`.
    if subprocess.run([*pinned, "--offline"], cwd=REPOSITORY, check=False).returncode:
        subprocess.run(pinned, cwd=REPOSITORY, check=True)
    command = [str(python), "-m", "instep", "pack", "--json", "-o", str(shared / "environment.tar")]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    config: dict[str, str] = json.loads(done.stdout)["config"]
    shutil.rmtree(python.parents[1])
    return config


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[SparkCluster]:
    """Its Spark has jars and PySpark's own code, as any has; the libraries of this Python and of the bare one are
    hidden.
    """
    home, installed = shared / "spark", Path(pyspark.__file__).parent
    for part in ("jars", "python/lib"):
        shutil.copytree(installed / part, home / part)
    bare = sysconfig.get_path("purelib", vars={"base": sys.base_prefix})
    cluster = SparkCluster([Path(sys.prefix), Path(bare)], home=home)
    cluster.start()
    yield cluster
    cluster.stop()


def run(shared: Path, name: str, cluster: SparkCluster, config: dict[str, str]) -> subprocess.CompletedProcess[str]:
    folder, docs = shared / name, shared / "docs"
    corpus.write(docs, range(_DOCUMENTS))
    fast = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
    }
    extra = f"engine: spark\nspark: {{master: '{cluster.master}', config: {json.dumps(fast | config)}}}"
    file = corpus.project(folder, docs, extra=extra, entity="transform: loudly:loud")
    (folder / "loudly.py").write_text(_TRANSFORM)
    file.write_text(file.read_text().replace("uri: .instep/index", f"uri: {folder}/index"))
    (folder / "index").mkdir()
    command = [sys.executable, "-m", "instep", "run", "--json", "--project", str(folder)]
    # What the project names wins over the environment, here a Python that no executor has.
    env = outside({"PYSPARK_PYTHON": sys.executable})
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False, timeout=300)


def test_executors_with_a_bare_python_get_all_libraries_from_the_archive(
    shared: Path, cluster: SparkCluster, settings: dict[str, str]
) -> None:
    done = run(shared, "packed", cluster, settings)
    assert done.returncode == 0, done.stdout + done.stderr
    want = {(identity, text.upper()) for identity, text in truth.expected(shared / "docs")}
    assert set(truth.stored(shared / "packed" / "index")) == want


def test_without_the_archive_they_have_none(shared: Path, cluster: SparkCluster, settings: dict[str, str]) -> None:
    done = run(shared, "bare", cluster, {"spark.pyspark.python": settings["spark.pyspark.python"]})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "has no pyarrow" in done.stderr
    assert "instep pack" in done.stderr
