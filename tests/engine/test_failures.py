"""Errors of tasks found again in what Spark says of them."""

from __future__ import annotations

import pytest

from instep.errors import Fenced, Transient, Unknown, UserError
from instep.failures import TaskFailed, pack, unpacked


class Throttled(Transient):
    """A kind of its own, as an adapter may have."""


@pytest.mark.parametrize("error", [Transient("down"), Fenced("gone"), Unknown("lost reply")])
def test_an_error_survives_whatever_is_put_around_it(error: Exception) -> None:
    found = unpacked(f"Job aborted\n  at java.lang.Thread\nTaskError: {pack(error)}\n SQLSTATE: 38000\n\tat org.apache")
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_a_subclass_comes_back_as_the_kind_that_says_what_to_do() -> None:
    found = unpacked(pack(Throttled("slow down")))
    assert type(found) is Transient
    assert str(found) == "slow down"


def test_a_user_error_keeps_its_parts() -> None:
    found = unpacked(pack(UserError("what", where="where", hint="hint")))
    assert isinstance(found, UserError)
    assert (found.what, found.where, found.hint) == ("what", "where", "hint")


def test_the_python_line_is_taken_from_a_java_trace() -> None:
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "job.py", line 8, in broken\n    raise LookupError("no such word")\n'
        "LookupError: no such word\n SQLSTATE: 38000\n\tat org.apache.spark.X\nCaused by: java.lang.Error: other\n"
    )
    found = unpacked(text)
    assert isinstance(found, TaskFailed)
    assert str(found) == "LookupError: no such word"


def test_workers_without_instep_are_explained() -> None:
    text = """org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):
  File "x.py", line 1, in <module>
ModuleNotFoundError: No module named 'instep'
"""
    error = unpacked(text)
    assert isinstance(error, UserError)
    assert "PYSPARK_PYTHON" in str(error)


def test_a_failure_of_spark_itself_gives_its_first_line() -> None:
    assert str(unpacked("Job 3 cancelled because SparkContext was shut down\n\tat x")) == (
        "Job 3 cancelled because SparkContext was shut down"
    )
