"""Files of tables that are read one by one: which are new, and what is read of them."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

from instep.domain.refs import Scope
from instep.domain.rows import EVERYTHING, RowColumns, Selection
from instep.domain.seen import Late, Seen
from instep.domain.table_files import Files, TableFile
from instep.sources.tables.row_wise import is_deterministic, is_row_wise
from instep.sources.tables.spark_tables import SparkTable
from tests.contracts.table_source import ids
from tests.contracts.table_source_rows import ROWS, a_row, table_of
from tests.sources.tables.sessions import session

PLAIN = RowColumns(("id",), watermark="at")


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def put(file: Path, *numbers: int, **values: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of([a_row(each, **values) for each in numbers]), file)


def known(source: SparkTable) -> Files:
    files = source.files()
    assert files is not None
    return Files.of(files)


def test_a_file_is_known_by_its_name_its_size_and_its_version() -> None:
    one = TableFile("a", 1, "x")
    others = [TableFile("b", 1, "x"), TableFile("a", 2, "x"), TableFile("a", 1, "y")]
    files = Files.of([one])
    assert files.new([one, *others]) == others
    assert Files.decode(files.encode()) == files
    assert len(Files.of(TableFile(str(number), 1, "") for number in range(1_000)).encode()) == 8_000


@pytest.mark.parametrize(
    "seen",
    [
        Seen(),
        Seen(files=Files()),
        Seen(files=Files.of([TableFile("a", 1, "")])),
        Seen(-5, 7, 3, "x 12345678901234567890", frozenset({1, -(2**62), 2**64 - 1})),
    ],
)
def test_what_was_seen_is_stored(seen: Seen) -> None:
    late = Late(3, ("1", "ü,2"), exact=False, at=5)
    assert Seen.decode(seen.encode()) == seen
    assert Seen.decode(seen.encode(), Late.of(json.loads(json.dumps(late.as_dict())))).late == late


def test_new_and_changed_files_are_changes_whatever_their_rows_say(tmp_path: Path) -> None:
    put(tmp_path / "t" / "0.parquet", 900)
    source = SparkTable("parquet", (str(tmp_path / "t"),))
    before = known(source)
    assert not source.changed(no_spark, ROWS, Scope(""), 0, known=before)
    put(tmp_path / "t" / "1.parquet", 1, path="42/9970/", updated=None)
    assert source.changed(no_spark, ROWS, Scope(""), 0, known=before)
    assert source.changed(no_spark, ROWS, Scope("42/"), 0, known=before)
    assert not source.changed(no_spark, ROWS, Scope("7/"), 0, known=before)
    assert source.changed(no_spark, ROWS, Scope("7/"), 0, (Scope("43/"),), known=before)
    assert not source.changed(no_spark, ROWS, Scope("7/"), 0, (Scope("42/"),), known=before)
    after = known(source)
    put(tmp_path / "t" / "0.parquet", 900, 901)
    assert source.changed(no_spark, ROWS, Scope(""), 0, known=after)
    assert source.newer(no_spark, ROWS, Selection(window=EVERYTHING, known=after)) == 2
    assert source.histogram(no_spark, ROWS, Selection(window=EVERYTHING, known=after), ("id",), bins=9).rows == 2


@pytest.mark.parametrize(
    ("source", "alone"),
    [
        ({}, True),
        ({"format": "csv"}, True),
        ({"sql": "SELECT CAST(id AS BIGINT) AS id, * EXCEPT (id) FROM source WHERE id > 0"}, True),
        ({"sql": "SELECT id, max(updated) AS updated FROM source GROUP BY id"}, False),
        ({"options": {"pathGlobFilter": "*.parquet"}}, False),
        ({"format": "delta"}, False),
        ({"table": "a.b.c", "path": ()}, False),
    ],
)
def test_files_are_read_alone_where_no_row_needs_another(tmp_path: Path, source: dict[str, Any], alone: bool) -> None:
    put(tmp_path / "t" / "day=1" / "0.parquet", 1)
    made = SparkTable(**{"format": "parquet", "path": (str(tmp_path / "t"),), **source})
    assert (made.files() is not None) == alone


def test_folders_that_spark_would_leave_out_are_not_listed_for_it(tmp_path: Path) -> None:
    put(tmp_path / "t" / "deep" / "0.parquet", 1)
    assert SparkTable("parquet", (str(tmp_path / "t"),)).files() is None
    deep = SparkTable("parquet", (str(tmp_path / "t"),), options={"recursiveFileLookup": "true"}).files()
    assert deep is not None
    assert len(deep) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(id) AS id FROM source",
        "SELECT DISTINCT id FROM source",
        "SELECT id FROM source LIMIT 5",
        "SELECT a.id FROM source a JOIN source b ON a.id = b.id",
        "SELECT id, row_number() OVER (ORDER BY at) AS n FROM source",
        "SELECT id FROM source WHERE id IN (SELECT id FROM source)",
        "SELECT id FROM source UNION ALL SELECT id FROM source",
        "SELECT bit_and(id) AS id FROM source",
        "SELECT id FROM other",
        "no sql",
    ],
)
def test_a_query_that_needs_more_than_one_row_is_none_for_single_files(sql: str) -> None:
    assert not is_row_wise(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, current_date() AS today FROM source",
        "SELECT id, now() AS at FROM source",
        "SELECT id FROM source WHERE at > localtimestamp() - INTERVAL 3 DAYS",
        "SELECT id, rand() AS r FROM source",
        "SELECT id, uuid() AS u FROM source",
        "SELECT id, score(body) AS s FROM source",
        "SELECT id, randstr(5) AS r FROM source",
        "SELECT id, uniform(1, 9) AS r FROM source",
        "SELECT id, session_user() AS u FROM source",
        "SELECT id FROM source WHERE at > DATE 'today'",
        "SELECT id FROM source WHERE at > ' Yesterday UTC'",
        "SELECT id, TIMESTAMP'now+01:00' AS at FROM source",
        "SELECT id, localtime AS at FROM source",
        "SELECT id, ${name} AS n FROM source",
        "SELECT id, :name AS n FROM source",
        "SELECT max(id) AS id FROM source",
    ],
)
def test_a_query_that_may_give_other_rows_tomorrow_is_not_deterministic(sql: str) -> None:
    assert not is_deterministic(sql)
    assert SparkTable("json", (".",), sql=sql).files_digest() is None


def test_a_query_of_values_alone_is_deterministic() -> None:
    assert is_deterministic("SELECT id, upper(name) AS name, to_timestamp(at) AS at FROM source WHERE size > 3")
    assert is_deterministic("SELECT id, coalesce(name, 'nowhere') AS name, unix_timestamp(at) AS at FROM source")


@pytest.mark.parametrize(
    ("kind", "option"), [("avro", "avroSchemaUrl"), ("xml", "rowValidationXSDPath"), ("json", "ignoreCorruptFiles")]
)
def test_files_have_no_state_where_not_they_alone_decide_which_rows_there_are(
    tmp_path: Path, kind: str, option: str
) -> None:
    (tmp_path / "0").write_text("{}")
    assert SparkTable(kind, (str(tmp_path),), options={option: "a"}).files_digest() is None
    assert SparkTable(kind, (str(tmp_path),), options={"mode": "FAILFAST"}).files_digest() is not None


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_no_state_of_files_comes_back(tmp_path: Path, kind: str) -> None:
    """A copy that keeps size and times (`cp -p`) is another state, and so are other options."""
    file = tmp_path / "one"
    file.write_bytes(b"abc")
    table = SparkTable(kind, (str(tmp_path),))
    first = table.files_digest()
    assert first == table.files_digest()
    times = file.stat()
    file.write_bytes(b"xyz")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = table.files_digest()
    file.write_bytes(b"abc")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    states = [
        first,
        second,
        table.files_digest(),
        SparkTable(kind, (str(tmp_path),), options={"a": "b"}).files_digest(),
    ]
    assert None not in states
    assert len(set(states)) == 4


def test_a_folder_that_was_put_in_place_of_another_for_some_time_leaves_another_state(tmp_path: Path) -> None:
    """Its rows may have been read in that time."""
    one, other, place = (tmp_path / each for each in ("one", "other", "place"))
    for each in (one, other):
        (each / "t" / "day=1").mkdir(parents=True)
        (each / "t" / "day=1" / "0.json").write_text("{}")
    place.symlink_to(one)
    table = SparkTable("json", (str(place / "t"),))

    def swap_link() -> None:
        for each in (other, one):
            place.unlink()
            place.symlink_to(each)

    def swap(folder: str) -> None:
        (one / folder).rename(tmp_path / "away")
        (other / folder).rename(one / folder)
        time.sleep(0.05)
        (one / folder).rename(other / folder)
        (tmp_path / "away").rename(one / folder)

    states = [table.files_digest()]
    for change in (swap_link, lambda: swap("t"), lambda: swap("t/day=1")):
        assert table.files_digest() == states[-1]
        time.sleep(0.05)
        change()
        states.append(table.files_digest())
    assert None not in states
    assert len(set(states)) == 4


def test_files_that_were_written_in_one_moment_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link leads from one release to the next, which came in the same archive."""
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "0.json").write_text("{}")
    (tmp_path / "current").symlink_to("one")
    monkeypatch.setattr("instep.sources.local_files.version", lambda _: "the same")
    table = SparkTable("json", (str(tmp_path / "current"),))
    first = table.files_digest()
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("two")
    assert first != table.files_digest()


def test_files_of_a_store_that_tells_no_more_than_times_have_no_state(tmp_path: Path) -> None:
    """Times can be set back: then the content has changed, and nothing says so."""
    fs = fsspec.filesystem("memory")
    fs.pipe("/untold/0.json", b"{}")
    assert SparkTable("json", ("memory:///untold",)).files_digest() is None
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("t/0.json", "{}")
    assert SparkTable("json", (f"zip://t::file://{tmp_path}/a.zip",)).files_digest() is not None


def test_files_that_cannot_be_listed_here_have_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that Spark can: it has an access of its own, such as to a store."""
    (tmp_path / "0.json").write_text("{}")

    def refused(fs: object, root: str, problem: Callable[[str, str], None]) -> list[Any]:
        problem(root, "permission denied")
        return []

    monkeypatch.setattr("instep.sources.tables.folders.files_below", refused)
    assert SparkTable("json", (str(tmp_path),)).files_digest() is None


@pytest.mark.spark
def test_only_new_files_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    put(folder / "0.parquet", 1, 2)
    source = SparkTable("parquet", (str(folder),))
    before = known(source)
    put(folder / "1.parquet", 3, updated=None)
    (folder / "0.parquet").rename(folder / "2.parquet")  # Another name is another file.
    put(folder / "3.parquet", 5, gone=True)
    wanted = [Selection(window=EVERYTHING, known=each) for each in (before, known(source), Files())]
    assert [sorted(each) for each in ids(source, session, wanted)] == [[1, 2, 3, 5], [], [1, 2, 3, 5]]


@pytest.mark.spark
def test_new_files_in_folders_of_values_keep_the_columns_of_all(tmp_path: Path) -> None:
    """Of the new one alone, `part` would be a number."""
    folder = tmp_path / "t"
    put(folder / "part=a" / "0.parquet", 1)
    source = SparkTable("parquet", (str(folder),))
    before = known(source)
    put(folder / "part=7" / "0.parquet", 2)
    found = source.frame(session, RowColumns(("id",)), Selection(window=EVERYTHING, known=before)).toArrow()
    assert found.select(["id", "part"]).to_pylist() == [{"id": 2, "part": "7"}]


@pytest.mark.spark
def test_new_text_files_have_the_columns_of_all(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "0.json").write_text('{"id": 1, "name": "a", "rare": true}\n')
    source = SparkTable("json", (str(folder),), sql="SELECT *, CAST(NULL AS TIMESTAMP) AS at FROM source")
    before = known(source)
    (folder / "1.json").write_text('{"id": 2, "name": 5}\n')
    found = source.frame(session, PLAIN, Selection(window=EVERYTHING, known=before)).toArrow()
    assert found.to_pylist() == [{"id": 2, "name": "5", "rare": None, "at": None}]


@pytest.mark.spark
def test_all_files_are_read_where_a_name_would_be_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    put(folder / "0.parquet", 1)
    source = SparkTable("parquet", (str(folder),))
    before = known(source)
    put(folder / "{a,b}.parquet", 2)
    (found,) = ids(source, session, [Selection(window=EVERYTHING, known=before)])
    assert sorted(found) == [1, 2]


@pytest.mark.spark
def test_a_url_is_read_file_by_file(tmp_path: Path) -> None:
    put(tmp_path / "t" / "0.parquet", 1)
    source = SparkTable("parquet", (f"file://{tmp_path}/t",))
    before = known(source)
    put(tmp_path / "t" / "1.parquet", 2)
    assert list(ids(source, session, [Selection(window=EVERYTHING, known=before)])) == [[2]]
