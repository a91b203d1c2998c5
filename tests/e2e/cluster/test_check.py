"""`instep check --cluster`, and what a run says of the same: each missing thing in a sentence, with its host."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e import corpus
from tests.e2e.cluster.hosts import Hosts, instep
from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.proxy import Proxy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

#: A Python of another version, and one that lacks a library, for whom the environment's own Python stands in.
_OTHER_VERSION = """
import importlib.abc, sys
class Other(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pyspark.worker_util":  # What compares it with the driver's.
            sys.version_info = (3, 99, *sys.version_info[2:])
sys.meta_path.insert(0, Other())
"""
_LACKS_LANCE = """
import importlib.abc, importlib.metadata, sys
class Lacks(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "lance":
            raise ModuleNotFoundError("No module named 'lance'", name="lance")
sys.meta_path.insert(0, Lacks())
found = importlib.metadata.version
def version(name):
    if name == "pylance":
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version
"""


def python(hosts: Hosts, name: str, does: str) -> dict[str, str]:
    """Settings with which executors run a Python that does this first."""
    folder = hosts.shared / name
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(does)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return {"spark.pyspark.python": str(script)}


@pytest.fixture
def unreachable(hosts: Hosts) -> Iterator[str]:
    """A database that the driver reaches, and executors do not: by a socket in a folder that they do not see."""
    server = running_postgres()
    server.execute("CREATE DATABASE unreached")
    proxy = Proxy(server.port, path=hosts.laptop / f".s.PGSQL.{server.port}")
    yield f"postgresql://{server.user}:{server.password}@/unreached?host={hosts.laptop}&port={server.port}"
    proxy.close()


def test_each_executor_says_what_it_has_and_nothing_is_left(hosts: Hosts) -> None:
    docs, rows = hosts.shared / "asked", hosts.shared / "asked-rows"
    corpus.write(docs, range(3))
    rows.mkdir()
    pq.write_table(pa.table({"id": list(range(10))}), rows / "part.parquet")
    table = f"""Rows:
  source: {{type: spark, format: parquet, path: "{rows}"}}
  key: [id]
  target: index"""
    folder = hosts.declare("asked", docs, entity="target: index")
    file = folder / "instep.yaml"
    file.write_text(file.read_text() + "\n".join(f"  {line}" for line in table.splitlines()) + "\n")
    done = instep(folder, "check", "--cluster", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert [each["host"] for each in found["executors"]] == ["worker-0", "worker-1"]
    assert found["registered"] == 2
    assert found["findings"] == []
    for each in found["executors"]:
        assert each["python"] == ".".join(map(str, sys.version_info[:3]))
        assert each["memory"] > 0
        assert {"instep", "pyspark", "pyarrow", "pylance"} <= each["versions"].keys()
        assert each["sources"]["Document"] == each["targets"]["index"] == "ok"
    assert "ok" in {each["sources"]["Rows"] for each in found["executors"]}
    assert not list(hosts.index("asked").iterdir())


def test_what_one_host_does_not_see_is_told_of_that_host(hosts: Hosts) -> None:
    docs = hosts.far / "docs"
    corpus.write(docs, range(3))
    folder = hosts.declare("far", docs, index=hosts.far / "index")
    done = instep(folder, "check", "--cluster", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    near, far = found["executors"]
    assert (near["host"], near["sources"], near["targets"]) == ("worker-0", {"Document": "ok"}, {"index": "ok"})
    assert far["host"] == "worker-1"
    assert {each["subject"] for each in found["findings"]} == {"source Document", "target index"}
    assert all(each["detail"].startswith("on worker-1: ") for each in found["findings"])
    assert not list((hosts.far / "index").iterdir())


def test_a_library_that_is_missing_is_told_with_the_host(hosts: Hosts) -> None:
    docs = hosts.shared / "lacking"
    corpus.write(docs, range(3))
    folder = hosts.declare("lacking", docs, config=python(hosts, "lacks", _LACKS_LANCE))
    done = instep(folder, "check", "--cluster")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "on worker-0, worker-1: pylance is not installed" in done.stdout
    done = instep(folder, "run", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the executor on worker-" in done.stderr
    assert "the package lance is not installed" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_another_version_of_python_is_told(hosts: Hosts) -> None:
    docs = hosts.shared / "other"
    corpus.write(docs, range(3))
    folder = hosts.declare("other", docs, config=python(hosts, "other-python", _OTHER_VERSION))
    for words in (("check", "--cluster"), ("run", "--json")):
        done = instep(folder, *words)
        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert "another version of Python than this one" in said
        assert "3.99" in said
        assert "Traceback" not in said


def test_a_target_out_of_the_reach_of_executors_is_told_with_the_host(hosts: Hosts, unreachable: str) -> None:
    docs = hosts.shared / "unreached"
    corpus.write(docs, range(3))
    folder = hosts.declare("unreached", docs)
    file = folder / "instep.yaml"
    text = file.read_text()
    index = next(line for line in text.splitlines() if line.startswith("targets:"))
    file.write_text(text.replace(index, f"targets: {{index: {{type: postgres, uri: '{unreachable}'}}}}"))
    done = instep(folder, "check", "--cluster")
    said = done.stdout + done.stderr
    assert done.returncode == 75, said
    assert "target index: on worker-0, worker-1: " in said
    done = instep(folder, "run", "--json")
    said = done.stdout + done.stderr
    assert done.returncode == 75, said
    assert "the executor on worker-" in said
    assert PostgresServer.password not in said
