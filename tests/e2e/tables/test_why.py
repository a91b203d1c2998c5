"""From a row of a table to the job, the window and the slice that it came by."""

from __future__ import annotations

import json

import pytest

import instep
from instep.answers.why import Provenance
from instep.cli import main
from instep.errors import UserError

from .quick import QuickShop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> QuickShop:
    """Built, and then refreshed twice."""
    made = QuickShop(tmp_path_factory.mktemp("why") / "shop", "type: lance, uri: index")
    made.declare()
    made.edit("key: [person, ticket]\n    watermark: at\n", "key: [person, ticket]\n")
    made.edit("properties: [id, title]", "properties: {number: id, title: title}")
    made.fill(people=20, tickets=60)
    made.run()
    for number in (2, 4):
        made.put("tickets", id=number, title=f"changed {number}")
        made.save()
        made.run("Ticket")
    return made


def why(shop: QuickShop, entity: str, key: str) -> Provenance:
    return instep.load(shop.root).why(entity, key)


def test_each_row_leads_to_the_job_the_window_and_the_slice_that_it_came_by(shop: QuickShop) -> None:
    built, first, second = (why(shop, "Ticket", key) for key in ("16", "2", "4"))
    assert len({each.job.id for each in (built, first, second) if each.job}) == 3
    for each, key in ((built, 16), (first, 2), (second, 4)):
        assert each.instance is not None
        row = each.row
        assert (row["key"], row["ref"], row["instance"]) == ({"number": key}, "Ticket@1/2", each.instance.uuid)
        assert each.window is not None
        assert each.window.floor * 1_000 < row["watermark"] <= each.window.target * 1_000
    windows = [each.window for each in (built, first, second) if each.window]
    assert windows[0].floor == 0
    assert windows[1].floor <= windows[0].target < windows[1].target
    assert windows[1].floor < windows[2].floor <= windows[1].target < windows[2].target
    assert built.slice is not None
    assert built.slice["count"] == 3
    assert (built.slice["from"] or [0]) <= [16]
    assert built.slice["below"] is None or built.slice["below"] > [16]
    assert first.slice is not None
    assert (first.slice["count"], first.slice["columns"]) == (1, [])
    assert why(shop, "Ticket", "15").row["ref"] == "Ticket@1/3"


def test_a_row_without_a_watermark_is_traced_to_the_job_of_its_instance(shop: QuickShop) -> None:
    found = why(shop, "Like", "3,3")
    assert found.instance is not None
    assert found.job is not None
    assert (found.row["key"], found.row["watermark"], found.job.id) == (
        {"person": 3, "ticket": 3},
        None,
        found.instance.job,
    )
    assert found.window is None


def test_an_unknown_row_is_answered_with_a_hint(shop: QuickShop) -> None:
    for key in ("0", "9999", "unknown", "1,2"):  # the first is deleted
        with pytest.raises(UserError, match="no row") as caught:
            why(shop, "Ticket", key)
        assert caught.value.hint == "Give its key, id, as `instep failures` shows keys."
    with pytest.raises(UserError, match="known by their entity"):
        why(shop, "index", "2")


def test_the_command_line_tells_it(
    shop: QuickShop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop.root)
    assert main(["why", "Ticket", "16"]) == 0
    told = capsys.readouterr().out
    for part in ("number 16", "of Ticket@1/2", "of 3: id ", "first build", "window", "up to"):
        assert part in told
    assert main(["why", "Ticket", "16", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["row"]["key"] == {"number": 16}
    assert (answer["slice"]["count"], answer["slice"]["columns"]) == (3, ["id"])
    assert answer["job"]["state"] == "COMPLETED"
