"""Run one Spark job whose rows are few, watched while it runs, and cancelled on Ctrl-C."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from instep.domain.waves import Stage
from instep.error_transport import SparkLost
from instep.pipeline.engine import sparkapi

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: How often a running job is asked how far it is, in seconds. A small one ends before that, and is not held up.
POLL_SECONDS = 0.5
#: How long a cancelled job is waited for.
CANCEL_SECONDS = 10.0
#: How long a job may be without any executor. A busy cluster has none to give; a standalone master that has forgotten
#: us, because it was started again, never has: then another session helps. Other clusters may start machines first.
ALONE_SECONDS = 120.0
_ALONE_ELSEWHERE_SECONDS = 900.0


def run_spark_job(
    session: SparkSession, frame: DataFrame, *, pool: str, look: Callable[[Sequence[Stage]], None] = lambda _: None
) -> pa.Table:
    """The rows of a frame. The job has a thread of its own, so that this one can watch it and take Ctrl-C. `look` is
    told how far its stages are, also when it is through. Raises `SparkLost` when there has been no executor for long.
    """
    group = f"instep-{uuid.uuid4().hex}"
    found: list[pa.Table] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def body() -> None:
        try:
            with sparkapi.grouped(session, group, pool=pool):
                found.append(frame.toArrow())
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=body, name="spark-wave", daemon=True).start()

    def tell() -> None:
        with suppress(Exception):  # Only for show. If Spark is gone, the job itself says so.
            look(sparkapi.stages(session, group))

    demand_executors = _patience(session)
    try:
        while not done.wait(POLL_SECONDS):
            tell()
            demand_executors()
    except BaseException:
        if sparkapi.cancel_group(session, group):
            done.wait(CANCEL_SECONDS)
        raise
    if failed:
        raise failed[0]
    tell()
    return found[0]


def _patience(session: SparkSession) -> Callable[[], None]:
    """A function that raises `SparkLost` when it is called, and there has been no executor for long."""
    since = time.monotonic()
    most = ALONE_SECONDS if sparkapi.is_standalone(session) else _ALONE_ELSEWHERE_SECONDS

    def demand() -> None:
        nonlocal since
        if not sparkapi.is_alone(session):
            since = time.monotonic()
        elif time.monotonic() - since > most:
            raise SparkLost(
                f"Spark has had no executor for {most:.0f} s: its cluster is full, or does not know this "
                "application any more"
            )

    return demand
