"""An index that namespaces share, and that somebody dropped: what one of them makes again has the rows of all."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from instep.domain.instances import InstanceState
from instep.domain.refs import PartitionRef
from instep.entities.plan_request import Kind
from instep.errors import UserError

from .quick import Crash, Fault, QuickShop

_OTHER = PartitionRef.parse("Ticket@1/3")


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill(people=5, tickets=40)
    made.run("Ticket")
    return made


def drop(shop: QuickShop, tables: str) -> None:
    for each in (shop.root / "index").glob(tables):
        shutil.rmtree(each)


def state(shop: QuickShop) -> InstanceState:
    with closing(shop.container().ledger()) as ledger:
        found = ledger.checkpoints.get(_OTHER)
        served = ledger.instances.get(found.instance) if found else None
    assert served is not None
    return served.state


@pytest.mark.parametrize("tables", ["Ticket__*.lance", "Ticket__*__OPENED.lance"], ids=["all", "edges"])
def test_what_one_namespace_makes_again_the_others_are_built_into_again(shop: QuickShop, tables: str) -> None:
    drop(shop, tables)
    assert shop.run("Ticket@1/2")["Ticket@1/2"].plan.kind is Kind.REBUILD
    assert state(shop) is InstanceState.TAINTED
    found = shop.run("Ticket")
    assert {ref: each.plan.kind for ref, each in found.items() if each.plan.pending} == {str(_OTHER): Kind.REBUILD}
    assert shop.wrong("Ticket") == {}
    assert {each.state_name for each in shop.run("Ticket").values()} == {"UP_TO_DATE"}


def test_namespaces_that_are_built_again_together_are_built_once(shop: QuickShop) -> None:
    drop(shop, "Ticket__*.lance")
    assert {each.plan.kind for each in shop.run("Ticket").values()} == {Kind.REBUILD}
    assert shop.wrong("Ticket") == {}
    assert {each.state_name for each in shop.run("Ticket").values()} == {"UP_TO_DATE"}


def lose_in_refresh(shop: QuickShop) -> None:
    """Drop the index while a namespace is being refreshed, whose process has ended."""
    shop.put("tickets", id=1, path="1/3/1/", title="changed")
    shop.save()
    fault = Fault(1, counts=lambda name: name == "target.commit")
    with pytest.raises(Crash):
        shop.run(str(_OTHER), setups=fault.target, around=fault.context)
    drop(shop, "Ticket__*.lance")


def test_an_index_is_not_made_again_beside_a_refresh_that_lost_it(shop: QuickShop) -> None:
    lose_in_refresh(shop)
    with pytest.raises(UserError, match=r"is gone, and job \w+ on Ticket@1/3 has not ended with it") as told:
        shop.run("Ticket@1/2")
    assert "instep run Ticket@1/3 --full-refresh" in str(told.value)
    shop.run("Ticket")
    shop.run("Ticket")
    assert shop.wrong("Ticket") == {}


def test_a_refresh_of_a_namespace_that_lost_its_index_is_a_build_in_the_next_run(shop: QuickShop) -> None:
    lose_in_refresh(shop)
    found = shop.run(str(_OTHER))[str(_OTHER)]
    assert (found.plan.kind, found.state_name) == (Kind.REBUILD, "COMPLETED")
    shop.run("Ticket")
    assert shop.wrong("Ticket") == {}


def test_a_repair_does_not_make_tables_again(shop: QuickShop) -> None:
    """It compares keys of the own table alone: edges of the others would never come back."""
    shop.remove("tickets", 2)
    shop.save()
    drop(shop, "Ticket__*__OPENED.lance")
    with pytest.raises(UserError, match="is gone from target"):
        shop.run("Ticket@1/2", repair=True, allow_deletes=True)
    shop.run("Ticket")
    assert shop.wrong("Ticket") == {}
