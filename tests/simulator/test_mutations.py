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
    "complete_without_the_fence": 250,
    "heartbeat_keeps_what_nobody_runs": 80,
    "earlier_commits_are_not_looked_up": 68,
    "an_unknown_commit_is_tried_as_a_new_attempt": 72,
    "the_target_forgets_fences": 669,
    "an_attempt_is_committed_again": 191,
    "what_is_served_is_not_put_back": 578,
    "nobody_begins_what_is_waited_for": 129,
    "a_promotion_is_not_recorded": 220,
    "the_checkpoint_moves_before_the_alias": 476,
    "lease_taken_from_whoever_has_it": 109,
    "a_stop_cancels_what_is_pending": 22,
    "attempts_begin_again_with_each_claim": 12,
    "halves_begin_at_fence_zero": 15,
    "a_half_is_cut_anew_and_loses_a_document": 21,
    "the_finisher_keeps_its_part_for_ever": 10,
    "a_planning_worker_that_dies_leaves_its_job_open": 16,
    "an_unknown_commit_counts_as_done": 225,
}


@pytest.mark.proof
@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch)
    if bug.scope:
        assert explore(bug.scope).broken, f"nothing was noticed in {bug.scope}"
    else:
        seeds = (NOTICED.get(bug.name, 0), *range(BOUND))
        assert any(play(seed).broken for seed in seeds), f"nothing was noticed in {BOUND} schedules"


def test_there_are_many_distinct_seeded_bugs() -> None:
    assert len({bug.name for bug in ALL}) == len(ALL) >= 12
    assert NOTICED.keys() <= {bug.name for bug in ALL}
