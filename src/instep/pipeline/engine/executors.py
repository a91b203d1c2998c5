"""Put one question to the executors of a Spark. An answer says which host and which process gave it.

The question travels by value and is asked by a plain Python function: it is answered where neither Arrow nor the
libraries of a target are installed, which is what it may be about.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname
from typing import TYPE_CHECKING, Any, NamedTuple

from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.spark_job import run_spark_job

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: A function without arguments that returns what JSON can say. What it needs of its module goes with it.
Question = Callable[[], Any]

#: Tasks that ask, where Spark does not say how many run at once.
_TASKS = 8
#: Tasks that read one table at once, at most.
_MOST_READS = 16
#: How long each of them holds its core, so that others go to other executors.
_HOLD_SECONDS = 0.2
#: An executor that is new to us may not be the last: they come one by one. No more are waited for after so long.
_SETTLED_SECONDS = 4.0
#: The end of all rounds, if one that is known never answers.
_MOST_SECONDS = 30.0


class Executor(NamedTuple):
    """An executor of Spark. `process` is that of its Python: two executors on one host differ by it."""

    host: str
    process: int


def ask_all(session: SparkSession, question: Question, expected: Collection[Executor] = ()) -> Mapping[Executor, Any]:
    """The answers of all executors: rounds of tasks ask until all that Spark knows have answered, and no other one has
    come for a while; or, if some are `expected`, until these have. Some may be missing in the end:
    `sparkapi.executors` says how many there are.
    """
    found: dict[Executor, Any] = {}
    began = last = time.monotonic()
    while True:
        new = ask(session, question, found)
        found |= new
        now = time.monotonic()
        last = now if new else last
        if expected:
            all_of_them = found.keys() >= set(expected)
        else:
            all_of_them = len(found) >= (sparkapi.executors(session) or 0) and now - last >= _SETTLED_SECONDS
        if all_of_them or now - began >= _MOST_SECONDS or sparkapi.is_on_this_machine(session):
            return found


def ask(session: SparkSession, question: Question, known: Iterable[Executor] = ()) -> Mapping[Executor, Any]:
    """The answers of one round of as many tasks as run at once: those of all executors, if none is busy. Executors that
    are `known` are not asked again.
    """
    from pyspark.sql.functions import udf

    asked = udf(_answering(question, {tuple(each) for each in known}), "string", useArrow=False)
    tasks = sparkapi.slots(session) or _TASKS
    said = run_spark_job(session, session.range(0, tasks, 1, tasks).select(asked("id").alias("said")), pool="short")
    found: dict[Executor, Any] = {}
    for text in filter(None, said.column(0).to_pylist()):
        host, process, told = json.loads(str(text))
        found.setdefault(Executor(host, process), told)
    return found


def _answering(question: Question, known: set[tuple[str | int, ...]]) -> Callable[[object], str | None]:
    """A task's function. It is pickled by value, like all that is defined in a function."""

    def said(_: object) -> str | None:
        time.sleep(_HOLD_SECONDS)
        here = gethostname(), os.getppid()
        return None if here in known else json.dumps([*here, question()])

    return said


def readers(session: SparkSession, frame: DataFrame) -> set[Executor]:
    """Executors that have read a row of this frame, which is read by several tasks at once, as Spark shares them out.
    Empty when it has no rows.
    """
    read = sparkapi.map_in_arrow(frame, _read, "host string, process bigint").limit(1)
    times = min(_MOST_READS, sparkapi.slots(session) or _TASKS)
    with ThreadPoolExecutor(times) as threads:
        found = list(threads.map(lambda _: read.collect(), range(times)))
    return {Executor(row.host, row.process) for rows in found for row in rows}


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            time.sleep(_HOLD_SECONDS)
            yield batch.from_pydict({"host": [gethostname()], "process": [os.getppid()]})
            return
