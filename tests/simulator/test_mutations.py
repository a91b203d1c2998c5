"""The simulator notices every seeded bug: when it finds nothing, there is nothing of that kind to find."""

from __future__ import annotations

import pytest

from .exhaustive import explore
from .mutations import Mutation
from .relation_mutations import ALL
from .simulation import play

#: Schedules after which a bug must have been noticed.
BOUND = 1_500


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch)
    if bug.scope:
        assert explore(bug.scope).broken, f"nothing was noticed in {bug.scope}"
    else:
        assert any(play(seed).broken for seed in range(BOUND)), f"nothing was noticed in {BOUND} schedules"


def test_there_are_many_and_they_differ() -> None:
    assert len({bug.name for bug in ALL}) == len(ALL) >= 12
