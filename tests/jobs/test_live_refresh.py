"""Changes of the source during a build are served before the promotion, and after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.entities import setup as setups
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.jobs import live_refresh
from tests.jobs.quiet import Quiet, built, indexed, missing
from tests.simulator.documents import Document, Rows


@pytest.fixture(autouse=True)
def _small_waves_and_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setups, "MOST_CLAIMS", 1)
    monkeypatch.setattr(live_refresh, "LOOK_SECONDS", 0.0)


def change(world: Quiet) -> None:
    """One document is changed, one is gone, one is new."""
    world.edit(2)
    missing(world, 3)
    new = Document("sim://document/13", 1, 300, ("one", "two"))
    world.source.documents[new.uri] = world.source.versions[new.uri, "1"] = new


def readable(world: Quiet) -> Rows:
    return world.target.indexes[str(world.target.served("Document"))].stored()


def watched(world: Quiet) -> list[Rows]:
    """What readers find when the alias is about to move."""
    seen: list[Rows] = []
    world.before(world.target, "promote", lambda: seen.append(readable(world)))
    return seen


def test_changes_during_a_rebuild_are_served_before_and_after_promotion() -> None:
    world = built()
    world.taint()
    world.after(world.ledger, "slices.claim", lambda: change(world))
    seen = watched(world)
    result = world.run_once()
    assert result.promoted
    assert seen == [world.source.truth()]
    assert readable(world) == world.source.truth()
    assert result.counts.read > 12
    assert len(world.parts()) == 2, "no other job was needed"
    assert world.run_once().state_name == "UP_TO_DATE"
    world.sound()


def test_changes_after_the_last_wave_are_in_the_promoted_index() -> None:
    world = built()
    world.taint()
    world.before(world.ledger, "parts.begin_finish", lambda: change(world))
    served = world.target.indexes[str(world.target.served("Document"))]
    epochs: list[tuple[int, int]] = []
    world.before(world.ledger, "parts.extend", lambda: epochs.append((served.epoch, world.parts()[-1].part.epoch)))
    seen: list[Rows] = []
    world.after(world.target, "promote", lambda: seen.append(readable(world)))
    result = world.run_once()
    assert seen == [world.source.truth()]
    assert result.counts.read > 12
    assert [before == after for before, after in epochs] == [True], "who kept it up to date was not kept out"
    world.sound()


def test_an_index_of_another_transform_is_not_refreshed() -> None:
    world = built()
    before = readable(world)
    world.transform(2)
    world.after(world.ledger, "slices.claim", lambda: change(world))
    seen = watched(world)
    assert world.run_once().promoted
    assert seen == [before]
    assert readable(world) == world.source.truth()
    world.sound()


@pytest.mark.parametrize("absorbed", [0, 1, 2], ids=["before it is announced", "announced", "written"])
def test_rows_left_by_a_crashed_live_refresh_are_removed_by_the_next_run(absorbed: int) -> None:
    """What is served is of another generation, which the next run brings up to date."""
    world = built()
    world.after(world.ledger, "slices.claim", lambda: change(world))
    left = [absorbed]

    def kill() -> None:
        left[0] -= 1
        if left[0] < 0:
            world.kill()

    world.before(world.ledger, "documents.absorb", kill, times=absorbed + 1)
    world.after(world.ledger, "documents.absorb", kill, times=absorbed)
    world.crashes(PlanOptions(generation="v2"))
    missing(world, 13)
    world.run_once()
    assert readable(world) == world.source.truth()
    assert indexed(world) == set(range(1, 13)) - {3}
    world.sound()


def test_a_source_that_never_stands_still_keeps_nothing_from_being_served() -> None:
    world = built()
    world.taint()
    world.before(world.ledger, "parts.begin_finish", lambda: world.edit(2), times=1_000)
    assert world.run_once().promoted
    world.sound()


def test_a_failing_live_refresh_does_not_hold_up_the_build() -> None:
    world = built()
    world.taint()

    def change_and_lose_the_index() -> None:
        change(world)
        del world.target.indexes[str(world.target.served("Document"))]

    world.after(world.ledger, "slices.claim", change_and_lose_the_index)
    assert world.run_once().promoted
    assert readable(world) == world.source.truth()


def many() -> Quiet:
    """So many small documents are served that losing most of them is suspicious."""
    world = Quiet(150)
    for uri, document in world.source.documents.items():
        world.source.documents[uri] = world.source.versions[uri, "1"] = replace(document, size=10)
    assert world.run_once().promoted
    return world


def test_a_source_emptied_before_the_last_look_takes_nothing_from_the_new_index() -> None:
    """A volume that is unmounted just then, say: the next run asks before it deletes that much."""
    world = many()
    whole = readable(world)
    world.taint()
    world.before(world.ledger, "parts.begin_finish", lambda: missing(world, *range(2, 151)))
    seen = watched(world)
    assert world.run_once().promoted
    assert seen == [whole]
    assert readable(world) == whole
    with pytest.raises(UserError, match="149 of 150 documents are gone"):
        world.run_once()
    assert readable(world) == whole
    world.sound()


def test_a_source_emptied_before_reading_empties_neither_served_nor_new_index() -> None:
    world = many()
    whole, before = readable(world), world.served
    world.taint()
    world.after(world.ledger, "slices.claim", lambda: missing(world, *range(2, 151)))
    result = world.run_once()
    assert not result.promoted
    assert any("149 of 150 documents that are served disappeared" in note for note in result.notes), result.notes
    assert (world.served, readable(world)) == (before, whole)
    with pytest.raises(UserError, match="149 of 150 documents are gone"):
        world.run_once()
    assert world.run_once(PlanOptions(allow_deletes=True)).promoted, "who asks for it gets it"
    assert len(indexed(world)) == 1
    world.sound()


def test_documents_that_vanish_for_a_moment_are_in_the_promoted_index() -> None:
    world = many()
    whole, there = readable(world), dict(world.source.documents)
    world.taint()
    world.after(world.ledger, "slices.claim", lambda: missing(world, *range(2, 151)))
    world.before(world.ledger, "parts.begin_finish", lambda: world.source.documents.update(there))
    assert world.run_once().promoted
    assert readable(world) == whole
    world.sound()
