"""Tables and declarations that change: what differs is said, all of it is rebuilt, and readers see either."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.events import WantCreated
from instep.domain.jobs import JobState
from instep.domain.wants import WantState
from instep.entities.plan_request import Kind
from tests.doubles.clock import VirtualClock

from .quick import Crash, Fault, QuickShop, slice_by_slice

#: Every column of the source is a property.
PLAIN = ("node: {label: Ticket, properties: [id, title]}", "node: {label: Ticket}")


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill(people=20, tickets=60)
    return made


def served(shop: QuickShop, name: str = "Ticket") -> str | None:
    setup = shop.setup(name)
    return setup.target.served(setup.alias)


def tickets(shop: QuickShop, *columns: str) -> dict[int, Any]:
    return {row["id"]: tuple(row.get(each) for each in columns) for row in shop.stored("Ticket")}


def test_a_property_that_is_declared_comes_with_a_rebuild(shop: QuickShop) -> None:
    shop.run()
    before = served(shop)
    shop.edit("properties: [id, title]", "properties: [id, title, author]")
    results = shop.run("Ticket")
    assert {each.plan.kind for each in results.values()} == {Kind.REBUILD}
    assert all("graph changed" in each.plan.found.why for each in results.values())
    assert served(shop) != before
    assert tickets(shop, "author") == {row["id"]: (row["author"],) for row in shop.alive("tickets")}


def test_adding_or_removing_a_kind_of_edge_needs_a_rebuild(shop: QuickShop) -> None:
    shop.run()
    edge = "\n      - {kind: OPENED,"
    shop.edit(
        edge, f"\n      - {{kind: MADE, from: {{label: Person, columns: [author]}}, to: {{label: Ticket}}}}{edge}"
    )
    shop.run("Ticket")
    assert shop.stored("Ticket", "MADE") == shop.stored("Ticket", "OPENED") != []
    assert shop.wrong("Ticket") == {}
    shop.edit("{kind: MADE, from: {label: Person, columns: [author]}, to: {label: Ticket}}\n      - ", "")
    assert {each.plan.kind for each in shop.run("Ticket").values()} == {Kind.REBUILD}
    assert shop.wrong("Ticket") == {}


def test_another_key_is_another_index(shop: QuickShop) -> None:
    shop.run("Person")
    shop.edit(
        "key: id\n    watermark: at\n    deleted: gone\n    node: {label: Person",
        "key: name\n    watermark: at\n    deleted: gone\n    node: {label: Person",
    )
    result = shop.run("Person")["Person"]
    assert result.plan.kind is Kind.REBUILD
    assert "key changed" in result.plan.found.why
    assert shop.wrong("Person") == {}


def test_an_index_is_served_when_all_namespaces_are_in_it(shop: QuickShop) -> None:
    shop.run()
    old, rows = served(shop), tickets(shop, "title")
    shop.edit("properties: [id, title]", "properties: [id, title, author]")
    shop.put("tickets", id=2, title="changed")
    shop.save()
    shop.run("Ticket@1/2")
    assert served(shop) == old
    assert tickets(shop, "title") == rows
    shop.run("Ticket@1/3")
    assert served(shop) != old
    assert tickets(shop, "title") == {row["id"]: (row["title"],) for row in shop.alive("tickets")}


def test_a_namespace_in_which_nothing_changed_follows_the_others_to_another_index(shop: QuickShop) -> None:
    """Else what changes in the others would not be served until something changes there."""
    shop.edit(*PLAIN)
    old = shop.rows["tickets"][(3,)]
    shop.rows["tickets"][(3,)] = old._replace(at=shop.now - timedelta(hours=1))  # Nobody looks there again.
    shop.save()
    shop.run()
    shop.put("tickets", id=2, title="changed", extra="new")  # a column that was not there, in one namespace
    row = shop.rows["tickets"][(3,)]
    shop.rows["tickets"][(3,)] = row._replace(values={**row.values, "extra": "not said to have changed"})
    shop.save()
    first = shop.run("Ticket")
    assert {name: each.plan.kind for name, each in first.items()} == {
        "Ticket@1/2": Kind.REBUILD,
        "Ticket@1/3": Kind.NOTHING,
    }
    second = shop.run("Ticket")
    assert {name: each.plan.kind for name, each in second.items()} == {
        "Ticket@1/2": Kind.NOTHING,
        "Ticket@1/3": Kind.REBUILD,
    }
    assert tickets(shop, "title", "extra") == {
        row["id"]: (row["title"], row.get("extra")) for row in shop.alive("tickets")
    }


def test_a_column_that_comes_or_goes_is_reported_and_built(shop: QuickShop) -> None:
    shop.edit(*PLAIN)
    shop.run()
    for number in range(60):
        shop.put("tickets", id=number, extra=f"more {number}")
    shop.save()
    results = shop.run("Ticket")
    assert {each.plan.kind for each in results.values()} == {Kind.REBUILD}
    assert all(any("'extra'" in why for why in each.plan.found.why) for each in results.values())
    assert tickets(shop, "extra") == {row["id"]: (row["extra"],) for row in shop.alive("tickets")}
    for key, row in shop.rows["tickets"].items():
        values = {name: value for name, value in row.values.items() if name != "extra"}
        shop.rows["tickets"][key] = row._replace(values=values, at=shop.now)
    shop.save()
    assert {each.plan.kind for each in shop.run("Ticket").values()} == {Kind.REBUILD}
    assert all("extra" not in row for row in shop.stored("Ticket"))
    assert {each.state for each in shop.run("Ticket", full_refresh=True).values()} == {JobState.COMPLETED}


def test_a_replaced_index_is_dropped_when_no_reader_can_hold_it(
    shop: QuickShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("Ticket")
    old = served(shop)
    assert old is not None
    shop.edit("properties: [id, title]", "properties: [id, title, author]")
    shop.run("Ticket")
    target = shop.setup("Ticket").target
    assert target.exists(old)  # readers may have it open
    monkeypatch.setattr("instep.jobs.finish.SWEEP_SECONDS", 0.0)
    shop.run("Ticket@1/2", full_refresh=True)
    assert not target.exists(old)
    assert shop.wrong("Ticket").keys() == {"Ticket/"}  # the author is a property now


def test_a_column_that_is_widened_is_reported_and_built(shop: QuickShop) -> None:
    """So is the edge that leads by it."""
    shop.edit("properties: [id, title]", "properties: [id, title, author]")
    shop.types["tickets"]["author"] = shop.types["people"]["id"] = pa.int32()
    shop.save()
    shop.run()
    shop.types["tickets"]["author"] = pa.int64()
    shop.put("tickets", id=2, author=2**40)
    shop.save()
    results = shop.run("Ticket")
    assert results["Ticket@1/2"].plan.kind is Kind.REBUILD
    assert "own table: column 'author' was int32 and is int64" in results["Ticket@1/2"].plan.found.why
    results = shop.run("Ticket")  # the other namespace follows
    assert tickets(shop, "author") == {row["id"]: (row["author"],) for row in shop.alive("tickets")}
    assert shop.wrong("Ticket").keys() == {"Ticket/"}  # the author is a property here


def test_a_column_that_is_renamed_is_missed_until_the_declaration_follows(shop: QuickShop) -> None:
    shop.run()
    before = tickets(shop, "title")
    for key, row in shop.rows["tickets"].items():
        values = {"headline" if name == "title" else name: value for name, value in row.values.items()}
        shop.rows["tickets"][key] = row._replace(values=values, at=shop.now)
    shop.types["tickets"]["headline"] = shop.types["tickets"].pop("title")
    shop.save()
    results = shop.run("Ticket")
    assert results
    assert all("no column 'title'" in str(each.problem) for each in results.values())
    assert tickets(shop, "title") == before
    shop.edit("properties: [id, title]", "properties: {id: id, title: headline}")
    assert {each.plan.kind for each in shop.run("Ticket").values()} == {Kind.REBUILD}
    assert tickets(shop, "title") == before


def test_a_build_begun_before_the_table_changed_starts_again(shop: QuickShop) -> None:
    """A run that was interrupted would go on with an index that does not fit any more."""
    shop.edit(*PLAIN)
    shop.types["tickets"]["author"] = shop.types["people"]["id"] = pa.int32()
    shop.save()
    fault = Fault(2, counts=lambda made: made == "slices.claim")
    with pytest.raises(Crash):
        shop.run("Ticket@1/2", setups=fault.target, around=lambda context: slice_by_slice(fault.context(context)))
    shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)
    shop.types["tickets"]["author"] = pa.int64()
    for number in range(60):
        shop.put("tickets", id=number, author=2**40 + number, extra=f"more {number}")
    shop.save()
    results = shop.run("Ticket")
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    assert tickets(shop, "author", "extra") == {
        row["id"]: (row["author"], row["extra"]) for row in shop.alive("tickets")
    }
    assert {each.plan.kind for each in shop.run("Ticket").values()} == {Kind.NOTHING}


@pytest.mark.parametrize("watermark", [True, False])
def test_a_worker_that_has_been_there_for_long_sees_that_a_table_has_changed(shop: QuickShop, watermark: bool) -> None:
    """It gets another column; or, without a watermark, other files."""
    shop.edit("node: {label: Person, properties: [id, name]}", "node: {label: Person}")
    if not watermark:
        shop.edit("key: id\n    watermark: at\n    deleted: gone\n    node", "key: id\n    deleted: gone\n    node")
    shop.run("Person")

    def changed() -> None:
        for number in range(20):
            shop.put("people", id=number, extra=f"more {number}", gone=False)
        shop.save()
        with closing(shop.container().ledger()) as ledger:
            ledger.events.append([WantCreated(want="fresh", refs=("Person@global",), as_of=shop.clock.now())])

    shop.work("Person", then=changed)
    assert {row["id"]: row.get("extra") for row in shop.stored("Person")} == {n: f"more {n}" for n in range(20)}
    with closing(shop.container().ledger()) as ledger:
        want = ledger.wants.get("fresh")
    assert want is not None
    assert want.state is WantState.SUCCESSFUL
