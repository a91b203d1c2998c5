"""Rows that move to a namespace that is not indexed: they leave the one that they were in."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from instep.errors import UserError
from tests.doubles.clock import VirtualClock

from .quick import Crash, Fault, QuickShop

DELETES = "slices: 3\n    deletes: {share: 0.2, floor: 4}\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> QuickShop:
    made = QuickShop(tmp_path_factory.mktemp("built") / "shop", "type: lance, uri: index")
    made.declare()
    made.edit("slices: 3\n", DELETES)
    made.fill(people=20, tickets=60)
    made.run()
    return made


@pytest.fixture
def shop(built: QuickShop, tmp_path: Path) -> QuickShop:
    return built.copied(tmp_path / "shop")


def move(shop: QuickShop, path: str | None, *numbers: int) -> None:
    for number in numbers:
        shop.put("tickets", id=number, path=path)
    shop.save()


def wrong(shop: QuickShop) -> dict[str, object]:
    """What differs from the truth, of which what is nowhere indexed is no part."""
    everything = dict(shop.rows["tickets"])
    shop.rows["tickets"] = {
        key: row for key, row in everything.items() if (row.values["path"] or "").startswith(("1/2/", "1/3/"))
    }
    found = shop.wrong("Ticket")
    shop.rows["tickets"] = everything
    return found


@pytest.mark.parametrize("path", ["9/9/", "1/20/", "1/", None, "", "1/2"])
def test_a_row_that_moves_out_leaves_with_its_edges(shop: QuickShop, path: str | None) -> None:
    move(shop, path, 2, 4, 3)
    results = shop.run("Ticket")
    assert {name: (each.state, each.counts.deleted) for name, each in results.items()} == {
        "Ticket@1/2": (JobState.COMPLETED, 2),
        "Ticket@1/3": (JobState.COMPLETED, 1),
    }
    assert wrong(shop) == {}
    assert {each.plan.kind for each in shop.run("Ticket").values()} == {Kind.NOTHING}
    move(shop, "1/3/0/", 2)  # which is back, elsewhere
    shop.run("Ticket")
    assert wrong(shop) == {}


def test_rows_that_were_never_here_are_neither_counted_nor_kept(shop: QuickShop) -> None:
    for number in range(1000, 1100):
        shop.put("tickets", id=number, path=f"{number}/", title="elsewhere", author=None)
    move(shop, "9/", 2)
    results = shop.run("Ticket")
    counts = results["Ticket@1/2"].counts
    assert (counts.read, counts.deleted, results["Ticket@1/3"].counts.read) == (1, 1, 0)
    setup = shop.setup("Ticket")
    served = setup.target.served(setup.alias)
    assert served is not None
    assert setup.target.rows(served) == len(shop.stored("Ticket"))
    assert wrong(shop) == {}


def test_changes_in_one_namespace_give_no_other_one_work(shop: QuickShop) -> None:
    """Though the files do not say whose the rows are that lie between the first and the last."""
    shop.edit("namespaces: [1/2, 1/3]", "namespaces: [1/2, 1/3, 1/5]")
    shop.put("tickets", id=60, path="1/2/0/", title="new", author=None)
    shop.put("tickets", id=61, path="1/5/0/", title="new", author=None)
    shop.put("tickets", id=62, path="1/2/0/", title="new", author=None)
    shop.put("tickets", id=63, path="1/5/0/", title="new", author=None)
    shop.save()  # in one file those of 1/2, in the other those of 1/3 and 1/5
    shop.run("Ticket")
    shop.put("tickets", id=1, title="changed")
    shop.save()
    results = shop.run("Ticket")
    assert (results["Ticket@1/2"].plan.kind, results["Ticket@1/3"].plan.kind) == (Kind.NOTHING, Kind.REFRESH)
    assert shop.wrong("Ticket") == {}
    move(shop, "1/4/", 61)
    assert shop.run("Ticket")["Ticket@1/2"].plan.kind is Kind.REFRESH  # it may have been there
    assert 61 not in {row["id"] for row in shop.stored("Ticket")}


def test_a_row_that_moves_to_another_namespace_stays_until_that_has_it(shop: QuickShop) -> None:
    move(shop, "1/3/1/", 2)
    shop.put("tickets", id=4, title="changed")
    shop.save()
    shop.run("Ticket@1/2")
    assert {row["path"] for row in shop.stored("Ticket") if row["id"] == 2} == {"1/2/2/"}
    shop.run("Ticket@1/3")
    assert wrong(shop) == {}


def test_a_requested_namespace_is_indexed_like_declared_ones(shop: QuickShop) -> None:
    shop.edit("namespaces: [1/2, 1/3]", "namespaces: [1/2]")
    move(shop, "1/3/1/", 2)
    shop.put("tickets", id=4, title="changed")
    shop.save()
    shop.run("Ticket@1/2")
    assert {row["path"] for row in shop.stored("Ticket") if row["id"] == 2} == {"1/2/2/"}
    shop.run("Ticket@1/3")
    assert wrong(shop) == {}


def test_a_row_that_left_is_there_when_its_namespace_is_declared(shop: QuickShop) -> None:
    move(shop, "1/4/1/", 2)
    shop.run("Ticket")
    assert 2 not in {row["id"] for row in shop.stored("Ticket")}
    shop.edit("namespaces: [1/2, 1/3]", "namespaces: [1/2, 1/3, 1/4]")
    shop.run("Ticket")
    assert shop.wrong("Ticket") == {}


def test_rows_keyed_by_namespace_never_move(tmp_path: Path) -> None:
    """The other row is another one: that this one is gone, its flag has to say."""
    shop = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    shop.declare()
    shop.edit("key: id\n    scope: path", "key: [path, id]\n    scope: path")
    shop.edit(", to: {label: Ticket}}", ", to: {label: Person, columns: [author]}}")
    for name in ("Like",):
        text = (shop.root / "instep.yaml").read_text()
        (shop.root / "instep.yaml").write_text(text[: text.index(f"  {name}:")])
    shop.fill(people=20, tickets=60)
    shop.run("Ticket")
    move(shop, "9/9/", 2)
    shop.run("Ticket")
    assert 2 in {row["id"] for row in shop.stored("Ticket")}


def test_all_rows_or_too_many_are_not_deleted_unasked(shop: QuickShop) -> None:
    before = shop.stored("Ticket")
    here = [row["id"] for row in before if row["path"].startswith("1/2/")]
    move(shop, "9/9/", *here)
    for _ in range(2):
        with pytest.raises(UserError, match=rf"{len(here)} of {len(here)} rows have moved .*") as raised:
            shop.run("Ticket@1/2")
        assert "--allow-deletes" in str(raised.value.hint)
        assert shop.stored("Ticket") == before
    assert shop.run("Ticket@1/2", allow_deletes=True)["Ticket@1/2"].counts.deleted == len(here)
    assert wrong(shop) == {}


def test_a_namespace_that_would_lose_too_much_keeps_no_other_from_going_on(shop: QuickShop) -> None:
    before = shop.stored("Ticket")
    here = [row["id"] for row in before if row["path"].startswith("1/2/")]
    for number in range(1, 4):
        shop.put("tickets", id=3, title=f"change {number}")
        move(shop, "9/9/", *here)
        results = shop.run("Ticket")
        assert results["Ticket@1/3"].state is JobState.COMPLETED
        assert f"change {number}" in {row["title"] for row in shop.stored("Ticket")}
        assert {row["id"] for row in shop.stored("Ticket")} == {row["id"] for row in before}
    shop.run("Ticket", allow_deletes=True)
    assert wrong(shop) == {}


def test_rows_that_leave_bit_by_bit_are_asked_for_as_at_once(shop: QuickShop) -> None:
    for number in (2, 4, 6):
        move(shop, "9/9/", number)
        shop.run("Ticket@1/2")
    move(shop, "9/9/", 8, 10, 12)
    for _ in range(2):
        with pytest.raises(UserError, match="3 more are gone in the last 6h"):
            shop.run("Ticket@1/2")
    # A rebuild counts them alike.
    rebuilt = shop.run("Ticket@1/2", full_refresh=True)["Ticket@1/2"]
    assert rebuilt.state is JobState.FAILED
    assert "3 of 24 rows are gone from the source, and 3 more" in " ".join(rebuilt.notes)
    shop.run("Ticket@1/2", allow_deletes=True)
    assert wrong(shop) == {}


@pytest.mark.proof
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["target.leaving", "target.commit", "slices.complete", "parts.begin_finish"])
def test_rows_leave_their_namespace_after_a_crash_in_between(shop: QuickShop, call: str, after: bool) -> None:
    move(shop, "9/9/", 2, 4)
    shop.put("tickets", id=6, title="changed")
    shop.save()
    fault = Fault(1, after, lambda made: made == call)
    with pytest.raises(Crash):
        shop.run("Ticket@1/2", setups=fault.target, around=fault.context)
    assert fault.crashed_in == call
    shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)
    shop.run("Ticket")
    assert wrong(shop) == {}
    if (call, after) != ("slices.complete", True):  # What was lost is told the ledger just after it.
        with closing(shop.container().ledger()) as ledger:
            assert ledger.losses.lately(shop.setup("Ticket@1/2").ref, "", window=10**9).units == 2
