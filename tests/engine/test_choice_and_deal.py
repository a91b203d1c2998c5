"""Which engine is chosen and why."""

from __future__ import annotations

import pytest

from instep.pipeline.engine.choice import EngineChoice, choose, choose_for_table, cores_of, pace_of


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


def test_paces_are_positive() -> None:
    assert pace_of("inline").seconds(1_000) > 0
    assert pace_of("spark", 8).work_per_second > pace_of("spark", 2).work_per_second
