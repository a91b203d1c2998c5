"""How SQLite goes about the ledger's statements: by which index, and whether it has to sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up
from tests.contracts.ledger.building import REF, VirtualClock, claim_all, job_of, plan, running

_SLICES = 50_000


@dataclass
class _Large:
    """A job with as many slices as one may have, and what was said to the database since."""

    engine: Engine
    ledger: Ledger
    said: list[tuple[str, Any]] = field(default_factory=list)

    def plan_of(self, statement: str, call: Callable[[], object]) -> list[tuple[int, int, str]]:
        """(id, parent, detail) of the steps of the one statement of `call` that has this in it."""
        self.said.clear()
        call()
        ((text, values),) = [each for each in self.said if statement in each[0]]
        with self.engine.connect() as connection:
            rows = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + text, values).all()
        return [(row.id, row.parent, row.detail) for row in rows]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Large]:
    path: Path = tmp_path_factory.mktemp("large") / "ledger.db"
    engine = sqlite_engine(path)
    bring_up(engine, str(path))
    large = _Large(engine, Ledger(engine, SqliteDialect(VirtualClock(), str(path))))
    running(large.ledger, [plan(index, [], work=index % 977 + 1) for index in range(_SLICES)])

    @event.listens_for(engine, "before_cursor_execute")
    def record(_: object, __: object, statement: str, values: object, *___: object) -> None:
        if not statement.startswith("EXPLAIN"):
            large.said.append((statement, values))

    yield large
    large.ledger.close()


def _details(steps: list[tuple[int, int, str]]) -> str:
    return "\n".join(detail for *_, detail in steps)


def test_a_claim_reads_only_the_pending_index(large: _Large) -> None:
    steps = large.plan_of("UPDATE slices", lambda: claim_all(large.ledger))
    (first,) = [number for number, _, detail in steps if detail in ("CO-ROUTINE first", "MATERIALIZE first")]
    inside = [detail for _, parent, detail in steps if parent == first]
    assert "SEARCH slices USING INDEX slices_pending (job_id=? AND ref=? AND rank>?)" in inside
    assert not any("B-TREE" in detail for detail in inside), "the index gives the order; nothing is sorted"
    assert not any("SCAN slices" in detail for *_, detail in steps)


def test_statistics_come_in_the_order_of_their_index(large: _Large) -> None:
    assert sum(job_of(large.ledger).slices.values()) == _SLICES
    steps = _details(large.plan_of("GROUP BY slices.job_id, slices.ref, slices.state", lambda: job_of(large.ledger)))
    assert "USING INDEX slices_job (job_id=?)" in steps
    assert "B-TREE" not in steps
    assert "SCAN slices" not in _details(large.plan_of("job_workers.units", lambda: job_of(large.ledger)))


def test_looking_for_work_counts_in_indexes(large: _Large) -> None:
    steps = _details(large.plan_of("AS pending", lambda: large.ledger.open_parts.on([REF])))
    assert "SCAN slices" not in steps
    assert steps.count("USING COVERING INDEX slices_job (job_id=? AND ref=? AND state=?)") == 2
    assert steps.count("B-TREE") == 1, "only where everything has to wait"


def test_a_heartbeat_reads_only_its_workers_slices(large: _Large) -> None:
    steps = _details(large.plan_of("UPDATE slices", lambda: large.ledger.workers.heartbeat("ann", ["job.0.1"])))
    assert steps.startswith("SEARCH slices USING INDEX slices_processing (worker_id=?)")


def test_a_sweep_reads_only_claimed_slices(large: _Large) -> None:
    steps = _details(large.plan_of("workers.id = slices.worker_id", large.ledger.sweep))
    assert "SCAN slices USING INDEX slices_processing" in steps


def test_marks_of_jobs_are_looked_up_in_indexes(large: _Large) -> None:
    steps = _details(large.plan_of("UNION", lambda: large.ledger.jobs.marks(20)))
    assert "SEARCH jobs USING INDEX jobs_state (state=?)" in steps
    assert "SCAN jobs USING COVERING INDEX jobs_created" in steps
    assert "slices" not in steps


def test_forgetting_looks_at_old_jobs_only(large: _Large) -> None:
    steps = _details(large.plan_of("ORDER BY jobs.created_at, jobs.id", lambda: large.ledger.retention.forget(0)))
    assert "SEARCH jobs USING INDEX jobs_created (created_at<?)" in steps
    assert "B-TREE" not in steps, "the index gives the order; nothing is sorted"
    assert "SCAN" not in steps
