"""Where a local Spark starts from, and the doctor that prepares it."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.pipeline.engine.class_cache import SparkHome, spark_home


def test_the_spark_home_is_stable_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = spark_home()
    assert home == spark_home()
    assert home.folder.is_relative_to(tmp_path)
    assert (home.folder / "bin" / "spark-submit").exists()
    assert not home.archived
    assert home.java_options() == []


def test_another_java_gets_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = spark_home().archive
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert spark_home().archive != before


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = spark_home()
    assert home.archive is None
    assert (home.folder / "jars").exists()


def test_the_users_own_spark_home_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_home() == SparkHome(tmp_path, None)


def test_an_archive_is_used_once_it_is_there(tmp_path: Path) -> None:
    home = SparkHome(tmp_path, tmp_path / "classes.jsa")
    assert home.java_options(archive_to=tmp_path / "new.jsa") == [f"-XX:ArchiveClassesAtExit={tmp_path / 'new.jsa'}"]
    (tmp_path / "classes.jsa").touch()
    assert home.java_options() == [f"-XX:SharedArchiveFile={tmp_path / 'classes.jsa'}"]
