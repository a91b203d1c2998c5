"""Runs of tables into OpenSearch as processes on Spark: killed in a wave, or two at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.targets.opensearch.tables import OpenSearchTables
from tests.doubles.clock import VirtualClock
from tests.e2e.tables import test_processes
from tests.e2e.tables.shop import Shop
from tests.targets.opensearch.conftest import forget_all

pytestmark = pytest.mark.long


@pytest.fixture
def shop(opensearch: str, tmp_path: Path) -> Iterator[Shop]:
    target = OpenSearchTables(opensearch)
    forget_all(target)
    made = Shop(tmp_path / "shop", f"type: opensearch, uri: '{opensearch}'", clock=VirtualClock(1_700_000_000_000))
    made.declare()
    made.edit("slices: 3", "slices: 12")
    made.fill(people=10, tickets=12_000)
    yield made
    forget_all(target)


def test_a_run_that_is_killed_in_a_wave_is_resumed(shop: Shop) -> None:
    name = "test_runs_that_are_killed_or_stopped_in_a_wave_are_resumed_and_nothing_that_was_done_is_done_again"
    getattr(test_processes, name)(shop, False)


def test_two_runs_at_once_share_a_namespace(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    test_processes.test_two_runs_at_once_share_a_namespace_and_do_the_others_beside_each_other(shop, monkeypatch)
