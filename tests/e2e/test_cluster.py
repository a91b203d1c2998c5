"""Runs on a Spark cluster whose executors see neither Instep's sources nor the project's folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import corpus, truth
from tests.servers.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

_DOCUMENTS = 40
_TRANSFORM = """
from helpers import shout

def loud(rows):
    return shout(rows)
"""
#: What a transform imports lies beside it, in a folder that executors do not see.
_HELPERS = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

def upper(text):
    return text.upper() if text else text

def shout(rows):
    return rows.withColumn("text", F.udf(upper, StringType())("text"))
"""


@dataclass(frozen=True)
class Hosts:
    """`shared` is seen by executors, `laptop` only by the driver."""

    cluster: SparkCluster
    shared: Path
    laptop: Path


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    shared, laptop = tmp_path_factory.mktemp("shared"), tmp_path_factory.mktemp("laptop")
    (shared / "half" / "unseen").mkdir(parents=True)
    cluster = SparkCluster([laptop, shared / "half" / "unseen"])
    cluster.start()
    yield Hosts(cluster, shared, laptop)
    cluster.stop()


def declare(hosts: Hosts, name: str, docs: Path, *, entity: str = "", index: Path | None = None) -> Path:
    folder = hosts.laptop / name
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.pyspark.python": sys.executable,
    }
    extra = f"engine: spark\nspark: {{master: '{hosts.cluster.master}', config: {json.dumps(settings)}}}"
    file = corpus.project(folder, docs, extra=extra, entity=entity)
    place = index or hosts.shared / name / "index"
    place.mkdir(parents=True, exist_ok=True)
    file.write_text(file.read_text().replace("uri: .instep/index", f"uri: {place}"))
    return folder


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """From another folder: nothing of the project's is found by chance."""
    command = [sys.executable, "-m", "instep", "run", "--json", "--project", str(folder), *options]
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")}
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False, timeout=300)


def test_executors_get_instep_and_the_projects_own_code_with_the_job(hosts: Hosts) -> None:
    docs = hosts.shared / "docs"
    corpus.write(docs, range(_DOCUMENTS))
    folder = declare(hosts, "whole", docs, entity="transform: loudly:loud")
    (folder / "loudly.py").write_text(_TRANSFORM)
    (folder / "helpers.py").write_text(_HELPERS)
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    want = {(identity, text.upper()) for identity, text in truth.expected(docs)}
    assert set(truth.stored(hosts.shared / "whole" / "index")) == want


def test_a_source_that_executors_do_not_see_is_refused_before_a_job(hosts: Hosts) -> None:
    docs = hosts.laptop / "docs"
    corpus.write(docs, range(_DOCUMENTS))
    folder = declare(hosts, "source", docs)
    done = run(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"does not see {docs}" in done.stderr + done.stdout
    assert not list((hosts.shared / "source" / "index").glob("*.alias-*"))


def test_an_index_that_executors_do_not_see_is_refused_before_a_job(hosts: Hosts) -> None:
    docs = hosts.shared / "for-nowhere"
    corpus.write(docs, range(_DOCUMENTS))
    folder = declare(hosts, "target", docs, index=hosts.laptop / "index")
    done = run(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"does not see {hosts.laptop}" in done.stderr + done.stdout


def test_a_listed_document_that_an_executor_does_not_find_is_no_skip(hosts: Hosts) -> None:
    docs = hosts.shared / "half"
    corpus.write(docs / "seen", range(10))
    corpus.write(docs / "unseen", range(10, 20))
    folder = declare(hosts, "half", docs)
    done = run(folder)
    assert done.returncode == 75, done.stdout + done.stderr
    assert "does not find" in done.stdout + done.stderr
    assert not list((hosts.shared / "half" / "index").glob("*.alias-*"))
