"""No usable Java is one clear sentence, found before anything starts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from instep.errors import Away, UserError
from instep.pipeline.engine.java import java_problem, java_version
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("text", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("26-ea", 26)])
def test_the_version_is_asked_of_java_when_no_release_file_says_it(tmp_path: Path, text: str, number: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == number


def test_the_release_file_is_believed_without_running_java(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "8")
    (tmp_path / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n')
    assert java_version(java) == 17


def test_no_java_is_one_sentence_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_problem() == (
        "Spark needs Java 17 or newer, and no Java was found: install one "
        "(for example `apt install openjdk-17-jre-headless`) or set JAVA_HOME."
    )


def test_an_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert f"{java} is Java 11" in problem


def test_a_java_that_hangs_when_it_is_asked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.pipeline.engine.java.VERSION_SECONDS", 0.2)
    java = fake_java(tmp_path, "17")
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"{java} does not say its version" in (java_problem() or "")


def test_a_java_that_does_not_come_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark waits for ever for one that hangs."""
    started: list[subprocess.Popen[bytes]] = []

    def recorded(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*args, **options))
        return started[-1]

    monkeypatch.setattr("pyspark.java_gateway.Popen", recorded)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr("instep.pipeline.engine.session._active", lambda: None)
    monkeypatch.setattr("instep.pipeline.engine.sparkapi.LAUNCH_SECONDS", 1.0)
    java = fake_java(tmp_path, "17")
    java.write_text("#!/bin/sh\nexec sleep 5\n")
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Away, match=f"Spark did not start: {java} does not come up within 1 s"):
        LazySpark(SparkSettings(master="local[1]", log=tmp_path / "spark.log")).get()
    (hung,) = started  # PySpark keeps it to itself, and its thread ends with it.
    hung.kill()
    hung.wait()
    if hung.stdin is not None:
        hung.stdin.close()


def test_a_start_in_the_background_raises_its_error_when_the_session_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    # Another test of this process may have left a session that would be taken.
    monkeypatch.setattr("instep.pipeline.engine.session._active", lambda: None)
    spark = LazySpark(SparkSettings(master="local[1]"))
    spark.begin()
    with pytest.raises(UserError, match="no Java was found"):
        spark.get()
    spark.close()
