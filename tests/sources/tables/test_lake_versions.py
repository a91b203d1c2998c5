"""Versions of Delta and Iceberg tables that Spark has written: what no library without it writes, and may be met."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from instep.domain.rows import DocumentColumns
from instep.domain.table_versions import Between, Unfollowable
from instep.sources.document_source import Content, Listing
from instep.sources.tables.delta_rows import DeltaRows
from instep.sources.tables.iceberg_rows import IcebergRows
from instep.sources.tables.row_documents import LakeTable, RowDocuments
from tests.servers.lakes import lake_session, running_lakes

#: They take a Spark of their own.
pytestmark = [pytest.mark.spark, pytest.mark.proof]

COLUMNS = DocumentColumns(("id",), "body")


def documents(lake: LakeTable) -> RowDocuments:
    return RowDocuments("Ticket", COLUMNS, lake, None)


def texts(source: RowDocuments, found: Listing) -> dict[int, str]:
    """The texts of listed documents, by their ids."""
    read = source.contents(found.documents, max_bytes=1_000)
    pairs = zip(found.documents, read, strict=True)
    return {_id(each.uri): content.data.decode() for each, content in pairs if isinstance(content, Content)}


def _id(uri: str) -> int:
    return int(uri.rpartition("/")[2])


def changes(source: RowDocuments, since: int) -> tuple[dict[int, str], set[int]]:
    lake = source.lake
    assert lake is not None
    found = source.changed(lake, Between(since, lake.version().number)).listing
    return texts(source, found), set(map(_id, found.deleted))


def sql(statement: str) -> None:
    lake_session().sql(statement).collect()


def delta(folder: Path, **properties: str) -> tuple[str, RowDocuments]:
    """A table of ten rows in one file."""
    path = str(folder / "table")
    named = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    sql(f"CREATE TABLE delta.`{path}` (id BIGINT, body STRING) USING delta TBLPROPERTIES ({named})")
    sql(f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ id, concat('Ticket ', id) FROM range(10)")
    return f"delta.`{path}`", documents(DeltaRows(path))


@pytest.mark.parametrize("fed", ["true", "false"])
def test_rows_that_deletion_vectors_take_away_are_not_guessed_at(tmp_path: Path, fed: str) -> None:
    table, source = delta(tmp_path, enableDeletionVectors="true", enableChangeDataFeed=fed)
    sql(f"INSERT INTO {table} VALUES (20, 'New')")
    assert changes(source, 1) == ({20: "New"}, set())
    sql(f"DELETE FROM {table} WHERE id = 3")
    with pytest.raises(Unfollowable, match="its version 3 takes rows away by deletion vectors"):
        changes(source, 1)
    assert set(texts(source, source.list())) == {*range(10), 20} - {3}
    sql(f"OPTIMIZE {table}")
    assert changes(source, 3) == ({}, set())


def test_a_file_with_deleted_rows_that_goes_away_deletes_no_row_that_came_back(tmp_path: Path) -> None:
    table, source = delta(tmp_path, enableDeletionVectors="true", enableChangeDataFeed="true")
    sql(f"DELETE FROM {table} WHERE id = 3")
    sql(f"INSERT INTO {table} VALUES (3, 'Back')")
    sql(f"DELETE FROM {table} WHERE body LIKE 'Ticket%'")
    with pytest.raises(Unfollowable, match="its version 4 takes rows away by deletion vectors"):
        changes(source, 3)
    assert texts(source, source.list()) == {3: "Back"}


def test_columns_that_were_renamed_are_not_followed(tmp_path: Path) -> None:
    table, source = delta(tmp_path, enableChangeDataFeed="true", **{"columnMapping.mode": "name"})
    sql(f"ALTER TABLE {table} RENAME COLUMN body TO words")
    sql(f"ALTER TABLE {table} ADD COLUMN body STRING")
    sql(f"UPDATE {table} SET body = words")
    with pytest.raises(Unfollowable, match="Column mapping is not supported"):
        changes(source, 1)
    assert texts(source, source.list()) == {number: f"Ticket {number}" for number in range(10)}


@pytest.fixture
def iceberg(tmp_path: Path) -> Callable[[str], RowDocuments]:
    """The table of that name in Spark's catalog, as it is now."""
    options = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("default", **options)
    catalog.create_namespace("tests")

    def registered(name: str) -> RowDocuments:
        metadata = running_lakes().folder / "tables" / "tests" / name / "metadata"
        newest = max(metadata.glob("v*.metadata.json"), key=lambda each: int(each.name[1:].partition(".")[0]))
        if catalog.table_exists(f"tests.{name}"):
            catalog.drop_table(f"tests.{name}")
        catalog.register_table(f"tests.{name}", f"file://{newest}")
        return documents(IcebergRows(f"tests.{name}", options))

    return registered


@pytest.mark.parametrize("version", [2, 3])
def test_rows_deleted_beside_their_files_and_rewritten_ones_are_followed(
    iceberg: Callable[[str], Any], version: int
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    merge = ", ".join(f"'write.{each}.mode' = 'merge-on-read'" for each in ("delete", "update", "merge"))
    sql(
        f"CREATE TABLE ice.tests.{name} (id BIGINT, body STRING) USING iceberg "
        f"TBLPROPERTIES ('format-version' = '{version}', {merge})"
    )
    sql(f"INSERT INTO ice.tests.{name} SELECT /*+ COALESCE(1) */ id, concat('Ticket ', id) FROM range(10)")
    source = iceberg(name)
    first = source.lake.version().number
    sql(f"DELETE FROM ice.tests.{name} WHERE id = 3")
    sql(f"UPDATE ice.tests.{name} SET body = 'Other' WHERE id = 4")
    source = iceberg(name)
    assert any(task.delete_files for task in source.table._opened().scan().plan_files())
    found, gone = changes(source, first)
    whole = {number: f"Ticket {number}" for number in range(10) if number != 3} | {4: "Other"}
    assert (found, gone) == (whole, {3})  # All of the file from which rows are deleted.
    assert texts(source, source.list()) == whole
    second = source.lake.version().number
    sql(f"DELETE FROM ice.tests.{name} WHERE id = 5")
    source = iceberg(name)
    third = source.lake.version().number
    assert changes(source, second)[1] == {5}

    sql(f"CALL ice.system.rewrite_data_files(table => 'tests.{name}', options => map('rewrite-all', 'true'))")
    source = iceberg(name)
    found, gone = changes(source, third)
    del whole[5]
    assert (found, gone) == (whole, set())
