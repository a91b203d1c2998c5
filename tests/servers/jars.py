"""Jars from Maven Central, through Maven, kept in the user's cache; tests that need one are skipped without it."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_SECONDS = 120
_ARTIFACTS = {
    "postgresql": "org.postgresql:postgresql:42.7.8",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.6",
}


@dataclass(frozen=True, slots=True)
class Jar:
    """`path` is None when it cannot be had; then `problem` says why."""

    path: Path | None
    problem: str = ""

    def needed(self) -> Path:
        if self.path is None:
            pytest.skip(self.problem)
        return self.path


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "instep-tests" / "jars"


@functools.cache
def jar(name: str) -> Jar:
    artifact = _ARTIFACTS[name]
    _, file, version = artifact.split(":")
    path = cache() / f"{file}-{version}.jar"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / ".lock").open("w") as lock:
        # Test processes start together, and Maven's own cache is not for several at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return Jar(path)
        problem = _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache()}")
    return Jar(path) if path.exists() else Jar(None, f"no {file}: {problem}")


def _maven(*arguments: str) -> str:
    """Empty when it went well."""
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven is not installed"
    try:
        done = subprocess.run(
            [maven, "--batch-mode", "--quiet", *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Maven took more than {_SECONDS} s"
    said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
    return "" if done.returncode == 0 else (said[0] if said else f"Maven ended with {done.returncode}")[:300]
