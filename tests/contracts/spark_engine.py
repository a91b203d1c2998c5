"""What the Spark engine owes beyond the common contract, on classic Spark and on Connect alike."""

from __future__ import annotations

import importlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.errors import Transient, UserError
from instep.pipeline.engine.engine import Engine
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.spark_engine import SparkEngine
from tests.contracts.engine import EngineContract, RowFiles, Upkeep, a_wave, written
from tests.contracts.table_waves import TableWavesContract


def _with_column(frame: Any) -> Any:
    from pyspark.sql import functions as f

    return frame.withColumn("length", f.length("text")).withColumn("text", f.upper("text"))


def _filtered(frame: Any) -> Any:
    return frame.filter("end_of_document OR chunk_index < 5")


def _upper(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    for batch in batches:
        text = batch.schema.get_field_index("text")
        yield batch.set_column(text, "text", pc.utf8_upper(batch.column(text)))


def _mapped(frame: Any) -> Any:
    return frame.mapInArrow(_upper, frame.schema)


def _broadcast(frame: Any) -> Any:
    from pyspark.sql import functions as f

    small = frame.sparkSession.range(4).selectExpr("cast(id as int) as bucket", "concat('b', id) as name")
    return frame.join(f.broadcast(small), "bucket", "left")


def _broadcast_away(frame: Any) -> Any:
    from pyspark.sql import functions as f

    large = frame.sparkSession.range(9).selectExpr("cast(id as int) as bucket")
    return large.join(f.broadcast(frame), "bucket")


def _coalesced(frame: Any) -> Any:
    return frame.coalesce(2)


def _numbered(frame: Any) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    return frame.withColumn("n", f.row_number().over(Window.partitionBy("document_id").orderBy("chunk_id")))


def _breaks(frame: Any) -> Any:
    raise KeyError("no such setting")


_SHOUTING = """
def shout(rows):
    from pyspark.sql import functions as f

    return rows.withColumn("text", f.udf(cry)("text"))


def cry(text):
    from {name}.words import loud

    return loud(text)
"""

ACCEPTED = [_with_column, _filtered, _mapped, _broadcast, _coalesced]

REFUSED: list[tuple[str, Callable[[Any], Any]]] = [
    ("repartition", lambda frame: frame.repartition(3)),
    ("repartition", lambda frame: frame.repartition("document_id")),
    ("repartition", lambda frame: frame.repartitionByRange(3, "document_id")),
    ("groupBy", lambda frame: frame.groupBy("document_id").count()),
    ("groupBy, distinct", lambda frame: frame.distinct()),
    ("groupBy, distinct", lambda frame: frame.dropDuplicates(["document_id"])),
    ("sample", lambda frame: frame.sample(0.5)),
    ("sort", lambda frame: frame.orderBy("chunk_id")),
    ("sort", lambda frame: frame.sortWithinPartitions("chunk_id")),
    ("limit", lambda frame: frame.limit(3)),
    ("self-join or union", lambda frame: frame.union(frame)),
    ("window function", _numbered),
    ("join that broadcasts the documents", _broadcast_away),
    (
        "join",
        lambda frame: frame.join(
            frame.sparkSession.range(9).selectExpr("cast(id as int) as bucket").hint("merge"), "bucket"
        ),
    ),
]

RESHAPED: list[tuple[str, Callable[[Any], Any]]] = [
    ("dropped or renamed text", lambda frame: frame.drop("text")),
    ("dropped or renamed text", lambda frame: frame.withColumnRenamed("text", "body")),
    ("type of bucket from int to bigint", lambda frame: frame.withColumn("bucket", frame["bucket"].cast("bigint"))),
    ("returned NoneType, not a DataFrame", lambda _: None),
    ("the transform raised KeyError: 'no such setting'", _breaks),
    ("does not come from the documents", lambda frame: frame.sparkSession.range(3)),
]


class SparkEngineContract(EngineContract, TableWavesContract):
    """Waves of tables; and transforms: which are run, and which are refused before anything ran."""

    def test_an_outage_of_something_else_leaves_spark_running(self, spark: LazySpark, tmp_path: Path) -> None:
        session, engine = spark.get(), SparkEngine(spark)
        for _ in range(2):
            with pytest.raises(Transient, match="the far end is down"):
                engine.run(a_wave(), RowFiles(tmp_path, fail={"d7": Transient("the far end is down")}))
        assert spark.get() is session
        assert session.range(3).count() == 3

    def test_upkeep_that_takes_much_memory_is_done_by_another_process(self, engine: Engine, tmp_path: Path) -> None:
        assert engine.once(Upkeep(tmp_path), apart=True) > 0
        assert (tmp_path / "upkeep").read_text().split() != [str(os.getpid())]

    def test_each_bucket_is_one_task(self, engine: Engine, tmp_path: Path) -> None:
        assert len(engine.run(a_wave(), RowFiles(tmp_path))) == 4

    @pytest.mark.parametrize("transform", ACCEPTED, ids=lambda each: each.__name__)
    def test_a_transform_that_leaves_rows_where_they_are_runs(
        self, engine: Engine, tmp_path: Path, transform: Callable[[Any], Any]
    ) -> None:
        rows = written(tmp_path, list(engine.run(a_wave(), RowFiles(tmp_path, transform=transform))))
        assert sorted(row["chunk_id"] for row in rows) == sorted(f"d{n}/{i}" for n in range(40) for i in range(2))
        if transform in (_with_column, _mapped):
            assert {row["text"][:4] for row in rows} == {"TEXT"}
        if transform is _with_column:
            assert all(row["length"] == len(row["text"]) for row in rows)

    def test_tasks_have_the_code_that_a_transform_is_made_of(
        self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is in a folder that only this process has on its path."""
        name = f"own_{uuid.uuid4().hex}"
        (tmp_path / "code" / name).mkdir(parents=True)
        (tmp_path / f"code/{name}/__init__.py").touch()
        (tmp_path / f"code/{name}/words.py").write_text("def loud(text):\n    return text and text.upper()\n")
        (tmp_path / f"code/{name}/shouting.py").write_text(_SHOUTING.format(name=name))
        # What is not part of it stays where it is: it would stand in for a library.
        (tmp_path / "code/lance.py").write_text("raise RuntimeError('not a part of the transform')\n")
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "code")])
        transform = importlib.import_module(f"{name}.shouting").shout
        (tmp_path / "rows").mkdir()
        rows = written(tmp_path / "rows", list(engine.run(a_wave(), RowFiles(tmp_path / "rows", transform=transform))))
        assert {row["text"][:4] for row in rows} == {"TEXT"}

    @pytest.mark.parametrize(("named", "transform"), REFUSED)
    def test_a_transform_that_moves_rows_is_refused_by_name(
        self, engine: Engine, tmp_path: Path, named: str, transform: Callable[[Any], Any]
    ) -> None:
        with pytest.raises(UserError, match=f"moves document rows between tasks: [^(]*{named}") as raised:
            engine.run(a_wave(), RowFiles(tmp_path, transform=transform))
        assert raised.value.hint
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("problem", "transform"), RESHAPED)
    def test_a_transform_that_breaks_the_row_contract_is_refused(
        self, engine: Engine, tmp_path: Path, problem: str, transform: Callable[[Any], Any]
    ) -> None:
        with pytest.raises(UserError, match=problem):
            engine.run(a_wave(), RowFiles(tmp_path, transform=transform))
        assert list(tmp_path.iterdir()) == []

    def test_an_error_in_the_users_own_function_comes_back_in_its_words(self, engine: Engine, tmp_path: Path) -> None:
        def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                raise LookupError("no such word")
            yield from ()

        with pytest.raises(Exception, match="LookupError: no such word") as raised:
            engine.run(a_wave(), RowFiles(tmp_path, transform=lambda frame: frame.mapInArrow(broken, frame.schema)))
        assert len(str(raised.value).splitlines()) == 1
