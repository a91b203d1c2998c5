"""Rows as documents, listed and read without Spark: the same from Parquet and from ClickHouse."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.domain.document_columns import DeclaredColumn, DocumentColumn, DocumentColumnType, Origin
from instep.domain.keys import Key
from instep.domain.manifest import SourceDocument
from instep.domain.rows import DocumentColumns, row_uri
from instep.errors import Transient, UserError
from instep.sources.document_source import Content, Row, TooLarge, Unreadable, Vanished
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.clickhouse_rows import ClickHouseRows
from instep.sources.tables.parquet_rows import ParquetRows
from instep.sources.tables.predicates import MAX_KEYS
from instep.sources.tables.row_documents import RowDocuments, RowTable
from instep.sources.tables.spark_rows import SparkRows
from instep.sources.tables.spark_tables import SparkTable
from tests.sources.rights import without_rights
from tests.sources.tables.clickhouse_tables import ask, made
from tests.sources.tables.sessions import session

BIG = 1_000_000
NOON = datetime(2026, 1, 2, 12, 0, 0, 1, UTC)
COLUMNS = DocumentColumns(("id",), "body", "subject", "at", "gone")

Make: TypeAlias = Callable[[pa.Table], RowTable]


@pytest.fixture(params=["parquet", "clickhouse"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def in_parquet(rows: pa.Table) -> RowTable:
        (tmp_path / "rows").mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / "rows" / "all.parquet", row_group_size=100)
        return ParquetRows((str(tmp_path / "rows"),))

    def in_clickhouse(rows: pa.Table) -> RowTable:
        (tmp_path / "chdb").mkdir(exist_ok=True)
        return ClickHouseRows(made(str(tmp_path / "chdb"), rows, table="rows"))

    return in_parquet if request.param == "parquet" else in_clickhouse


def documents(table: RowTable, columns: DocumentColumns = COLUMNS) -> RowDocuments:
    # Nothing here asks Spark for anything.
    return RowDocuments("Ticket", columns, table, frames=ClickHouseTable("nowhere", "none"))


def tickets(*rows: tuple[Any, ...]) -> pa.Table:
    names = ("id", "body", "subject", "at", "gone")
    kinds = [pa.int64(), pa.string(), pa.string(), pa.timestamp("us", "UTC"), pa.bool_()]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.table({name: pa.array(each, kind) for name, each, kind in zip(names, columns, kinds, strict=True)})


def read(source: RowDocuments, wanted: Sequence[SourceDocument], *, max_bytes: int = BIG) -> list[Any]:
    return list(source.contents(wanted, max_bytes=max_bytes))


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    pq.write_table(tickets((1, "text", "", NOON, False)), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"no Parquet at all")
    with pytest.raises(UserError, match="cannot be read as Parquet") as raised:
        documents(ParquetRows((str(tmp_path),))).list()
    assert raised.value.where == str(tmp_path / "b.parquet")


def test_rows_are_listed_with_their_versions_and_read_in_the_order_asked_for(make: Make) -> None:
    source = documents(
        make(
            tickets(
                (1, "one", "first", NOON, False),
                (-2, "zwei, ü", None, None, None),
                (3, None, "", NOON, False),
                (4, "gone", "gone", NOON, True),
            )
        )
    )
    listed = list(source.list().documents)
    micros = str(int((NOON - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)))
    assert [(each.uri, each.version, each.locator) for each in listed] == [
        ("table://Ticket/-2", hashlib.sha256("\0zwei, ü".encode()).hexdigest(), ""),
        ("table://Ticket/1", micros, ""),
        ("table://Ticket/3", micros, ""),
    ]
    gone = SourceDocument("table://Ticket/4", 0, "")
    never = SourceDocument("table://Ticket/no%20number", 0, "")
    found = read(source, [gone, *reversed(listed), never])
    assert list(map(type, found)) == [Vanished, Content, Content, Content, Vanished]
    assert found[1:4] == [
        Content(b"", 0, micros, "", text=True),
        Content(b"one", 3, micros, "first", text=True),
        Content("zwei, ü".encode(), 8, listed[0].version, "", text=True),
    ]
    large = read(source, listed, max_bytes=5)[0]
    assert isinstance(large, TooLarge)
    assert large.size == 8


def test_a_column_without_a_value_has_no_type_as_pandas_writes_it(tmp_path: Path) -> None:
    nothing = pa.nulls(1)
    for file, title in (("a", nothing), ("b", pa.array(["titled"]))):
        rows = {"id": pa.array([file]), "body": pa.array(["text"]), "subject": title, "at": nothing, "gone": nothing}
        pq.write_table(pa.table(rows), tmp_path / f"{file}.parquet")
    source = documents(ParquetRows((str(tmp_path),)))
    listed = list(source.list().documents)
    assert [each.uri for each in listed] == ["table://Ticket/a", "table://Ticket/b"]
    assert [(each.data, each.title) for each in read(source, listed)] == [(b"text", ""), (b"text", "titled")]


def test_of_a_row_whose_version_is_null_the_content_tells(make: Make) -> None:
    rows = [(1, "one", "first", NOON, False), (2, "zwei", None, None, None), (3, None, None, None, None)]
    source = documents(make(tickets(*rows)))
    listed = list(source.list().documents)
    hashes = [hashlib.sha256(each).hexdigest() for each in (b"\0zwei", b"\0")]
    assert [each.version for each in listed[1:]] == hashes
    assert [each.version for each in read(source, listed)] == [each.version for each in listed]
    for changed in ((2, "two", None, None, None), (2, "zwei", "titled", None, None)):
        again = documents(make(tickets(rows[0], changed, rows[2]))).list().documents
        assert [at for at in range(3) if again[at].version != listed[at].version] == [1]


@pytest.mark.spark
def test_spark_lists_the_same_documents_as_without_it(tmp_path: Path) -> None:
    """Rows without a version too."""
    (tmp_path / "rows").mkdir()
    rows = tickets((1, "one", "first", NOON, False), (2, "zwei, ü", None, None, None), (3, None, "", None, None))
    pq.write_table(rows, tmp_path / "rows" / "0.parquet")
    path = (str(tmp_path / "rows"),)
    here = documents(ParquetRows(path))
    table = SparkTable("parquet", path, sql="SELECT * FROM source")
    spark = RowDocuments("Ticket", COLUMNS, SparkRows(table, session), frames=table)
    listed = [(each.uri, each.version) for each in spark.list().documents]
    assert listed == [(each.uri, each.version) for each in here.list().documents]
    assert all(version for _, version in listed)


def test_without_a_version_the_content_is_one(make: Make) -> None:
    source = documents(
        make(tickets((1, "one", "first", NOON, False), (2, None, None, NOON, False))),
        DocumentColumns(("id",), "body", "subject"),
    )
    listed = list(source.list().documents)
    hashes = [hashlib.sha256(each).hexdigest() for each in (b"first\0one", b"\0")]
    assert listed == [
        SourceDocument("table://Ticket/1", 3, hashes[0]),
        SourceDocument("table://Ticket/2", 0, hashes[1]),
    ]
    assert [(each.version, each.hash) for each in read(source, listed)] == [(each, each) for each in hashes]
    untitled = documents(source.table, DocumentColumns(("id",), "body"))
    assert [each.version for each in untitled.list().documents] == [
        hashlib.sha256(each).hexdigest() for each in (b"one", b"")
    ]
    assert [each.title for each in read(untitled, untitled.list().documents)] == [None, None]


TYPED = (
    DeclaredColumn(DocumentColumn("big", DocumentColumnType.INT), Origin.SOURCE, "n"),
    DeclaredColumn(DocumentColumn("labels", DocumentColumnType.STRINGS), Origin.SOURCE, "tags", lenient=True),
)


def labelled(make: Make, numbers: list[int | None], tags: list[Any]) -> tuple[RowDocuments, list[Any], list[Row]]:
    """A source without a column for versions, its listing, and the rows that are read."""
    columns = {"id": pa.array([1, 2, 3]), "body": pa.array(["one", "two", "three"]), "n": pa.array(numbers, pa.int64())}
    table = make(pa.table({**columns, "tags": pa.array(tags)}))
    source = documents(table, DocumentColumns(("id",), "body", columns=TYPED))
    listed = list(source.list().documents)
    found = read(source, listed)
    assert [each.version for each in found] == [each.version for each in listed]
    rows = [each.fields for each in found]
    assert all(isinstance(each, Row) for each in rows)
    return source, listed, cast("list[Row]", rows)


def test_declared_columns_are_in_the_row_and_in_its_version(make: Make) -> None:
    _, before, rows = labelled(make, [7, None, -1], ['["a", "b"]', None, '["c"]'])
    values = [(row.rows["big"][row.at].as_py(), row.rows["labels"][row.at].as_py()) for row in rows]
    assert values == [(7, ["a", "b"]), (None, None), (-1, ["c"])]
    assert [row.wrong for row in rows] == ["", "", ""]
    plain = [hashlib.sha256(each).hexdigest() for each in (b"one", b"two", b"three")]
    assert [each.version == version for each, version in zip(before, plain, strict=True)] == [False, True, False]


def test_a_column_that_changes_is_another_version_of_its_row(tmp_path: Path) -> None:
    def in_parquet(rows: pa.Table) -> RowTable:
        pq.write_table(rows, tmp_path / "all.parquet")
        return ParquetRows((str(tmp_path),))

    _, before, _ = labelled(in_parquet, [7, 8, 9], [["a"], ["b"], ["c"]])
    _, after, _ = labelled(in_parquet, [7, 88, 9], [["a"], ["b"], ["c", "d"]])
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, False]


def test_rows_that_share_a_key_or_have_none_are_one_document_that_gives_the_reason(make: Make) -> None:
    row = ("text", "title", NOON, False)
    source = documents(make(tickets((1, *row), (2, *row), (2, *row), (None, *row), (None, *row))))
    listed = list(source.list().documents)
    flaws = {each.uri: each.locator for each in listed}
    assert flaws == {
        "table://Ticket/(null)": "2 rows have a null in the key (id)",
        "table://Ticket/1": "",
        "table://Ticket/2": "2 rows have this key (id)",
    }
    assert all(each.version == each.locator for each in listed if each.locator)
    answers = [str(each) for each in read(source, listed) if isinstance(each, Unreadable)]
    assert answers == [each for each in flaws.values() if each]
    # Of rows that were one when they were listed.
    (answer,) = read(source, [SourceDocument("table://Ticket/2", 4, "1")])
    assert str(answer) == "2 rows have this key (id)"


def test_keys_of_every_type_are_named_alike_and_found_again(make: Make) -> None:
    keys: dict[str, tuple[pa.DataType, list[Any]]] = {
        "text": (pa.string(), ["a/b c", "plain", "é", "", "(null)"]),
        "day": (pa.date32(), [date(2026, 1, each) for each in range(1, 6)]),
        "at": (pa.timestamp("us", "UTC"), [NOON + timedelta(microseconds=each) for each in range(5)]),
        "amount": (pa.decimal128(12, 3), [Decimal(each) for each in ("1.5", "0", "-0.001", "100", "7.25")]),
        "flag": (pa.bool_(), [True, False, True, False, True]),
        "small": (pa.int32(), [1, 2, 3, 4, 5]),
    }
    rows = pa.table({name: pa.array(values, kind) for name, (kind, values) in keys.items()})
    columns = DocumentColumns(tuple(keys), "text", version="small")
    source = documents(make(rows), columns)
    listed = list(source.list().documents)
    expected = [row_uri("Ticket", each) for each in zip(*(values for _, values in keys.values()), strict=True)]
    assert [each.uri for each in listed] == sorted(expected)
    assert all(isinstance(each, Content) for each in read(source, listed))


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")])
def test_moments_without_a_zone_are_keys_in_utc(tmp_path: Path, kind: pa.DataType) -> None:
    """As pandas writes them. Their statistics have no zone either."""
    moments = [NOON.replace(tzinfo=None, microsecond=0) + timedelta(hours=each) for each in range(6)]
    table = pa.table({"id": pa.array(moments, kind), "body": [str(each) for each in range(6)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    source = documents(ParquetRows((str(tmp_path),)), DocumentColumns(("id",), "body"))
    listed = [*source.list().documents]
    assert listed[0].uri == "table://Ticket/2026-01-02T12:00:00.000000Z"
    assert [each.data for each in read(source, listed[1:5])] == [b"1", b"2", b"3", b"4"]


def test_few_rows_and_many_are_found(make: Make) -> None:
    many = MAX_KEYS + 500
    source = documents(make(tickets(*((each, f"text {each}", None, NOON, False) for each in range(many)))))
    listed = list(source.list().documents)
    assert len(listed) == many
    for wanted in ([listed[7], listed[3]], listed):
        found = read(source, wanted)
        assert [each.data.decode().split()[1] for each in found] == [each.uri.rpartition("/")[2] for each in wanted]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (DocumentColumns(("id",), "bdy"), "there is no column 'bdy'"),
        (DocumentColumns(("id",), "at"), "'at' is timestamp, and has to be text"),
        (DocumentColumns(("id",), "body", deleted="subject"), "'subject' is string, and has to be a flag"),
    ],
)
def test_columns_of_a_wrong_type_are_refused(make: Make, columns: DocumentColumns, says: str) -> None:
    source = documents(make(tickets((1, "one", "first", NOON, False))), columns)
    with pytest.raises(UserError, match=says):
        source.list()


NUMBER = DeclaredColumn(DocumentColumn("size", DocumentColumnType.INT), Origin.SOURCE, "subject")


@pytest.mark.parametrize("version", [None, "at"])
def test_a_declared_type_that_a_column_cannot_have_is_told_with_the_place_of_the_table(
    make: Make, version: str | None
) -> None:
    """Before rows are read, with a column for versions too: then none of the declared ones is listed."""
    table = make(tickets((1, "one", "first", NOON, False)))
    with pytest.raises(UserError, match="column size is declared as int, and holds string") as told:
        list(documents(table, DocumentColumns(("id",), "body", version=version, columns=(NUMBER,))).list().documents)
    assert told.value.where == table.text


def test_spark_knows_declared_types_before_any_row_is_read(tmp_path: Path) -> None:
    """With a column for versions too: then none of the declared ones is listed."""
    moment = DeclaredColumn(DocumentColumn("at", DocumentColumnType.TIMESTAMP), Origin.SOURCE, "at")
    pq.write_table(tickets((1, "one", "first", NOON, False)), tmp_path / "0.parquet")
    path = (str(tmp_path),)
    rows = SparkRows(SparkTable("parquet", path, sql="SELECT * FROM source"), session)
    columns = DocumentColumns(("id",), "body", version="at", columns=(moment, NUMBER))
    with pytest.raises(UserError, match="column size is declared as int, and holds string") as told:
        rows.frame(columns)
    assert told.value.where == rows.text
    rows.frame(replace(columns, columns=(moment,)))


def test_an_empty_table_has_no_documents(make: Make) -> None:
    assert list(documents(make(tickets())).list().documents) == []


def test_row_groups_without_a_wanted_key_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tickets(*((each, "x" * 100, None, NOON, False) for each in range(1_000)))
    pq.write_table(rows, tmp_path / "all.parquet", row_group_size=100)
    read_groups: list[tuple[int, tuple[str, ...]]] = []
    original = pq.ParquetFile.iter_batches

    def watched(self: Any, rows: int, *, row_groups: list[int], columns: list[str]) -> Any:
        read_groups.extend((group, tuple(columns)) for group in row_groups)
        return original(self, rows, row_groups=row_groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    source = documents(ParquetRows((str(tmp_path / "all.parquet"),)))
    found = read(source, [SourceDocument(f"table://Ticket/{each}", 1, "1") for each in (205, 890)])
    assert [each.data for each in found] == [b"x" * 100] * 2
    assert {group for group, _ in read_groups} == {2, 8}


def test_files_may_lack_a_column_and_have_wider_numbers(tmp_path: Path) -> None:
    """As files of an older version of the table do."""
    pq.write_table(tickets((1, "one", "first", NOON, False)), tmp_path / "new.parquet")
    old = pa.table({"id": pa.array([2], pa.int16()), "body": pa.array(["two"]).dictionary_encode()})
    pq.write_table(old, tmp_path / "old.parquet")
    source = documents(ParquetRows((str(tmp_path),)))
    listed = list(source.list().documents)
    assert [(each.data, each.title) for each in read(source, listed)] == [(b"one", "first"), (b"two", "")]


def test_a_file_that_another_takes_the_place_of_is_looked_at_again(tmp_path: Path) -> None:
    file = tmp_path / "all.parquet"
    pq.write_table(tickets(*((each, None, None, NOON, False) for each in range(20))), file, row_group_size=10)
    table = ParquetRows((str(file),))
    listing = table.listed(COLUMNS)
    assert next(listing).num_rows == 10
    (footer,) = (pq.read_metadata(file).serialized_size,)
    content = file.read_bytes()
    file.write_bytes(b"\0" * (len(content) - footer - 8) + content[-footer - 8 :])
    with pytest.raises(Transient, match="changed while it was read"):
        list(listing)
    with pytest.raises(UserError, match="cannot be read"):
        list(table.listed(COLUMNS))


def test_text_that_is_no_text_comes_as_bytes(tmp_path: Path) -> None:
    ask(
        str(tmp_path),
        "CREATE TABLE default.t (id UUID, body String, at DateTime('Europe/Berlin')) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO default.t VALUES ('61F0C404-5CB3-11E7-907B-A6006AD3DBA0', unhex('ff00'), 0)",
    )
    source = documents(
        ClickHouseRows(ClickHouseTable(str(tmp_path), "t")), DocumentColumns(("id",), "body", version="at")
    )
    (listed,) = source.list().documents
    assert listed == SourceDocument("table://Ticket/61f0c404-5cb3-11e7-907b-a6006ad3dba0", 2, "0")
    (found,) = read(source, [listed])
    assert found.data == b"\xff\x00"


def test_a_folder_that_cannot_be_listed_is_no_smaller_table(tmp_path: Path) -> None:
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        pq.write_table(tickets((ord(part), part, "", NOON, False)), tmp_path / part / "all.parquet")
    source = documents(ParquetRows((str(tmp_path),)))
    assert len(source.list().documents) == 2
    (tmp_path / "b").chmod(0)
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(0o755)
    try:
        with without_rights(), pytest.raises(UserError, match=f"{tmp_path}/b cannot be listed: permission denied"):
            source.list()
    finally:
        (tmp_path / "b").chmod(0o755)
    assert len(source.list().documents) == 2


def test_a_file_in_place_of_another_with_its_size_and_times_is_read_by_its_own_footer(tmp_path: Path) -> None:
    """As `cp -p` and `rsync -t` put it there. The footer says in which of its parts a key may be."""
    file, columns = tmp_path / "all.parquet", DocumentColumns(("id",), "body")
    table = ParquetRows((str(tmp_path),))

    def found(*ids: int) -> tuple[int, int]:
        pq.write_table(pa.table({"id": list(ids), "body": ["text"] * len(ids)}), file, compression="none")
        os.utime(file, (1, 1))
        read = table.rows(columns, [Key((each,)) for each in ids])
        return sum(each.num_rows for each in table.listed(columns)), sum(each.num_rows for each in read)

    assert found(1, 2, 3) == (3, 3)
    size = file.stat().st_size
    assert found(4, 5, 6) == (3, 3)
    assert file.stat().st_size == size
