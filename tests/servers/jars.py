"""Jars from Maven Central, through Maven, kept in the user's cache; tests that need one are skipped without it."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

#: A hundred megabytes and more, when Spark itself is among them.
_SECONDS = 300
_DRIVERS = {
    "postgresql": "org.postgresql:postgresql:42.7.8",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.6",
}
#: Neither Delta nor Iceberg has a release for Spark 4.3 yet: Delta 4.4 (for 4.2) misses a constructor of `LogicalRDD`
#: there, and to Iceberg 1.12 (for 4.1) `View` is an interface, which became a class. Both run on this Spark.
LAKES = (
    "org.apache.spark:spark-connect_2.13:4.1.2",
    "org.apache.spark:spark-sql_2.13:4.1.2",
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)

_PROJECT = """<project><modelVersion>4.0.0</modelVersion>
<groupId>instep</groupId><artifactId>tests</artifactId><version>1</version><dependencies>{}</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
#: Other repositories than Maven Central, which some projects name, are taken to be empty.
_SETTINGS = """<settings><mirrors><mirror>
<id>none</id><mirrorOf>*,!central</mirrorOf><url>{}</url></mirror></mirrors></settings>
"""


@dataclass(frozen=True, slots=True)
class Jars:
    """`path` is a jar, or a folder of jars. It is None when it cannot be had; then `problem` says why."""

    path: Path | None
    problem: str = ""

    def needed(self) -> Path:
        if self.path is None:
            pytest.skip(self.problem)
        return self.path


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "instep-tests" / "jars"


@functools.cache
def jar(name: str) -> Jars:
    """A driver."""
    artifact = _DRIVERS[name]
    _, file, version = artifact.split(":")

    def fetch() -> str:
        return _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache()}")

    return _kept(cache() / f"{file}-{version}.jar", fetch)


@functools.cache
def jars(artifacts: Sequence[str]) -> Jars:
    """A folder with these, and all that they need."""
    path = cache() / "+".join(each.split(":", 1)[1].replace(":", "-") for each in artifacts)

    def fetch() -> str:
        with tempfile.TemporaryDirectory(dir=cache()) as folder:
            project = Path(folder)
            named = "".join(_DEPENDENCY.format(*each.split(":")) for each in artifacts)
            (project / "pom.xml").write_text(_PROJECT.format(named))
            (project / "empty").mkdir()
            (project / "settings.xml").write_text(_SETTINGS.format((project / "empty").as_uri()))
            problem = _maven(
                *("--file", f"{project / 'pom.xml'}", "--settings", f"{project / 'settings.xml'}"),
                *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={project / 'jars'}"),
            )
            if not problem:
                # Whole, or not there.
                (project / "jars").rename(path)
            return problem

    return _kept(path, fetch)


@functools.cache
def archive(artifact: str) -> Jars:
    """A folder with what is in this zip."""
    path = cache() / artifact.split(":", 1)[1].replace(":", "-")

    def fetch() -> str:
        with tempfile.TemporaryDirectory(dir=cache()) as folder:
            packed, made = Path(folder) / "packed", Path(folder) / "made"
            problem = _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={packed}")
            if not problem:
                with zipfile.ZipFile(next(packed.iterdir())) as found:
                    found.extractall(made)
                made.rename(path)
            return problem

    return _kept(path, fetch)


def _kept(path: Path, fetch: Callable[[], str]) -> Jars:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / ".lock").open("w") as lock:
        # Test processes start together, and Maven's own cache is not for several at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem = "" if path.exists() else fetch()
    return Jars(path) if path.exists() else Jars(None, f"no {path.name}: {problem}")


def _maven(*arguments: str) -> str:
    """Empty when it went well."""
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven is not installed"
    command = [maven, "--batch-mode", "--quiet", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"Maven took more than {_SECONDS} s"
    said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
    return "" if done.returncode == 0 else (said[0] if said else f"Maven ended with {done.returncode}")[:300]
