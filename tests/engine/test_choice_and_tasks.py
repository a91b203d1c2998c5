"""Which engine is chosen and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from instep.container import Container
from instep.domain.planning import Measured, tasks_of
from instep.pipeline.engine.choice import EngineChoice, choose, choose_for_table, choose_planning, cores_of, pace_of
from instep.project import DocumentEntity, FilesSource, LanceTarget, Project, Spark


def chosen(
    configured: str = "auto", work: int = 1_000, *, needs_spark: bool = False, warm: bool = False, cores: int = 2
) -> EngineChoice:
    return choose(configured, work, needs_spark=needs_spark, warm=warm, cores=cores)  # type: ignore[arg-type]  # a parameter of the tests


def test_a_small_plan_is_run_inline_and_the_reason_has_both_estimates() -> None:
    choice = chosen()
    assert choice.name == "inline"
    assert "inline" in choice.reason
    assert "on Spark" in choice.reason


def test_a_plan_that_outlasts_the_start_of_a_large_spark_runs_there() -> None:
    assert chosen(work=50_000_000, cores=64).name == "spark"


@pytest.mark.parametrize("configured", ["auto", "inline", "spark"])
def test_work_that_needs_spark_always_runs_there(configured: str) -> None:
    assert chosen(configured, needs_spark=True).name == "spark"


@pytest.mark.parametrize("warm", [True, False])
def test_an_in_process_target_runs_inline(warm: bool) -> None:
    choice = choose("auto", 50_000_000, needs_spark=False, warm=warm, cores=64, in_process=True)
    assert (choice.name, choice.reason) == ("inline", "its target is in this process")


def test_without_pyspark_all_work_that_can_be_is_done_in_this_process() -> None:
    choice = choose("auto", 50_000_000, needs_spark=False, warm=False, cores=64, installed=False)
    assert (choice.name, choice.reason) == ("inline", "PySpark is not installed")
    assert choose("spark", 1, needs_spark=False, warm=False, cores=64, installed=False).name == "spark"
    assert choose("auto", 1, needs_spark=True, warm=False, cores=64, installed=False).name == "spark"
    table = choose_for_table(50_000_000, warm=False, cores=64, here=True, installed=False)
    assert (table.name, table.reason) == ("inline", "PySpark is not installed")
    assert choose_for_table(1, warm=False, cores=64, installed=False).name == "spark"
    assert choose_planning("auto", 50_000_000, warm=False, installed=False) == ("inline", "PySpark is not installed")
    assert choose_planning("auto", 50_000_000, warm=False)[0] == "spark"


def test_a_table_runs_on_spark_with_an_estimate_of_seconds() -> None:
    choice = choose_for_table(10, warm=True, cores=2)
    assert (choice.name, choice.reason) == ("spark", "tables always run on Spark")
    assert choose_for_table(10, warm=False, cores=2).spark_seconds > choice.spark_seconds
    assert choose_for_table(10_000_000, warm=True, cores=2).spark_seconds > choice.spark_seconds
    assert pace_of("spark", 2, tables=True).seconds(1_000_000) == pace_of("spark", 4, tables=True).seconds(2_000_000)


def test_a_warm_session_is_used() -> None:
    assert chosen(warm=True).name == "spark"


@pytest.mark.parametrize("name", ["inline", "spark"])
def test_the_projects_own_choice_wins(name: str) -> None:
    assert chosen(name, warm=True).name == name
    assert name in chosen(name).reason


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4, 2]", 4), ("spark://host:7077", 16)]
)
def test_cores_are_read_from_the_master(master: str, cores: int) -> None:
    assert cores_of(master) == cores


def test_a_remote_address_wins_over_the_master() -> None:
    assert cores_of("local[3]", "sc://host") == cores_of("yarn")


@pytest.mark.parametrize(
    ("spark", "cores"), [(Spark(master="local[3]"), 3), (Spark(master="yarn"), 16), (Spark(remote="sc://host"), 16)]
)
@pytest.mark.parametrize("kind", [SparkSession, ConnectSession], ids=["is over", "does not say"])
def test_a_session_that_does_not_say_its_cores_has_the_declared_ones_and_its_waves_use_them(
    kind: type[Any], spark: Spark, cores: int, tmp_path: Path
) -> None:
    project = Project(
        name="p",
        spark=spark,
        targets={"index": LanceTarget(uri="s3://bucket/index")},
        entities={"Document": DocumentEntity(source=FilesSource(path=("s3://bucket/docs",)))},
        root=tmp_path,
    )
    # Without a server behind it: one knows no number, the other fails when it is asked.
    given = object.__new__(kind)
    container = Container(project, spark=given)
    assert container.engines.cores() == cores
    pace = pace_of("spark", container.engines.cores())
    assert tasks_of(round(pace.work_per_second * 60), pace) % cores == 0, "each core has as many tasks"
    assert tasks_of(round(pace.work_per_second * 60), pace) >= cores


def test_paces_are_positive() -> None:
    assert pace_of("inline").seconds(1_000) > 0
    assert pace_of("spark", 8).work_per_second > pace_of("spark", 2).work_per_second


def slowed(factor: float, engine: str = "inline", cores: int = 2) -> Measured:
    """So many times slower than is believed, for ten seconds."""
    usual = pace_of("inline") if engine == "inline" else pace_of(engine, cores)
    return Measured(engine, usual.cores, round(usual.work_per_second * 10 / factor), 10_000, "0123456789ab")


def test_estimates_are_by_what_was_measured_and_say_so() -> None:
    default = chosen(work=100_000)
    assert default.pace_from == "a default"
    known = choose("auto", 100_000, needs_spark=False, warm=False, cores=2, known=[slowed(100)])
    assert known.pace_from == "measured in job 01234567"
    assert known.inline_seconds == pytest.approx(100 * default.inline_seconds, rel=0.1)
    assert known.work_per_second == pytest.approx(default.work_per_second / 100, rel=0.01)


def test_an_engine_that_was_never_measured_is_as_much_slower_as_the_other() -> None:
    """Else it would be tried because nothing is known of it."""
    work = 20_000
    assert choose("auto", work, needs_spark=False, warm=False, cores=2, known=[slowed(100)]).name == "inline"
    assert choose("auto", work, needs_spark=False, warm=False, cores=64, known=[slowed(100)]).name == "spark"


def test_a_pace_of_few_cores_counts_for_many() -> None:
    many = choose("spark", 10**6, needs_spark=False, warm=True, cores=16, known=[slowed(10, "spark", 4)])
    assert many.work_per_second == pytest.approx(pace_of("spark", 16).work_per_second / 10, rel=0.01)


def test_a_pace_of_its_own_counts_before_that_of_another_engine() -> None:
    both = [slowed(100), slowed(2, "spark")]
    choice = choose("spark", 10**6, needs_spark=False, warm=True, cores=2, known=both)
    assert choice.work_per_second == pytest.approx(pace_of("spark", 2).work_per_second / 2, rel=0.01)


def test_a_slower_embedder_is_estimated_so_until_it_was_measured() -> None:
    slow = choose("auto", 10_000, needs_spark=False, warm=False, cores=2, slower=100)
    assert slow.inline_seconds > 10 * chosen(work=10_000).inline_seconds
    fast = choose("auto", 10_000, needs_spark=False, warm=False, cores=2, slower=100, known=[slowed(1)])
    assert fast.inline_seconds == chosen(work=10_000).inline_seconds


def test_small_documents_count_for_more_than_their_rows_until_they_were_measured() -> None:
    def small(**known: Any) -> EngineChoice:
        return choose("inline", 20_000, documents=20_000, needs_spark=False, warm=False, cores=2, **known)

    assert small().inline_seconds == pytest.approx(3 * chosen(work=20_000).inline_seconds, rel=0.1)
    assert small(slower=10).inline_seconds == pytest.approx(
        small().inline_seconds + 9 * chosen(work=20_000).inline_seconds, rel=0.1
    )
    measured = [slowed(10)]
    rows = choose("inline", 20_000, needs_spark=False, warm=False, cores=2, known=measured)
    assert small(known=measured).inline_seconds == rows.inline_seconds


def test_a_table_is_estimated_by_what_was_measured() -> None:
    known = Measured("spark", 2, 1_000, 10_000, "job")
    choice = choose_for_table(1_000, warm=True, cores=2, known=[known])
    assert (choice.spark_seconds, choice.pace_from) == (10.0, "measured in job job")
