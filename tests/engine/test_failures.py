"""Errors of tasks found again in what Spark says of them."""

from __future__ import annotations

import pytest

from instep.error_transport import TaskFailed, explained, pack, unpacked
from instep.errors import Fenced, Transient, Unknown, UserError


class Throttled(Transient):
    """A kind of its own, as an adapter may have."""


@pytest.mark.parametrize("error", [Transient("down"), Fenced("gone"), Unknown("lost reply")])
def test_an_error_survives_any_text_around_it(error: Exception) -> None:
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


LOST = """An error occurred while calling o72.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most \
recent failure: Lost task 0.0 in stage 0.0 (TID 0) (192.0.2.7 executor driver): {reason}
\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:906)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4560)
"""


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: Error while finding "
            "module specification for 'pyspark.daemon' (ModuleNotFoundError: No module named 'pyspark')\nPYTHONPATH:",
            "Spark's Python workers do not start: /usr/bin/python3: Error while finding",
        ),
        ('java.io.IOException: Cannot run program "/no/python": error=2, No such', "Spark cannot run '/no/python'"),
        ("org.apache.spark.api.python.PythonException: [PYTHON_VERSION_MISMATCH] Python", "version of Python"),
        (
            "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            "AttributeError: Can't get attribute 'Wave' on <module 'instep.domain.waves' from 'x'>",
            "have another version of Instep",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "Spark's JVM ran out of memory"),
        ("java.io.IOException: No space left on device", "Spark has no space left"),
        ("java.lang.UnsupportedClassVersionError: com/Driver", "a jar needs a newer Java"),
    ],
)
def test_an_error_that_prevents_all_tasks_is_an_error_of_the_user(reason: str, said: str) -> None:
    error = unpacked(LOST.format(reason=reason))
    assert isinstance(error, UserError), error
    assert said in error.what
    assert len(error.what.splitlines()) == 1
    assert error.hint


def test_a_task_that_dies_without_python_is_reported_by_its_own_words() -> None:
    error = unpacked(LOST.format(reason="org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"))
    assert isinstance(error, TaskFailed)
    assert str(error) == "SparkException: Python worker exited unexpectedly (crashed)"


def test_a_failure_of_spark_itself_gives_its_first_line() -> None:
    assert str(unpacked("Job 3 cancelled because SparkContext was shut down\n\tat x")) == (
        "Job 3 cancelled because SparkContext was shut down"
    )


@pytest.mark.parametrize(
    "reason",
    [
        "java.lang.RuntimeException: Stream '/artifacts/c0/pyfiles/instep_code_0f0f0f0f0f0f0f0f.zip' was not found.",
        "java.nio.file.NoSuchFileException: /tmp/code/instep_code_0f0f0f0f0f0f0f0f.zip",
        "java.io.IOException: Failed to connect\n"
        "\tat org.apache.spark.executor.Executor.$anonfun$updateDependencies$5(Executor.scala:1370)",
    ],
)
def test_a_resource_denied_to_a_task_is_an_outage(reason: str) -> None:
    from pyspark.errors import PySparkException

    found = explained(PySparkException(message=LOST.format(reason=reason)))
    assert isinstance(found, Transient)
    said = reason.partition("\n")[0].rpartition(".lang.")[2].removeprefix("java.nio.file.").removeprefix("java.io.")
    assert str(found) == f"Spark cannot hand the project's own code to its tasks: {said}"


def test_a_path_in_the_projects_own_code_is_no_outage() -> None:
    from pyspark.errors import PySparkException

    trace = (
        "Traceback (most recent call last):\n"
        '  File "/tmp/instep_code_0f0f0f0f0f0f0f0f.zip/mine.py", line 3, in rows\nLookupError: no such word\n'
    )
    assert isinstance(explained(PySparkException(message=LOST.format(reason=trace))), TaskFailed)
