"""Keys of a table are compared with its index: what no watermark tells is found, and repaired by a job."""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.domain.jobs import JobState
from instep.domain.keys import key_of
from instep.domain.rows import GoneRow
from instep.entities.plan_request import Kind
from instep.entities.tables.reconciling import Reconciled, reconcile
from instep.errors import Away, UserError

from .quick import QuickShop, during
from .shop import Row, Shop


@pytest.fixture
def quick(tmp_path: Path) -> QuickShop:
    """It goes by watermarks, as a database does."""
    made = QuickShop(tmp_path / "quick", "type: lance, uri: index")
    made.declare()
    made.fill(people=100, tickets=60)
    return made


def compared(shop: Shop, ref: str) -> Reconciled:
    container = shop.container()
    with closing(container), closing(container.ledger()) as ledger:
        (setup,) = container.table_setups([ref])
        found = shop.quick_setup(setup) if isinstance(shop, QuickShop) else setup
        return reconcile(found, ledger, "")


def gone(shop: Shop, table: str, *keys: int) -> None:
    """Deleted for good, so that no watermark tells."""
    for key in keys:
        del shop.rows[table][(key,)]
    shop.save()


def _is_here(row: Row) -> bool:
    return str(row.values["path"]).startswith("1/2/") and not row.gone


def much_too_late(shop: Shop, table: str, key: int, name: str) -> None:
    shop.put(table, id=key, at=shop.now - timedelta(days=3), name=name)
    shop.save()


# Compared without Spark.


def test_an_index_that_has_what_the_source_has_does_not_differ(quick: QuickShop) -> None:
    quick.run()
    found = compared(quick, "Person")
    assert not found.differs
    assert found.rows == found.keys == len(quick.alive("people"))
    assert not compared(quick, "Like").differs
    assert not compared(quick, "Ticket@1/2").differs


def test_what_is_gone_missing_and_behind_is_told_apart(quick: QuickShop) -> None:
    quick.run("Person")
    gone(quick, "people", 3, 4)
    much_too_late(quick, "people", 901, name="too late")
    quick.put("people", id=8, name="changed just now")
    quick.save()
    found = compared(quick, "Person")
    assert found.counts == {"missing": 1, "gone": 2, "behind": 1, "ahead": 0}
    assert (found.missing, sorted(found.gone), found.behind) == (["901"], ["3", "4"], ["8"])
    assert found.coming == 1
    assert found.wanted == [key_of(8), key_of(901)]
    assert [each.key for each in found.deleted] == [key_of(3), key_of(4)]
    assert quick.run("Person")["Person"].counts.read == 1
    assert compared(quick, "Person").counts == {"missing": 1, "gone": 2, "behind": 0, "ahead": 0}


def test_a_row_that_a_later_file_deletes_is_not_missing(quick: QuickShop) -> None:
    quick.by_files = True
    quick.run("Person")
    folder = quick.root / "people"
    rows = [{"id": 3, "name": "gone", "at": quick.now, "gone": True}]
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(folder / "0.parquet")), folder / "gone.parquet")
    quick.run("Person")
    assert not compared(quick, "Person").differs


@pytest.mark.parametrize("path", ["9/9/", "1/3/"])
def test_a_row_that_a_later_file_moves_away_is_not_missing(quick: QuickShop, path: str) -> None:
    """A repair would put it where it was, or try to each time."""
    quick.by_files = True
    quick.run("Ticket")
    folder = quick.root / "tickets"
    key = next(key for (key,), row in quick.rows["tickets"].items() if _is_here(row))
    rows = [{"id": key, "path": path, "title": "moved", "author": 3, "at": quick.now, "gone": False}]
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(folder / "0.parquet")), folder / "moved.parquet")
    quick.run("Ticket")
    assert not compared(quick, "Ticket@1/2").differs


@pytest.mark.parametrize("many", [False, True])
def test_a_row_of_the_index_that_only_a_later_file_deletes_is_gone(quick: QuickShop, many: bool) -> None:
    """As of an index that was restored from a backup. Either side may have fewer rows: these are in memory."""
    quick.by_files = True
    quick.run("Person")
    shutil.copytree(quick.root / "index", quick.root / "backup")
    folder = quick.root / "people"
    rows = [
        {"id": key, "name": "gone", "at": quick.now, "gone": True} for key in (3, *(range(500, 700) if many else ()))
    ]
    rows.append({"id": 4, "name": "gone", "at": quick.now - timedelta(days=900), "gone": True})
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(folder / "0.parquet")), folder / "gone.parquet")
    quick.run("Person")
    assert not compared(quick, "Person").differs
    shutil.rmtree(quick.root / "index")
    shutil.move(quick.root / "backup", quick.root / "index")
    found = compared(quick, "Person")
    assert (found.counts, found.gone) == ({"missing": 0, "gone": 1, "behind": 0, "ahead": 0}, ["3"])
    assert [each.key for each in found.deleted] == [key_of(3)]


@pytest.mark.parametrize("path", ["9/9/", "1/3/", None])
def test_a_row_of_the_index_that_only_a_later_file_moves_away_is_gone(quick: QuickShop, path: str | None) -> None:
    quick.by_files = True
    quick.run("Ticket")
    shutil.copytree(quick.root / "index", quick.root / "backup")
    folder = quick.root / "tickets"
    key = next(key for (key,), row in quick.rows["tickets"].items() if _is_here(row))
    rows = [{"id": key, "path": path, "title": "moved", "author": 3, "at": quick.now, "gone": False}]
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(folder / "0.parquet")), folder / "moved.parquet")
    quick.run("Ticket")
    shutil.rmtree(quick.root / "index")
    shutil.move(quick.root / "backup", quick.root / "index")
    assert compared(quick, "Ticket@1/2").gone == [str(key)]
    there = compared(quick, "Ticket@1/3")
    assert there.counts == {"missing": int(path == "1/3/"), "gone": 0, "behind": 0, "ahead": 0}


def test_an_old_version_of_a_row_that_had_moved_away_before_it_was_indexed_is_gone(quick: QuickShop) -> None:
    """A refresh reads it from a new file, and no other file says to it that the row has moved."""
    quick.by_files = True
    folder = quick.root / "tickets"
    schema = pq.read_schema(folder / "0.parquet")
    for path, at in (("9/9/", quick.now), ("1/2/", quick.now - timedelta(days=1))):
        rows = [{"id": 900, "path": path, "title": "moved", "author": 3, "at": at, "gone": False}]
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"{at:%d}.parquet")
        quick.run("Ticket")
    assert compared(quick, "Ticket@1/2").gone == ["900"]


def test_a_namespace_is_compared_by_itself(quick: QuickShop) -> None:
    quick.run("Ticket")
    (key,) = next(key for key, row in quick.rows["tickets"].items() if _is_here(row))
    path = quick.rows["tickets"][(key,)].values["path"]
    gone(quick, "tickets", int(key))
    assert compared(quick, "Ticket@1/3").counts["gone"] == 0
    found = compared(quick, "Ticket@1/2")
    assert found.gone == [str(key)]
    (row,) = found.deleted
    assert row == GoneRow(key_of(key), row.version, path)
    assert row.version > 0


def test_rows_whose_watermark_went_back_are_told_and_not_mended(quick: QuickShop) -> None:
    quick.run("Person")
    row = quick.rows["people"][(5,)]
    assert row.at is not None
    quick.rows["people"][(5,)] = row._replace(at=row.at - timedelta(days=1))
    quick.save()
    found = compared(quick, "Person")
    assert (found.ahead, found.differs, found.mendable) == (["5"], True, False)


def test_a_row_that_comes_back_earlier_than_what_was_seen_is_missing(quick: QuickShop) -> None:
    """As of a database that was restored from a backup: the row was never here, was deleted for good, or was marked."""
    quick.run("Person")
    restored = {(key,): quick.rows["people"][(key,)] for key in (3, 4)}
    gone(quick, "people", 3)
    quick.put("people", id=4, gone=True)
    quick.save()
    quick.run("Person")
    assert compared(quick, "Person").counts == {"missing": 0, "gone": 1, "behind": 0, "ahead": 0}
    much_too_late(quick, "people", 901, name="never here")
    quick.rows["people"] |= restored
    quick.save()
    quick.run("Person")
    assert sorted(compared(quick, "Person").missing) == ["4", "901"], "3 is still there"


def test_what_is_not_built_and_what_is_being_built_is_not_compared(quick: QuickShop) -> None:
    with pytest.raises(UserError):
        compared(quick, "Person")
    quick.run("Person")

    def look() -> None:
        with pytest.raises(Away, match="has not ended"):
            compared(quick, "Person")

    quick.put("people", id=1, name="changed")
    quick.save()
    quick.run("Person", around=lambda context: during(context, "slices.complete", look))


# Repaired by Spark.


@pytest.mark.spark
def test_a_repair_deletes_what_is_gone_and_reads_what_is_missing(shop: Shop) -> None:
    shop.run()
    gone(shop, "people", 3, 4)
    # Of files every new one is read whole: here the index has lost something.
    setup = shop.setup("Person")
    served = setup.target.served("Person")
    assert served is not None
    assert shop.run("Person")["Person"].plan.kind is Kind.REFRESH  # The file has changed, and nobody says what is gone.
    assert shop.wrong("Person") != {}
    planned = shop.run("Person", repair=True)["Person"]
    assert planned.state is JobState.COMPLETED
    assert planned.plan.found.why == ["2 gone"]
    assert (planned.counts.read, planned.counts.deleted) == (2, 2)
    assert shop.wrong("Person") == {}
    assert shop.run("Person", repair=True)["Person"].plan.kind is Kind.NOTHING
    # In a namespace, with its edges.
    (key,) = next(key for key, row in shop.rows["tickets"].items() if _is_here(row))
    gone(shop, "tickets", int(key))
    shop.run("Ticket")
    shop.run("Ticket@1/2", repair=True)
    assert shop.wrong("Ticket") == {}


@pytest.mark.spark
def test_a_repair_deletes_what_only_a_later_file_has_deleted_also_where_spark_reads_the_keys(shop: Shop) -> None:
    shop.edit("source: {type: spark, path: people}", "source: {type: spark, path: people, sql: SELECT * FROM source}")
    shop.run("Person")
    shutil.copytree(shop.root / "index", shop.root / "backup")
    rows = [{"id": 3, "name": "gone", "at": shop.now, "gone": True}]
    schema = pq.read_schema(shop.root / "people" / "0.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), shop.root / "people" / "gone.parquet")
    shop.put("people", id=3, gone=True)
    shop.run("Person")
    assert shop.wrong("Person") == {}
    shutil.rmtree(shop.root / "index")
    shutil.move(shop.root / "backup", shop.root / "index")
    assert shop.wrong("Person") != {}
    result = shop.run("Person", repair=True)["Person"]
    assert (result.plan.found.why, result.counts.deleted, shop.wrong("Person")) == (["1 gone"], 1, {})
    assert shop.run("Person", repair=True)["Person"].plan.kind is Kind.NOTHING


@pytest.mark.spark
def test_rows_that_a_repair_deleted_are_there_again_when_the_source_has_them_as_they_were(shop: Shop) -> None:
    """As of a view that leaves rows out for a while: their watermarks are what they were."""
    shop.run()
    (ticket,) = next(key for key, row in shop.rows["tickets"].items() if _is_here(row) and row.values["author"])
    taken = {"people": (3,), "tickets": (ticket,)}
    before = {table: shop.rows[table].pop(key) for table, key in taken.items()}
    shop.save()
    shop.run(repair=True)
    assert shop.wrong() == {}
    for table, key in taken.items():
        shop.rows[table][key] = before[table]
    shop.save()
    shop.run()
    shop.run(repair=True)
    assert shop.wrong() == {}
    assert {each.plan.kind for each in shop.run(repair=True).values()} == {Kind.NOTHING}
    shop.put("people", id=3, name="changed")
    shop.save()
    shop.run()
    assert shop.wrong() == {}


@pytest.mark.spark
def test_rows_that_come_back_earlier_than_they_were_deleted_are_found_and_said_to_be_lacking(shop: Shop) -> None:
    shop.edit(
        "source: {type: spark, path: people}",
        "source: {type: spark, path: people, sql: SELECT DISTINCT * FROM source}",
    )
    shop.run("Person")
    restored = {(key,): shop.rows["people"][(key,)] for key in (3, 4)}
    gone(shop, "people", 3)
    shop.put("people", id=4, gone=True)
    shop.save()
    shop.run("Person")
    shop.run("Person", repair=True)
    shop.rows["people"] |= restored
    much_too_late(shop, "people", 901, name="never here")
    result = shop.run("Person", repair=True)["Person"]
    assert result.plan.found.why == ["3 missing"]
    (note,) = result.notes
    assert note.startswith("warning: 1 row of the source still not in the index, such as 4: deleted here later")
    shop.run("Person", full_refresh=True)
    assert shop.wrong("Person") == {}


@pytest.mark.spark
def test_a_repair_that_deletes_much_is_refused_unless_it_is_allowed(shop: Shop) -> None:
    node = "node: {label: Person"
    shop.edit(f"deleted: gone\n    {node}", f"deleted: gone\n    deletes: {{share: 0.05, floor: 2}}\n    {node}")
    shop.run("Person")
    gone(shop, "people", 1, 2, 3)
    with pytest.raises(UserError, match="a repair would delete 3 of"):
        shop.run("Person", repair=True)
    shop.run("Person", repair=True, allow_deletes=True)
    assert shop.wrong("Person") == {}


@pytest.mark.spark
def test_rows_that_came_too_late_for_a_watermark_are_read_by_a_repair_and_when_it_is_due(shop: Shop) -> None:
    """A query over all rows: its table goes by watermarks."""
    shop.edit(
        "source: {type: spark, path: people}\n    key: id",
        "source: {type: spark, path: people, sql: SELECT DISTINCT * FROM source}\n    reconcile: 1d\n    key: id",
    )
    shop.run("Person")
    much_too_late(shop, "people", 901, name="too late")
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
    result = shop.run("Person", repair=True)["Person"]
    assert (result.plan.found.why, result.counts.read, result.counts.written) == (["1 missing"], 1, 1)
    assert shop.wrong("Person") == {}
    much_too_late(shop, "people", 902, name="too late")
    gone(shop, "people", 5)
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
    shop.clock.sleep(timedelta(days=1).total_seconds())
    result = shop.run("Person")["Person"]
    assert result.plan.found.why == ["reconciled: 1 missing", "reconciled: 1 gone"]
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
