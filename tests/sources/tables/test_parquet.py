"""What footers of Parquet files say without Spark: whether something is later, and whether all is in a window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.domain.refs import GLOBAL, Scope
from instep.domain.rows import RowColumns, Window
from instep.sources.tables.parquet import later, within

START = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = RowColumns(key=("id",), scope="path", watermark="at")
SCOPE = Scope.parse("42/9970")


def micros(minutes: int) -> int:
    return (START + timedelta(minutes=minutes) - EPOCH) // timedelta(microseconds=1)


def footer(folder: Path, groups: Sequence[Sequence[tuple[str | None, int | None]]], **options: Any) -> pq.FileMetaData:
    """Of a file with these row groups, whose rows are paths and minutes."""
    file = folder / "rows.parquet"
    schema = pa.table({"path": ["/"], "at": [START]}).schema
    with pq.ParquetWriter(file, schema, **options) as writer:
        for rows in groups:
            at = [None if minutes is None else START + timedelta(minutes=minutes) for _, minutes in rows]
            writer.write_table(pa.table({"path": [path for path, _ in rows], "at": at}, schema=schema))
    return pq.read_metadata(file)


@pytest.mark.parametrize(
    ("paths", "seen"),
    [
        (["42/9970/"], True),  # every row has exactly the asked scope
        (["42/9970/", "42/9970/"], True),
        (["42/9970/7/"], True),
        (["42/", "42/9970/"], True),
        (["42/9970/", "5/"], True),
        (["42/9969/", "42/9971/"], True),  # what lies between is not known
        (["42/"], False),
        (["42/9969/", "42/9969/9/"], False),
        (["42/99700/"], False),
        (["42/9971/"], False),
    ],
)
def test_a_change_is_seen_in_the_row_groups_that_may_have_the_scope(
    tmp_path: Path, paths: list[str], seen: bool
) -> None:
    found = footer(tmp_path, [[(path, 5) for path in paths], [("7/", 0)]])
    assert later([found], ROWS, SCOPE, micros(4)) is seen
    assert later([found], ROWS, SCOPE, micros(5)) is False
    assert later([found], ROWS, GLOBAL, micros(4)) is True


def test_missing_statistics_are_unknown(tmp_path: Path) -> None:
    without = footer(tmp_path, [[("42/9970/", 5)]], write_statistics=False)
    assert later([without], ROWS, SCOPE, micros(9)) is None
    half = footer(tmp_path, [[("42/9970/", 5)]], write_statistics=["at"])
    assert later([half], ROWS, SCOPE, micros(4)) is True, "any row may be in the scope"
    assert later([half, without], ROWS, SCOPE, micros(9)) is None, "one file that says nothing is enough"
    assert later([without, half], ROWS, SCOPE, micros(4)) is True
    other = RowColumns(key=("id",), scope="path", watermark="changed")
    assert later([half], other, SCOPE, 0) is None
    empty = footer(tmp_path, [])
    assert later([empty], other, SCOPE, 0) is False, "there are no rows"


def test_rows_without_a_watermark_are_never_later(tmp_path: Path) -> None:
    found = footer(tmp_path, [[("42/9970/", None), ("42/9970/", None)]])
    assert later([found], ROWS, SCOPE, -1) is False


def test_parts_of_a_microsecond_are_rounded_up(tmp_path: Path) -> None:
    """So that a change is seen once too often, and never too seldom."""
    file = tmp_path / "nanos.parquet"
    nanos = pa.array([micros(5) * 1000 + 1], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"path": ["42/9970/"], "at": nanos}), file, version="2.6")
    found = pq.read_metadata(file)
    assert later([found], ROWS, SCOPE, micros(5)) is True
    assert later([found], ROWS, SCOPE, micros(5) + 1) is False
    assert not within([found], "at", Window(micros(0), micros(5)))
    assert within([found], "at", Window(micros(0), micros(5) + 1))
    assert not within([found], "at", Window(micros(5), micros(6))), "it may be the floor's own microsecond"


def test_all_rows_are_in_a_window_only_if_that_is_proved(tmp_path: Path) -> None:
    found = footer(tmp_path, [[("1/", 2)], [("1/", 3), ("2/", 4)]])
    assert within([found], "at", Window(micros(1), micros(4)))
    assert not within([found], "at", Window(micros(2), micros(4))), "the floor is not in it"
    assert not within([found], "at", Window(micros(1), micros(3)))
    assert not within([found], "at", Window(None, micros(4)))
    assert not within([found], "path", Window(micros(1), micros(4)))
    null = footer(tmp_path, [[("1/", 2), ("1/", None)]])
    assert not within([null], "at", Window(micros(1), micros(4)))
    without = footer(tmp_path, [[("1/", 2)]], write_statistics=False)
    assert not within([without], "at", Window(micros(1), micros(4)))
