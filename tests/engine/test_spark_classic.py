"""The Spark engine on classic Spark: one session for the whole module."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from instep.container import Container
from instep.domain.waves import Stage
from instep.own_code import send
from instep.pipeline.code_fingerprint import loaded_fingerprint
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.engine import Batches, Engine
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings, local_options
from instep.pipeline.engine.spark_engine import SparkEngine
from instep.pipeline.loading import load_function
from instep.pipeline.tables.writing import RowWriter
from tests.contracts.engine import RowFiles, a_wave
from tests.contracts.spark_engine import SparkEngineContract
from tests.contracts.table_waves import Changed, a_program, a_target, table_wave
from tests.jobs.projects import home

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LazySpark]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    lazy = LazySpark(SparkSettings(master="local[2]", log=log))
    lazy.begin()
    yield lazy
    lazy.close()


@dataclass(frozen=True)
class Pooled:
    """Tasks that say whose share of the cores they use."""

    folder: Path
    writer: RowWriter

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (self.folder / "pool").write_text(context.getLocalProperty("spark.scheduler.pool") or "none")
        yield from self.writer.write(batches)


def _daemon(batches: Batches) -> Batches:
    daemon = Path(f"/proc/{os.getppid()}")
    for _ in batches:
        threads = []
        for each in (daemon / "task").iterdir():
            # One of Arrow's may end meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                threads += [(each / "comm").read_text().strip()] if each.name != daemon.name else []
        found = {
            "command": [(daemon / "cmdline").read_text().replace("\0", " ")],
            "threads": [" ".join(threads)],
        }
        yield pa.RecordBatch.from_pydict(found)


def test_tasks_run_what_was_imported_again(spark: LazySpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, say: workers that have imported the first code would stay with it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    source = """
import pyarrow as pa


def said(batches):
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"word": ["first"]})
"""

    def words() -> list[str]:
        name = "imported_again_on_spark:said"
        function = load_function(name, "transform")
        loaded_fingerprint(name, function)
        session = spark.get()
        send(session, function)
        frame = session.range(0, 2, 1, 2)
        return [each["word"] for each in sparkapi.map_in_arrow(frame, function, "word string").toArrow().to_pylist()]

    file = tmp_path / "imported_again_on_spark.py"
    file.write_text(source)
    assert words() == ["first", "first"]
    file.write_text(source.replace("first", "second"))
    assert words() == ["first", "first"], "it was not imported again"
    importlib.reload(sys.modules["imported_again_on_spark"])
    assert words() == ["second", "second"]


class TestSparkEngineOnClassic(SparkEngineContract):
    @pytest.fixture
    def engine(self, spark: LazySpark) -> Engine:
        return SparkEngine(spark)

    @pytest.mark.parametrize(("most", "pool"), [(750, "short"), (749, "long")])
    def test_small_waves_go_before_large_ones(
        self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, pool: str
    ) -> None:
        monkeypatch.setattr("instep.pipeline.engine.spark_engine.SHORT_WORK", most)
        program = a_program(a_target(tmp_path / "target"))
        engine.run(table_wave("Number@42/7"), Changed(program, Pooled(tmp_path, program.writer)))
        assert (tmp_path / "pool").read_text() == pool

    def test_a_spark_for_scans_has_the_pools(self) -> None:
        options = local_options(scans=True)
        assert options["spark.scheduler.mode"] == "FAIR"
        pools = ElementTree.parse(options["spark.scheduler.allocation.file"].removeprefix("file://"))
        shares = {pool.get("name"): int(pool.findtext("minShare", "")) for pool in pools.getroot()}
        assert shares["short"] > shares["long"] == 0

    def test_ctrl_c_does_not_reach_the_jvm_and_no_python_ran_in_it(self, spark: LazySpark) -> None:
        """What Python runs between fork and exec may hang: then SIGINT would be ignored from there."""
        from pyspark import SparkContext

        spark.get()
        jvm = SparkContext._gateway.proc.pid
        status = dict(line.split(":", 1) for line in Path(f"/proc/{jvm}/status").read_text().splitlines())
        assert os.getpgid(jvm) == jvm
        assert not int(status["SigIgn"], 16) & 1 << signal.SIGINT - 1

    def test_workers_come_from_a_daemon_that_has_loaded_what_they_import(self, spark: LazySpark) -> None:
        """And has no thread that a fork would lose."""
        said = sparkapi.map_in_arrow(spark.get().range(1), _daemon, "command string, threads string").toArrow()
        (found,) = said.to_pylist()
        assert "instep.pipeline.engine.worker_daemon" in found["command"]
        assert set(found["threads"].split()) <= {"jemalloc_bg_thd"}, "Arrow's, which looks after itself"

    def test_names_of_columns_may_be_anything(self, spark: LazySpark) -> None:
        frame = spark.get().range(3).toDF("a.b`c d")
        assert sparkapi.map_in_arrow(frame, lambda batches: batches, "n bigint").toArrow().num_rows == 3

    def test_a_session_passed_in_is_used_and_not_stopped(self, spark: LazySpark, tmp_path: Path) -> None:
        session = spark.get()
        engine = SparkEngine(LazySpark(given=session))
        assert len(engine.run(a_wave(), RowFiles(tmp_path))) == 4
        engine.close()
        assert session.range(3).count() == 3

    def test_stages_are_reported_with_their_tasks(self, spark: LazySpark, tmp_path: Path) -> None:
        told: list[Stage] = []
        SparkEngine(spark).run(a_wave(), RowFiles(tmp_path), stages=told.append)
        assert {each.tasks for each in told} == {4}
        assert len({each.number for each in told}) == 1

    def test_cores_are_those_of_the_session_that_is_given(self, spark: LazySpark, tmp_path: Path) -> None:
        container = Container(home(tmp_path).open().project, spark=spark.get(), threads=7)
        (setup,) = container.setups()
        choice = container.engines.choose(setup, 1)
        assert (choice.name, choice.pace.cores) == ("spark", 2)

    def test_a_spark_that_is_already_there_is_used_and_not_stopped(self, spark: LazySpark) -> None:
        session = spark.get()
        other = LazySpark(SparkSettings(master="local[1]"))
        assert other.warm
        assert other.get().sparkContext is session.sparkContext
        other.close()
        assert session.range(3).count() == 3
