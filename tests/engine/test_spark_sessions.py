"""The classic Spark of a process: shared by all that Instep runs in it, and started again when it has gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instep.errors import Away, Transient, UserError
from instep.pipeline.engine import launch, sparkapi
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings
from instep.pipeline.engine.spark_engine import SparkEngine
from tests.contracts.engine import RowFiles, a_wave, written

pytestmark = [pytest.mark.spark, pytest.mark.proof]


class Kept:
    """One Spark for all tests that leave it as it is. `end` is for those that must have none."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._spark: LazySpark | None = None

    def spark(self) -> LazySpark:
        self._spark = self._spark or LazySpark(self._settings)
        return self._spark

    def end(self) -> None:
        if self._spark is not None:
            self._spark.close()
            self._spark = None


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> SparkSettings:
    return SparkSettings(master="local[2]", log=tmp_path_factory.mktemp("spark") / "spark.log")


@pytest.fixture(scope="module")
def kept(settings: SparkSettings) -> Iterator[Kept]:
    made = Kept(settings)
    yield made
    made.end()


@pytest.fixture
def spark(kept: Kept) -> LazySpark:
    return kept.spark()


def test_a_jvm_that_does_not_end_in_time_is_killed_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it stays a zombie, and Python says so at whatever is running by then."""
    from pyspark import SparkContext

    with subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(sparkapi, "STOP_SECONDS", 1)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process, shutdown=lambda: None))
        sparkapi.end_jvm()
        assert process.returncode == -signal.SIGKILL
    assert SparkContext._gateway is None


def jvm() -> int:
    from pyspark import SparkContext

    return int(SparkContext._gateway.proc.pid)


def test_those_that_start_at_once_share_one_spark(spark: LazySpark, settings: SparkSettings) -> None:
    other = LazySpark(settings)
    spark.begin()
    other.begin()
    assert spark.get().sparkContext is other.get().sparkContext
    other.close()
    assert spark.get().range(3).count() == 3


def test_each_has_its_own_settings(spark: LazySpark, settings: SparkSettings) -> None:
    rows = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.get()
    config = {rows: "77", "spark.driver.memory": "3g"}
    other = LazySpark(SparkSettings(master="local[1]", config=config, log=settings.log, scans=True))
    assert other.get().conf.get(rows) == "77"
    assert other.get().conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.get().conf.get(rows) == "10000"
    other.close()


def test_another_spark_beside_it_is_refused(spark: LazySpark) -> None:
    spark.get()
    for settings in (SparkSettings(master="yarn"), SparkSettings(remote="sc://127.0.0.1:1;token=t")):
        with pytest.raises(UserError, match="this process uses Spark at local") as raised:
            LazySpark(settings).get()
        assert "token" not in str(raised.value)


def test_a_spark_that_dies_in_mid_run_is_an_outage_and_the_next_wave_has_another(
    spark: LazySpark, tmp_path: Path
) -> None:
    engine = SparkEngine(spark)
    frame = engine._frame

    def of_a_dead_session(*args: Any) -> Any:
        os.kill(jvm(), signal.SIGKILL)
        return frame(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_frame", of_a_dead_session)
        with pytest.raises(Transient):
            engine.run(a_wave(), RowFiles(tmp_path))
    assert len(written(tmp_path, list(engine.run(a_wave(), RowFiles(tmp_path))))) == 80


def test_closing_one_session_leaves_spark_to_the_others(kept: Kept, settings: SparkSettings, tmp_path: Path) -> None:
    kept.end()
    first, other = LazySpark(settings), LazySpark(settings)
    first.get()
    second = SparkEngine(other)
    second.ready()
    first.close()
    assert len(written(tmp_path, list(second.run(a_wave(), RowFiles(tmp_path))))) == 80
    first_jvm = jvm()
    other.close()
    # The last one ends it, and the next one starts another.
    assert kept.spark().get().range(3).count() == 3
    assert jvm() != first_jvm


def test_a_session_of_the_users_that_has_ended_is_named_as_such(spark: LazySpark, tmp_path: Path) -> None:
    given = LazySpark(given=spark.get())
    spark.get().stop()
    with pytest.raises(Away, match="the Spark session that was given has ended"):
        SparkEngine(given).run(a_wave(), RowFiles(tmp_path))
    sparkapi.end_jvm()


def test_the_python_of_one_project_is_not_that_of_the_next(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.end()
    seen = []

    def start(*_: Any) -> None:
        seen.append(os.environ.get("PYSPARK_PYTHON"))
        raise RuntimeError("no JVM for this")

    monkeypatch.setattr(sparkapi, "launch_jvm", start)
    monkeypatch.setattr(launch, "demand_master", lambda master: None)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    named = SparkSettings(master="spark://a:1", config={"spark.pyspark.python": "/there/python"})
    for settings in (named, SparkSettings(master="spark://b:1"), SparkSettings(master="local[1]")):
        with pytest.raises(UserError, match="Spark did not start"):
            LazySpark(settings).get()
    assert seen == ["/there/python", None, sys.executable]
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.parametrize("master", ["spark://127.0.0.1:{port}", "spark://127.0.0.1:{port},127.0.0.1:{port}"])
def test_a_master_that_is_not_there_is_away_and_no_jvm_is_started(kept: Kept, master: str) -> None:
    kept.end()
    with socket.socket() as mute:  # Taken, without a listener.
        mute.bind(("127.0.0.1", 0))
        named = master.format(port=mute.getsockname()[1])
        with pytest.raises(Away, match="the Spark master does not answer") as raised:
            LazySpark(SparkSettings(master=named)).get()
    assert raised.value.where == named
    assert sparkapi.jvm_exit() is None


@pytest.mark.parametrize("master", ["spark://", "spark://127.0.0.1", "spark://127.0.0.1:seven"])
def test_a_master_without_host_and_port_is_a_mistake(kept: Kept, master: str) -> None:
    kept.end()
    with pytest.raises(UserError, match="has no host and port") as raised:
        LazySpark(SparkSettings(master=master)).get()
    assert raised.value.exit_code == 1


def test_a_setting_that_spark_refuses_is_a_mistake_said_in_a_line(kept: Kept, settings: SparkSettings) -> None:
    kept.end()
    with pytest.raises(UserError, match=r"Spark did not start: .*no\.such\.Plugin") as raised:
        LazySpark(replace(settings, config={"spark.plugins": "no.such.Plugin"})).get()
    assert raised.value.exit_code == 1
    assert len(raised.value.what.splitlines()) == 1
