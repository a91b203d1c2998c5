"""Tables that are made from others: a namespace waits for its own namespace of these, and for what is global."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from instep.domain.instances import Instance
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.entities.plan_request import Kind

from .quick import QuickShop

#: Of each ticket one, in the same namespace.
NOTE = """
  Note:
    source: {type: spark, path: tickets}
    key: id
    scope: path
    watermark: at
    deleted: gone
    depends_on: [Ticket]
"""


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.edit("slices: 3", "depends_on: [Person]")
    project = made.root / "instep.yaml"
    project.write_text(project.read_text() + NOTE)
    made.fill(people=8, tickets=40)
    return made


def instance(shop: QuickShop, ref: str) -> Instance:
    with closing(shop.container().ledger()) as ledger:
        found = ledger.instances.canonical(PartitionRef.parse(ref))
    assert found is not None
    return found


def test_dependencies_of_a_namespace_are_built_in_that_namespace_only(shop: QuickShop) -> None:
    results = shop.run("Note@1/2")
    assert {name: each.state for name, each in results.items()} == dict.fromkeys(
        ["Person", "Ticket@1/2", "Note@1/2"], JobState.COMPLETED
    )
    assert instance(shop, "Note@1/2").inputs == (instance(shop, "Ticket@1/2").uuid,)
    assert instance(shop, "Ticket@1/2").inputs == (instance(shop, "Person").uuid,)
    assert shop.checkpoint("Ticket@1/3") is None
    assert {row["path"][:4] for row in shop.stored("Note")} == {"1/2/"}
    others = shop.run("Note")
    assert list(others) == ["Ticket@1/3", "Note@1/2", "Note@1/3"]
    assert others["Note@1/2"].plan.kind is Kind.NOTHING
    assert instance(shop, "Ticket@1/3").inputs == (instance(shop, "Person").uuid,)
    assert shop.wrong("Person", "Ticket") == {}
    assert len(shop.stored("Note")) == len(shop.stored("Ticket"))


def test_a_failing_namespace_holds_up_its_dependents_in_that_namespace_only(shop: QuickShop) -> None:
    row, at = shop.rows["tickets"][(3,)], shop.now - timedelta(hours=1)
    for number in range(9):  # `key` is wrong there
        shop.rows["tickets"][("again", number)] = row._replace(values={**row.values, "title": f"again {number}"}, at=at)
    shop.save()
    results = shop.run("Note")
    assert {name: results[name].state for name in ("Person", "Ticket@1/2", "Note@1/2")} == dict.fromkeys(
        ["Person", "Ticket@1/2", "Note@1/2"], JobState.COMPLETED
    )
    assert (results["Ticket@1/3"].state, results["Note@1/3"].state) == (JobState.FAILED, JobState.FAILED)
    assert any("Note@1/3 waits for Ticket@1/3, which failed" in note for note in results["Note@1/3"].notes)
    for number in range(9):
        del shop.rows["tickets"][("again", number)]
    shop.save()
    assert {each.state for each in shop.run("Note@1/3").values()} == {JobState.COMPLETED}
    assert shop.wrong("Person", "Ticket") == {}
