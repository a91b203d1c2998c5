"""Another generation of a table: what lacks too many rows is promoted only by who says so."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from instep.errors import UserError
from instep.jobs.promote import Promotion, promote
from instep.telemetry.progress import Silent

from .quick import QuickShop

PEOPLE = 200


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill(people=PEOPLE, tickets=10)
    return made


def promoted(shop: QuickShop, generation: str, *, allow_deletes: bool = False) -> Promotion:
    container = shop.container()
    with closing(container), closing(container.ledger()) as ledger:
        context = replace(container.context(ledger, Silent()), background=shop.clock)
        (setup,) = container.setups(["Person"])
        return promote(setup, generation, context, allow_deletes=allow_deletes)


def test_promoting_a_generation_that_lacks_rows_needs_permission(shop: QuickShop) -> None:
    shop.run("Person")
    before = shop.stored("Person")
    for number in range(3 * PEOPLE // 4):
        shop.remove("people", number)
    shop.save()
    shop.run("Person", generation="v2")
    with pytest.raises(UserError, match=r"rows are gone from the source; .* only with --allow-deletes"):
        promoted(shop, "v2")
    assert shop.stored("Person") == before
    assert promoted(shop, "v2", allow_deletes=True).changed
    assert shop.wrong("Person") == {}
