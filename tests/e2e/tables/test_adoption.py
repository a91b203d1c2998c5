"""Tables and namespaces whose ledger was lost: adopted, served unchanged until they are rebuilt."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

import instep
from instep.domain.jobs import JobState
from tests.servers.postgres import running_postgres

from .quick import QuickShop

PARTS = ["Person", "Ticket@1/2", "Ticket@1/3", "Like"]


@pytest.fixture(params=["lance", pytest.param("postgres", marks=pytest.mark.proof)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> QuickShop:
    target = "type: lance, uri: index"
    if request.param == "postgres":
        server = running_postgres()
        database = f"shop_{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {database}")
        target = f"type: postgres, uri: '{server.url(database)}'"
    made = QuickShop(tmp_path / "shop", target)
    made.declare()
    made.fill(people=5, tickets=40)
    made.save()
    return made


def served(shop: QuickShop) -> dict[str, int]:
    return {name: len(shop.stored(name)) for name in ("Person", "Ticket", "Like")}


def test_tables_and_namespaces_are_adopted_and_rebuilt_beside_the_served_index(shop: QuickShop) -> None:
    assert all(each.promoted for each in shop.run().values())
    before = served(shop)
    for each in (shop.root / ".instep").glob("ledger.db*"):
        each.unlink()
    refused = shop.run()
    assert [each for each in PARTS if "instep adopt" in str(refused[each].problem)] == PARTS
    found = instep.load(shop.root).adopt()
    assert [(each.ref.label, each.live, each.done) for each in found] == [(each, False, True) for each in PARTS]
    assert served(shop) == before, "until the next run has built it anew"
    built = shop.run()
    assert {name: (each.state, each.promoted) for name, each in built.items()} == dict.fromkeys(
        PARTS, (JobState.COMPLETED, True)
    )
    assert shop.wrong() == {}
    shop.remove("tickets", next(iter(shop.rows["tickets"]))[0])
    shop.save()
    shop.run()
    assert shop.wrong() == {}, "and goes on as ever"
    assert [each.state for each in shop.run().values()] == [None] * len(PARTS)


def test_one_namespace_is_adopted_with_the_shared_index(shop: QuickShop) -> None:
    shop.run("Ticket")
    for each in (shop.root / ".instep").glob("ledger.db*"):
        each.unlink()
    (found,) = [each for each in instep.load(shop.root).adopt(["Ticket@1/2"]) if each.done]
    assert found.ref.label == "Ticket@1/2"
    assert all(each.promoted for each in shop.run("Ticket").values())
    assert shop.wrong("Ticket") == {}


def test_a_ledger_of_yesterday_is_refused_until_it_is_adopted_and_its_tables_are_rebuilt(shop: QuickShop) -> None:
    """A row that came and went since is in the target, and no ledger knows of it."""
    shop.run()
    shutil.copytree(shop.root / ".instep", shop.root / "kept")
    shop.put("tickets", id=900, path="1/2/1/", title="came and went", author=1)
    shop.save()
    shop.run()
    shop.remove("tickets", 900)
    shop.save()
    shutil.rmtree(shop.root / ".instep")
    shutil.copytree(shop.root / "kept", shop.root / ".instep")
    shop.put("tickets", id=2, path="1/2/1/", title="changed", author=1)
    shop.save()
    for _ in range(5):
        assert "seen a newer epoch" in str(shop.run()["Ticket@1/2"].problem)
    found = instep.load(shop.root).adopt()
    assert "Ticket@1/2" in [each.ref.label for each in found if each.done and not each.live]
    assert shop.run()["Ticket@1/2"].promoted
    assert shop.wrong() == {}
    assert [each.state for each in shop.run().values()] == [None] * len(PARTS)
