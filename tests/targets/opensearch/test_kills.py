"""kill -9 at each step of a promotion, with OpenSearch."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.targets.opensearch.target import OpenSearchTarget
from tests.e2e.killing import Step, long_but, rebuild_killed, steps_of
from tests.targets.opensearch.test_runs import content, declare, docs, target

__all__ = ["docs", "target"]

TARGET, INDEXES = "instep.targets.opensearch.target:OpenSearchTarget", "instep.targets.opensearch.indexes:Indexes"
#: It is decided which index is served, and the alias still leads to the old one.
SHARPEST = Step(INDEXES, "point", "before")
STEPS = [SHARPEST, *steps_of(TARGET), Step(INDEXES, "point", "after"), Step(INDEXES, "drop", "after")]


@pytest.mark.proof
@pytest.mark.parametrize("step", long_but(SHARPEST, STEPS), ids=str)
def test_killed_at_a_step_of_promotion_readers_lack_nothing_and_the_next_run_ends_it(
    target: OpenSearchTarget, docs: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = declare(docs, target.uri)
    rebuild_killed(root, step, docs=docs, target=target, content=lambda: content(target), monkeypatch=monkeypatch)
