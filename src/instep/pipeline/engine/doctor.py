"""A check that Spark works here: start it, run a job through its Python workers, and stop it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from instep.errors import InstepError
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.class_cache import spark_home
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings


def examine(settings: SparkSettings) -> str:
    """Describe where Spark runs, and how long its start took. Raises `UserError` when it does not work.

    The first time, a local Spark leaves the archive of its classes behind that makes later starts quick.
    """
    home = spark_home() if settings.is_local else None
    fresh = home.archive.with_name(f"{time.time_ns()}.jsa") if home and home.archive and not home.archived else None
    started = time.monotonic()
    spark = LazySpark(settings, archive_to=fresh)
    try:
        session = spark.get()
        where = f"Spark {session.version} at {settings.shown}"
        answer = sparkapi.map_in_arrow(session.range(0, 2, 1, 2), _work, "version string").toArrow()
        seconds = time.monotonic() - started
    except InstepError:
        raise
    except Exception as error:
        found = spark.explained(session, error)
        spark.close(at_once=True)
        raise found from error
    finally:
        spark.close()
    if fresh is not None and home is not None and home.archive is not None and fresh.exists():
        fresh.replace(home.archive)
        return f"{where} works; its next start will be quicker"
    (workers,) = set(answer.column(0).to_pylist())
    return f"{where} started in {seconds:.1f} s; its workers have Instep {workers}"


def _work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in the workers: they must have Instep and what a wave imports."""
    import instep.pipeline.documents.pipeline
    from instep.targets.lance.location import lance_library

    lance_library()
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"version": pa.array([instep.__version__] * batch.num_rows)})
