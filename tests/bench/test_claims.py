"""Small versions of the benchmarks of claims and coordination: they run to their end, and their own checks hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.claims import Bench, Cell, goals, rows
from bench.coordination import ask, share_rows, spark_job, statistics_rows
from bench.queues import Bare, Ours
from bench.servers import DurablePostgres


@pytest.fixture(scope="module")
def server() -> Iterator[DurablePostgres]:
    server = DurablePostgres()
    server.start()
    yield server
    server.stop()


@pytest.mark.long
def test_sides_do_every_job_once(server: DurablePostgres) -> None:
    bench = Bench(server, jobs=60, workers=2)
    for queue in (Bare(), Ours()):
        assert bench.turn(queue, 7) > 0
        assert bench.turn(queue, 50, churn=1) > 0


@pytest.mark.long
def test_statistics_are_asked(server: DurablePostgres, tmp_path: Path) -> None:
    for url in (server.create("asked"), f"sqlite:///{tmp_path / 'ledger.db'}"):
        asked = ask("ledger", url, 2_100, repeat=2)
        assert [each.question for each in asked] == ["job", "latest_job", "open_parts"]
        assert len(statistics_rows(asked)[1]) == 3


@pytest.mark.long
def test_the_ledgers_share_of_a_job_is_summed_up(server: DurablePostgres, tmp_path: Path) -> None:
    share = spark_job(server.create("job"), tmp_path, documents=40, buckets=8, engine="inline")
    assert share.slices == 8
    assert 0 < share.share < 1
    assert share.calls["parts.plan"] == 1
    assert share_rows(share)[1][-1][0].startswith("all, of")


def test_goals_are_ratios_to_the_bare_loop_and_to_others() -> None:
    cells = [
        Cell("bare loop", 50, [100.0, 90.0, 110.0]),
        Cell("instep", 50, [85.0]),
        Cell("instep", 50, [60.0], churn=4),
        Cell("pgqueuer", 10, [50.0]),
    ]
    assert [(each.reached, each.verdict) for each in goals(cells)] == [(0.85, "met"), (0.6, "MISSED"), (1.7, "met")]
    assert [line[-1] for line in rows(cells)[1]] == ["1.00", "0.85", "0.60", ""]
