"""The simulator notices every seeded bug: when it finds nothing, there is nothing of that kind to find."""

from __future__ import annotations

import pytest

from .exhaustive import explore
from .mutations import Mutation
from .relation_mutations import ALL
from .simulation import play

#: Schedules after which a bug must have been noticed.
BOUND = 3_000
#: Schedules that came late and noticed them. They are tried first; when the simulator has changed, all are, as ever.
NOTICED = {
    "complete_without_the_fence": 30,
    "heartbeat_gives_back_what_runs": 0,
    "the_target_forgets_fences": 18,
    "an_older_promotion_overrides_a_newer_one": 4,
    "lease_taken_from_its_holder": 284,
    "what_is_served_is_not_put_back": 19,
    "attempts_begin_again_with_each_claim": 12,
    "halves_begin_at_fence_zero": 15,
    "a_half_is_cut_anew_and_loses_a_document": 21,
    "the_finisher_keeps_its_part_for_ever": 7,
    "a_planning_worker_that_dies_leaves_its_job_open": 40,
    "a_stop_cancels_what_is_pending": 7,
    "no_worker_begins_the_upstream": 37,
    "who_waits_for_nothing_waits_for_ever": 43,
    "what_was_refused_is_built_again_and_again": 29,
    "what_was_refused_is_built_again_for_what_is_made_from_it": 30,
    "what_is_promoted_is_not_looked_at_again": 17,
    "what_failed_is_not_told": 0,
    "the_target_forgets_epochs": 18,
    "a_promotion_is_not_recorded": 63,
    "an_older_process_builds_back": 84,
}


@pytest.mark.proof
@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch)
    if bug.scope:
        assert explore(bug.scope).broken, f"nothing was noticed in {bug.scope}"
    else:
        seeds = (NOTICED.get(bug.name, 0), *range(BOUND))
        assert any(play(seed, weather=bug.weather).broken for seed in seeds), (
            f"nothing was noticed in {BOUND} schedules"
        )


def test_there_are_many_distinct_seeded_bugs() -> None:
    assert len({bug.name for bug in ALL}) == len(ALL) >= 12
    assert NOTICED.keys() <= {bug.name for bug in ALL}
