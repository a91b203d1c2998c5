"""Tables and declarations that change: what differs is said, all of it is built anew, and readers see either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.domain.jobs import JobState
from instep.service.question import Kind

from .quick import QuickShop

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


def test_a_kind_of_edge_that_is_declared_or_not_any_more_comes_with_a_rebuild(shop: QuickShop) -> None:
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


def test_a_column_that_comes_or_goes_is_said_and_built(shop: QuickShop) -> None:
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


def test_what_is_not_served_any_more_is_dropped_when_no_reader_can_hold_it(
    shop: QuickShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("Ticket")
    old = served(shop)
    assert old is not None
    shop.edit("properties: [id, title]", "properties: [id, title, author]")
    shop.run("Ticket")
    target = shop.setup("Ticket").target
    assert target.exists(old)  # readers may have it open
    monkeypatch.setattr("instep.service.promotion.SWEEP_SECONDS", 0.0)
    shop.run("Ticket@1/2", full_refresh=True)
    assert not target.exists(old)
    assert shop.wrong("Ticket").keys() == {"Ticket/"}  # the author is a property now
