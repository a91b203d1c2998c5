"""The simulator notices every seeded bug: what it finds nothing in has been looked at."""

from __future__ import annotations

import pytest

from .mutations import ALL, Mutation
from .simulation import play

#: Schedules after which a bug must have been noticed.
BOUND = 1_500


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch)
    assert any(play(seed).broken for seed in range(BOUND)), f"{bug.name}: nothing was noticed in {BOUND} schedules"
