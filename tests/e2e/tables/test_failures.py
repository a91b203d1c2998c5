"""Rows that cannot be written, tables that are empty, keys that are none, and rebuilds that would lose too much."""

from __future__ import annotations

import uuid
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from instep.answers.why import why
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.entities.plan_request import Kind
from instep.errors import Missing
from tests.servers.postgres import running_postgres

from .quick import QuickShop, during
from .shop import Row


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill(people=40, tickets=60)
    return made


def failures(shop: QuickShop, ref: str) -> dict[str, str]:
    with closing(shop.container().ledger()) as ledger:
        return {each.document_id: each.reason for each in ledger.failures.newest(PartitionRef.parse(ref))}


def null_key(shop: QuickShop, number: int = -1) -> None:
    """A row without a key, in the table of people."""
    shop.rows["people"][("null", number)] = Row({"id": None, "name": f"keyless {number}"}, shop.now, False)


def duplicate(shop: QuickShop, table: str, key: int, number: int, title: str) -> None:
    row = shop.rows[table][(key,)]
    name = "title" if table == "tickets" else "name"
    shop.rows[table][("again", key, number)] = Row({**row.values, name: title}, shop.now, False)


def without(shop: QuickShop, *keys: object) -> None:
    """Take back rows that are no rows of the truth."""
    for key in [each for each in shop.rows["people"] if each[0] in keys]:
        del shop.rows["people"][key]


def test_a_row_without_a_key_is_a_failure_and_the_others_are_there(shop: QuickShop) -> None:
    null_key(shop)
    shop.save()
    result = shop.run("Person")["Person"]
    assert (result.counts.failed, result.counts.written) == (1, 39)
    assert result.counts.balanced
    assert len(failures(shop, "Person@global")) == 1
    assert "null" in next(iter(failures(shop, "Person@global").values()))
    for named in ("null", "Person(null)"):
        assert "it failed (row): " in why_not(shop, named)
    assert "no run has seen it" in why_not(shop, "4711")
    without(shop, "null")
    assert shop.wrong("Person") == {}


def why_not(shop: QuickShop, key: str) -> str:
    container = shop.container()
    with closing(container.ledger()) as ledger, pytest.raises(Missing) as raised:
        why(container.setups(["Person"]), ledger, "Person", key, explain=True)
    return str(raised.value)


def test_failures_that_are_retried_leave_the_list(shop: QuickShop) -> None:
    null_key(shop)
    shop.save()
    shop.run("Person")
    assert failures(shop, "Person@global")
    without(shop, "null")
    shop.save()
    result = shop.run("Person", retry_failures=True)["Person"]
    assert result.plan.kind is Kind.REBUILD
    assert failures(shop, "Person@global") == {}
    assert shop.wrong("Person") == {}


def test_if_every_row_fails_the_served_index_stays(shop: QuickShop) -> None:
    shop.run("Person")
    kept = shop.rows["people"]
    shop.rows["people"] = {}
    for number in range(20):
        null_key(shop, number)
    shop.save()
    result = shop.run("Person", full_refresh=True)["Person"]
    assert result.state is JobState.FAILED
    shop.rows["people"] = kept
    assert shop.wrong("Person") == {}
    shop.save()
    assert shop.run("Person")["Person"].state is JobState.COMPLETED
    assert shop.wrong("Person") == {}


def test_a_first_build_of_an_empty_table_is_complete_and_empty(shop: QuickShop) -> None:
    for table in shop.rows.values():
        table.clear()
    shop.save()
    results = shop.run()
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    assert shop.wrong() == {}
    shop.put("people", id=1, name="first")
    shop.put("tickets", id=1, path="1/2/1/", title="first", author=1)
    shop.save()
    shop.run()
    assert shop.wrong() == {}


@pytest.mark.parametrize("name", ["Person", "Ticket@1/2"])
def test_a_rebuild_that_finds_nothing_is_refused(shop: QuickShop, name: str) -> None:
    shop.run()
    table = "people" if name == "Person" else "tickets"
    kept = dict(shop.rows[table])
    shop.rows[table].clear()
    shop.save()
    result = shop.run(name, full_refresh=True)[name]
    assert result.state is JobState.FAILED
    shop.rows[table] = kept
    assert shop.wrong() == {}


@pytest.mark.parametrize("name", ["Person", "Ticket@1/2"])
def test_keys_that_are_not_the_rows_own_are_refused_with_a_hint(shop: QuickShop, name: str) -> None:
    table = "people" if name == "Person" else "tickets"
    for number in range(12):
        duplicate(shop, table, 2 + 2 * (number % 3), number, f"another {number}")
    shop.save()
    result = shop.run(name)[name]
    assert result.state is JobState.FAILED
    assert any("`key`" in note for note in result.notes), result.notes


@pytest.mark.parametrize(("name", "table"), [("Person", "people"), ("Ticket@1/2", "tickets")])
def test_a_rebuild_without_many_of_its_rows_has_to_be_allowed(shop: QuickShop, name: str, table: str) -> None:
    shop.edit("key: id\n    watermark: at", "key: id\n    deletes: {share: 0.2, floor: 5}\n    watermark: at")
    shop.edit("scope: path", "deletes: {share: 0.2, floor: 5}\n    scope: path")
    shop.run()
    kept = dict(shop.rows[table])
    for key in list(kept)[:30]:
        del shop.rows[table][key]
    shop.save()
    result = shop.run(name, full_refresh=True)[name]
    after = shop.rows[table]
    shop.rows[table] = kept
    assert result.state is JobState.FAILED
    assert any("--allow-deletes" in note for note in result.notes), result.notes
    assert shop.wrong() == {}
    shop.rows[table] = after
    result = shop.run(name, full_refresh=True, allow_deletes=True)[name]
    assert result.state is JobState.COMPLETED
    if name == "Person":
        assert shop.wrong(name) == {}


def test_a_namespace_keeps_its_rows_on_the_way_into_another_index(shop: QuickShop) -> None:
    shop.edit("scope: path", "deletes: {share: 0.2, floor: 5}\n    scope: path")
    shop.run("Ticket")
    served = shop.stored("Ticket")
    for key in list(shop.rows["tickets"])[:30]:
        del shop.rows["tickets"][key]
    shop.save()
    shop.edit("label: Ticket, properties: [id, title]", "label: Ticket, properties: [id, title, author]")
    results = shop.run("Ticket")
    assert {each.state for each in results.values()} == {JobState.FAILED}
    assert all("--allow-deletes" in note for each in results.values() for note in each.notes)
    assert shop.stored("Ticket") == served
    results = shop.run("Ticket", allow_deletes=True)
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    assert len(shop.stored("Ticket")) < len(served) - 20


def test_a_few_rows_of_one_key_are_no_reason_to_refuse_a_first_build_in_place(shop: QuickShop) -> None:
    duplicate(shop, "tickets", 2, 0, "another")
    shop.save()
    assert shop.run("Ticket@1/2")["Ticket@1/2"].state is JobState.COMPLETED
    assert shop.run("Ticket@1/2", full_refresh=True)["Ticket@1/2"].state is JobState.COMPLETED


def test_rows_that_the_target_cannot_hold_are_failures_and_their_neighbours_are_there(tmp_path: Path) -> None:
    """PostgreSQL has no U+0000 in text, and no long keys."""
    server = running_postgres()
    database = f"shop_{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {database}")
    shop = QuickShop(tmp_path / "shop", f"type: postgres, uri: '{server.url(database)}'")
    shop.declare()
    shop.edit("key: id\n    watermark", "key: name\n    watermark")
    shop.fill(people=12, tickets=12)
    shop.put("people", id=100, name="a\0b")
    shop.put("people", id=101, name="".join(map(chr, range(0x100, 0x2000))))
    shop.save()
    result = shop.run("Person")["Person"]
    assert (result.state, result.counts.failed, result.counts.written) == (JobState.COMPLETED_WITH_ERRORS, 2, 11)
    found = failures(shop, "Person@global")
    assert sorted(found.values()) == [
        "column 'name' has a key of more than 2500 bytes, which the target cannot hold",
        "column 'name' has text with the character U+0000, which the target cannot hold",
    ]
    assert all(len(each) <= 80 for each in found)
    left = [shop.rows["people"].pop((number,)) for number in (100, 101)]
    assert shop.wrong("Person") == {}
    for number, row in enumerate(left, start=100):
        shop.put("people", **{**row.values, "name": f"mended {number}"})
    shop.save()
    assert shop.run("Person", retry_failures=True)["Person"].state is JobState.COMPLETED
    assert shop.wrong("Person") == {}
    assert failures(shop, "Person@global") == {}


def test_values_that_do_not_fit_are_failures_and_their_neighbours_are_there(shop: QuickShop) -> None:
    """The table is widened when the run has seen what it looks like, and has not read it yet."""
    shop.types["people"]["id"] = pa.int32()
    shop.types["tickets"] |= {"author": pa.int32(), "price": pa.decimal128(5, 2)}
    shop.edit("properties: [id, title]", "properties: [id, title, price]")
    for number in range(60):
        shop.put("tickets", id=number, price=Decimal(number))
    shop.save()
    shop.types["tickets"] |= {"author": pa.int64(), "price": pa.decimal128(20, 6)}
    shop.put("tickets", id=2, author=2**40)
    shop.put("tickets", id=4, price=Decimal("1.005"))
    shop.put("tickets", id=6, price=Decimal(10**9))

    result = shop.run("Ticket@1/2", around=lambda context: during(context, "jobs.start", shop.save))["Ticket@1/2"]
    assert (result.state, result.counts.failed) == (JobState.COMPLETED_WITH_ERRORS, 3)
    assert result.counts.balanced
    reasons = failures(shop, "Ticket@1/2")
    assert {key: reason.partition(":")[0] for key, reason in reasons.items()} == {
        "2": "column 'author' is not of the type int32",
        "4": "column 'price' is not of the type decimal(5,2)",
        "6": "column 'price' is not of the type decimal(5,2)",
    }
    mine = {row["id"]: row["price"] for row in shop.alive("tickets") if row["path"].startswith("1/2/")}
    there = {row["id"]: row["price"] for row in shop.stored("Ticket")}
    assert there == {key: price for key, price in mine.items() if key not in (2, 4, 6)}

    shop.put("tickets", id=8, title="changed")
    shop.save()
    assert shop.run("Ticket@1/2")["Ticket@1/2"].plan.kind is Kind.REBUILD
    assert failures(shop, "Ticket@1/2") == {}
    assert shop.run("Ticket@1/3")["Ticket@1/3"].state is JobState.COMPLETED
    assert {row["id"]: row["price"] for row in shop.stored("Ticket") if row["path"].startswith("1/2/")} == mine
    assert shop.wrong("Ticket").keys() == {"Ticket/"}  # the price is a property here
