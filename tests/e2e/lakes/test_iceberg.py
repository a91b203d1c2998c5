"""What only Iceberg tables have: columns that become other ones, and no snapshot says so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.sources.tables.iceberg_rows import IcebergRows

from .nodes import IcebergNodes
from .tables import IcebergLake


@pytest.fixture(params=["documents", "nodes"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    made = IcebergLake(tmp_path / "desk")
    if request.param == "nodes":
        made = IcebergNodes(tmp_path / "desk", entity=["node: {label: Ticket, properties: [id, body]}"])
    made.declare()
    made.tickets = {1: "one", 2: "two"}
    made.create(tickets("one", "two"))
    made.run()
    return made


def tickets(*bodies: str, first: int = 1) -> pa.Table:
    """With what they are about in another language, and in a column that nobody reads."""
    ids = pa.array(range(first, first + len(bodies)), pa.int64())
    return pa.table({"id": ids, "body": list(bodies), "other": [f"{each} anders" for each in bodies]})


def swap(lake: IcebergLake) -> None:
    """The column `other` becomes the one that is read: no row is written."""
    for old, new in (("body", "former"), ("other", "body")):
        with lake.table.update_schema() as update:
            update.rename_column(old, new)
    lake.tickets = {number: f"{body} anders" for number, body in lake.tickets.items()}


def why(lake: IcebergLake) -> str:
    found = lake.run().plan.found
    return " ".join([*found.why, *found.warnings])


def test_a_column_that_takes_the_name_of_another_is_read_though_no_row_was_written(lake: IcebergLake) -> None:
    swap(lake)
    assert "columns of it are other ones than before" in why(lake)
    assert lake.wrong() == ""
    assert lake.run().plan.kind is Kind.NOTHING


def test_a_column_that_takes_the_name_of_another_is_read_of_all_rows_when_some_are_written(lake: IcebergLake) -> None:
    swap(lake)
    lake.table.append(tickets("three", first=3).rename_columns(["id", "former", "body"]))
    lake.tickets |= {3: "three anders"}
    assert "columns of it are other ones than before" in why(lake)
    assert lake.wrong() == ""
    assert lake.run().plan.kind is Kind.NOTHING


def test_rows_are_followed_again_after_a_column_was_replaced(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(lake)
    lake.run()
    for number in (3, 4):
        lake.table.append(tickets("more", first=number).rename_columns(["id", "former", "body"]))
        lake.tickets |= {number: "more anders"}
        lake.run()
        assert lake.wrong() == ""
    lake.delete(1)

    def refuse(*_: object) -> None:
        raise AssertionError("all rows were read")

    monkeypatch.setattr(IcebergRows, "listed", refuse)
    lake.run(allow_deletes=True)
    assert lake.wrong() == ""


def test_a_column_that_is_dropped_is_named_and_nothing_of_its_values_stays(lake: IcebergLake) -> None:
    with lake.table.update_schema() as update:
        update.delete_column("body")
    with pytest.raises(UserError, match="body"):
        lake.run()
    with lake.table.update_schema() as update:
        update.add_column("body", StringType())
    lake.run(allow_deletes=True, allow_empty=True)
    assert {text for _, text in lake._stored()} <= {None}


def test_a_column_that_is_added_is_no_change(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IcebergRows, "portion", lambda *_: pytest.fail("all rows were read"))
    monkeypatch.setattr(IcebergRows, "listed", lambda *_: pytest.fail("all rows were read"))
    with lake.table.update_schema() as update:
        update.add_column("more", StringType())
    assert lake.run().plan.kind is Kind.NOTHING
