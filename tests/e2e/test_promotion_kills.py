"""kill -9 at each step of a promotion, with Lance."""

from __future__ import annotations

import pytest

from tests.e2e import truth
from tests.e2e.conftest import Location
from tests.e2e.killing import Step, long_but, rebuild_killed, steps_of

LANCE = "instep.targets.lance.target:LanceTarget"
STEPS = [*steps_of(LANCE), Step("instep.targets.lance.location:Location", "create", "after")]
#: The alias has moved, and the ledger does not know.
SHARPEST = Step(LANCE, "promote", "after")


@pytest.mark.parametrize("step", long_but(SHARPEST, STEPS), ids=str)
def test_killed_at_a_step_of_promotion_readers_lack_nothing_and_the_next_run_ends_it(
    place: Location, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.declare(extra="engine: inline")
    from instep.targets.lance.target import LanceTarget

    rebuild_killed(
        place.root,
        step,
        docs=place.docs,
        target=LanceTarget(str(place.index)),
        content=lambda: truth.stored(place.index),
        monkeypatch=monkeypatch,
    )
