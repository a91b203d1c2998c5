"""Tables and namespaces that become empty: they lose their last rows only with permission; and a first
build that wrote nothing is not served.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instep.domain.jobs import JobState
from instep.domain.rows import RowColumns, Selection
from instep.errors import UserError
from instep.jobs.promote import promote
from instep.telemetry.progress import Silent

from .quick import ArrowTable, Frame, QuickShop


class _Blind(ArrowTable):
    """It counts rows, and gives none."""

    def __init__(self, seeing: Any) -> None:
        super().__init__(seeing.inner)

    def frame(self, spark: Any, rows: RowColumns, selection: Selection) -> Any:
        found = super().frame(spark, rows, selection)
        return Frame(found.table.slice(0, 0))


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill(people=5, tickets=40)
    return made


def emptied(shop: QuickShop, table: str, prefix: str = "") -> None:
    for key, row in list(shop.rows[table].items()):
        if str(row.values.get("path", "")).startswith(prefix):
            shop.remove(table, *key)
    shop.save()


@pytest.mark.parametrize(
    ("ref", "table", "prefix"),
    [("Person", "people", ""), ("Ticket@1/2", "tickets", "1/2/")],
    ids=["staged", "namespace"],
)
def test_deleting_the_last_rows_needs_permission(shop: QuickShop, ref: str, table: str, prefix: str) -> None:
    entity = ref.partition("@")[0]
    shop.run(entity)
    before = shop.stored(entity)
    emptied(shop, table, prefix)
    refused = shop.run(ref, full_refresh=True, allow_deletes=True)[ref]
    assert (refused.state, refused.promoted) == (JobState.FAILED, False)
    assert any("--allow-empty" in note for note in refused.notes)
    assert shop.stored(entity) == before
    done = shop.run(ref, full_refresh=True, allow_empty=True)[ref]
    assert (done.state, done.promoted) == (JobState.COMPLETED, True)
    assert shop.wrong(entity) == {}
    assert shop.run(ref)[ref].state_name == "UP_TO_DATE"


def test_promoting_an_empty_generation_needs_permission(shop: QuickShop) -> None:
    shop.run("Person")
    emptied(shop, "people")
    shop.run("Person", generation="v2")
    container = shop.container()
    with closing(container), closing(container.ledger()) as ledger:
        context = replace(container.context(ledger, Silent()), background=shop.clock)
        (setup,) = container.setups(["Person"])
        with pytest.raises(UserError, match="--allow-empty"):
            promote(setup, "v2", context, allow_deletes=True)
        assert promote(setup, "v2", context, allow_empty=True).changed
    assert shop.wrong("Person") == {}


def test_an_empty_table_is_a_first_build_like_others(shop: QuickShop) -> None:
    emptied(shop, "people")
    emptied(shop, "tickets", "1/3/")
    found = shop.run("Person", "Ticket")
    assert {each.state for each in found.values()} == {JobState.COMPLETED}
    assert all(each.promoted for each in found.values())
    assert shop.wrong("Person", "Ticket") == {}


@pytest.mark.parametrize("entity", ["Person", "Ticket"], ids=["staged", "namespace"])
def test_rows_that_were_counted_and_did_not_come_are_not_nothing(shop: QuickShop, entity: str) -> None:
    """A scan that finds nothing where there was something is no proof that there is nothing."""
    found = shop.run(entity, setups=lambda setup: replace(setup, source=_Blind(setup.source)))
    assert {each.state for each in found.values()} == {JobState.FAILED}
    assert not any(each.promoted for each in found.values())
    assert any("counted" in note for each in found.values() for note in each.notes)
    assert all(each.promoted for each in shop.run(entity).values())
    assert shop.wrong(entity) == {}
