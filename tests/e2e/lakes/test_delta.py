"""What only Delta tables have: a change feed that may be off, compaction, column mapping, a past that is restored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.sources.tables.delta_rows import DeltaRows
from tests.sources.tables.sessions import session

from .nodes import DeltaNodes
from .tables import DeltaLake, rows

FED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path / "desk")


def said(lake: DeltaLake) -> str:
    found = lake.run().plan.found
    return " ".join([*found.why, *found.warnings])


def test_without_a_change_feed_the_files_of_commits_are_compared(lake: DeltaLake) -> None:
    lake.properties = {}
    lake.fill(20)
    assert "ALTER TABLE … SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')" in said(lake)
    lake.change(t3="Another text.", t40="A new one.")
    lake.delete(7)
    plan = lake.run().plan.found
    assert (plan.counts["new"], plan.counts["changed"], plan.counts["deleted"]) == (1, 1, 1)
    assert lake.wrong() == ""

    lake.change(t4="Another text.")
    lake.table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert "all rows were compared: its versions 3 to 5 are not there" in said(lake)
    assert lake.wrong() == ""
    assert lake.run().plan.kind is Kind.NOTHING


def test_nodes_are_followed_without_a_feed_and_in_partitions(tmp_path: Path) -> None:
    lake = DeltaNodes(tmp_path / "desk", properties={})
    lake.declare()
    lake.tickets = {number: f"Ticket {number}" for number in range(20)}
    write_deltalake(lake.path, rows(lake.tickets, day="Monday"), partition_by=["day"])
    lake.run()
    changed = {3: "Another text.", 40: "A new one."}
    lake.merge(rows(changed, day="Tuesday"))
    lake.tickets |= changed
    lake.delete(7)
    found = lake.run()
    assert (found.counts.read, found.counts.written, found.counts.deleted, lake.wrong()) == (3, 2, 1, "")
    assert "ALTER TABLE … SET TBLPROPERTIES" in " ".join(found.plan.found.warnings)
    assert lake.run(full_refresh=True).counts.written == 20
    assert lake.wrong() == ""


def forget_partitions(lake: DeltaLake) -> None:
    """What the last commit took away comes without the values of its partition, as writers may leave it."""
    file = Path(lake.path) / "_delta_log" / f"{lake.version:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    removed = [each["remove"] for each in actions if "remove" in each]
    assert removed
    for each in removed:
        each["extendedFileMetadata"] = False
        for name in ("partitionValues", "size"):
            each.pop(name, None)
    file.write_text("".join(json.dumps(each) + "\n" for each in actions))


def test_files_that_go_without_saying_of_which_partition_take_their_rows_along(tmp_path: Path) -> None:
    """Their namespace is the partition."""
    lake = DeltaNodes(tmp_path / "desk", properties={}, entity=["scope: path"])
    lake.declare()
    text = (lake.root / "instep.yaml").read_text()
    (lake.root / "instep.yaml").write_text(f"{text}namespaces: ['1/', '2/']\n")
    lake.tickets = {number: f"Ticket {number}" for number in range(10)}
    paths = pa.array([f"{1 + number % 2}/" for number in lake.tickets])
    write_deltalake(lake.path, rows(lake.tickets).append_column("path", paths), partition_by=["path"])
    lake.app().run()
    assert lake.wrong() == ""

    lake.delete(3, 4)
    forget_partitions(lake)
    found = lake.app().run()
    assert lake.wrong() == ""
    (why,) = {said for each in found for said in each.plan.found.why if "all rows" in said}
    assert "its version 1 has a file without saying of which partition" in why

    lake.delete(5)
    assert sum(each.counts.read for each in lake.app().run()) == 1, "the next one is followed again"
    assert lake.wrong() == ""


def test_documents_whose_key_has_the_partition_go_with_files_that_do_not_name_it(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path / "desk", document="key: [day, id], text: body", properties={})
    lake.declare()
    both = [rows({1: "a", 2: "b"}, day=day) for day in ("Monday", "Tuesday")]
    write_deltalake(lake.path, pa.concat_tables(both), partition_by=["day"])
    lake.run()
    lake.table.delete("id = 1 AND day = 'Monday'")
    forget_partitions(lake)
    assert "all rows were compared: " in said(lake)
    assert {uri.removeprefix("table://Ticket/") for uri, _ in lake._stored()} == {"Monday/2", "Tuesday/1", "Tuesday/2"}


def test_a_feed_that_is_switched_on_later_is_followed(lake: DeltaLake) -> None:
    lake.properties = {}
    lake.fill(20)
    lake.run()
    lake.change(t3="Before the feed.")
    lake.table.alter.set_table_properties(FED)
    lake.change(t4="With the feed.")
    assert "SET TBLPROPERTIES" not in said(lake)
    assert lake.wrong() == ""


def test_compaction_reads_no_row(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.fill(20)
    for number in (30, 31):
        lake.append(rows({number: "One more."}))
        lake.tickets[number] = "One more."
    lake.run()
    before = lake.version
    assert lake.table.optimize.compact()["numFilesRemoved"] == 3
    assert lake.table.optimize.z_order(["id"])["numFilesRemoved"] == 1
    found = lake.run()
    assert f"its table went from version {before} to {lake.version}" in found.plan.found.why
    assert (found.counts.read, found.plan.found.slices, lake.checkpoint()) == (0, [], lake.version)
    assert lake.wrong() == ""


def test_a_past_that_is_restored_is_followed(lake: DeltaLake) -> None:
    lake.fill(20)
    then = dict(lake.tickets)
    lake.change(t3="Another text.", t40="A new one.")
    lake.delete(7)
    lake.run()
    lake.table.restore(0)
    lake.tickets = then
    assert "went from version 2 to 3" in said(lake)
    assert lake.wrong() == ""


def test_a_row_whose_key_changes_is_another_document(lake: DeltaLake) -> None:
    lake.fill(20)
    lake.run()
    lake.table.update(updates={"id": "id + 100"}, predicate="id < 3")
    lake.tickets = {each + 100 if each < 3 else each: text for each, text in lake.tickets.items()}
    counts = lake.run().plan.found.counts
    assert (counts["new"], counts["changed"], counts["deleted"]) == (3, 0, 3)
    assert lake.wrong() == ""


def test_with_column_mapping_all_rows_are_compared(lake: DeltaLake) -> None:
    lake.properties = {**FED, "delta.columnMapping.mode": "name"}
    lake.fill(20)
    lake.run()
    write_deltalake(lake.path, rows({30: "One more."}), mode="append")
    lake.tickets[30] = "One more."
    assert "all rows were compared: its versions 1 to 1 are not there: Column mapping is not supported" in said(lake)
    assert lake.wrong() == ""


def test_another_table_at_the_same_place_is_compared_as_a_whole(lake: DeltaLake) -> None:
    lake.fill(20)
    lake.run()
    shutil.rmtree(lake.path)
    lake.tickets[3] = "Another text."
    lake.create(rows(lake.tickets))
    assert "all rows were compared: it is another table" in said(lake)
    assert lake.wrong() == ""


@pytest.mark.parametrize("kind", [DeltaLake, DeltaNodes])
@pytest.mark.parametrize("commits", [1, 2], ids=["as far as it was read", "further"])
def test_a_table_that_is_restored_from_a_copy_and_written_on_is_compared_as_a_whole(
    tmp_path: Path, kind: type[DeltaLake], commits: int
) -> None:
    """Its versions have the numbers of others, which were read."""
    lake = kind(tmp_path / "desk")
    lake.fill(20)
    lake.run()
    shutil.copytree(lake.path, tmp_path / "copy")
    before = dict(lake.tickets)
    lake.change(t1="Lost with the folder.")
    lake.run()
    shutil.rmtree(lake.path)
    (tmp_path / "copy").rename(lake.path)
    lake.tickets = before
    for number in range(commits):
        lake.change(**{f"t{number + 2}": "Written since."})
    assert "its version 1 is another one than the one that was read" in said(lake)
    assert lake.wrong() == ""
    assert lake.run().plan.kind is Kind.NOTHING
    lake.change(t5="Followed again.")
    assert lake.run().counts.read == 1
    assert lake.wrong() == ""


def test_a_column_that_is_dropped_is_named(lake: DeltaLake) -> None:
    lake.fill(20)
    lake.run()
    write_deltalake(lake.path, rows(lake.tickets).drop_columns(["body"]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(UserError, match="there is no column 'body'"):
        lake.run()


@pytest.mark.parametrize("empty", [False, True])
def test_a_path_without_a_table_is_said(lake: DeltaLake, empty: bool) -> None:
    lake.declare()
    if empty:
        Path(lake.path).mkdir()
    with pytest.raises(UserError, match="there is no Delta table") as error:
        lake.run()
    assert "_delta_log" in str(error.value)


def test_no_secret_stands_in_an_error(lake: DeltaLake) -> None:
    secrets = {"aws_secret_access_key": "sesame-open", "aws_access_key_id": "ali-baba", "aws_region": "here"}
    declared = {**secrets, "aws_endpoint": "https://user:sesame-open@127.0.0.1:1", "timeout": "1s"}
    table = DeltaRows("s3://bucket/tickets", declared)
    with pytest.raises(UserError, match="it cannot be read: ") as error:
        table.version()
    assert not [each for each in (*secrets.values(), "user") if len(each) > 4 and each in str(error.value)]
    assert "sesame" not in repr(table)


@pytest.mark.spark
@pytest.mark.proof
def test_tasks_of_spark_read_the_table_themselves(lake: DeltaLake) -> None:
    lake.spark, lake.declared = session(), "depends_on: []"
    lake.fill(30)
    (lake.root / "instep.yaml").write_text((lake.root / "instep.yaml").read_text() + "\nengine: spark\n")
    lake.run()
    assert lake.wrong() == ""
    lake.change(t3="Another text.", t40="A new one.")
    lake.delete(7)
    lake.run()
    assert lake.wrong() == ""
