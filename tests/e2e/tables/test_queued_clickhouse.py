"""A queue in ClickHouse, and the rows beside it: whole numbers without a sign, by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.pending_queue import LARGEST_KEY
from instep.entities.plan_request import Kind, PlanOptions
from instep.entities.tables import pending_keys
from instep.entities.tables.setup import TableSetup
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.queues.open import open_queue
from instep.queues.queue_state import remember_reader
from instep.telemetry.progress import Silent
from tests.sources.tables.clickhouse_tables import ask
from tests.sources.tables.sessions import session

PROJECT = """
name: game
targets: {index: {type: lance, uri: index}}
queues:
  salts:
    on: chdb:///store
    key: match_id
    source: {table: history}
    covered_by: [{table: match_salts}]
entities:
  Match:
    source: {type: clickhouse, uri: store, table: history}
    key: match_id
    slice_rows: 1000
    changes: {queue: salts}
"""
#: Matches that lie apart, with others between them.
FIRST, APART, MATCHES = 31_247_321, 7, 2_500


@pytest.mark.spark
def test_pending_keys_go_from_clickhouse_to_the_index(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(PROJECT)
    (tmp_path / "store").mkdir()
    store = str(tmp_path / "store")
    ask(
        store,
        "CREATE TABLE history (match_id UInt64, mode String) ENGINE = MergeTree ORDER BY match_id",
        "CREATE TABLE match_salts (match_id UInt64) ENGINE = MergeTree ORDER BY match_id",
    )
    project = instep.load(tmp_path).project
    with closing(open_queue(project, "salts")) as queue:
        queue.create()
        remember_reader(queue, switched=True)
    ask(
        store,
        f"INSERT INTO history SELECT {FIRST} + number, 'Ranked' FROM numbers({APART * MATCHES})",
        f"INSERT INTO match_salts SELECT {FIRST} + number FROM numbers({APART * MATCHES}) WHERE number % {APART} != 0",
    )
    ask(store, f"INSERT INTO history VALUES (5, 'early'), ({LARGEST_KEY - 1}, 'late')")
    wanted = [5, *(FIRST + APART * number for number in range(MATCHES)), LARGEST_KEY - 1]
    with closing(Container(project, spark=session())) as container:
        assert given(container, wanted) == wanted
        first = run(container)
        assert (first.plan.kind, first.state, len(first.plan.slices)) == (Kind.FIRST_BUILD, JobState.COMPLETED, 3)
        assert (first.counts.read, first.counts.written) == (len(wanted), len(wanted))
        assert indexed(container) == wanted
        assert run(container).state is None


def setup_of(container: Container) -> TableSetup:
    (found,) = container.setups()
    assert isinstance(found, TableSetup)
    return found


def given(container: Container, keys: Sequence[int]) -> list[int]:
    """The rows that ClickHouse gives for these keys, without Spark."""
    setup = setup_of(container)
    selected = pending_keys.selection(setup, keys)
    batches = setup.source.picked(setup.rows, selected, lambda columns: [(columns["match_id"].column, "match_id")])  # type: ignore[attr-defined]  # the source is one of ClickHouse
    return sorted(int(key) for batch in batches for key in batch.column(0).to_pylist())


def run(container: Container) -> EntityResult:
    with closing(container.ledger()) as ledger:
        context = container.context(ledger, Silent())
        (found,) = run_entities(container.setups(), context, PlanOptions(), wait_seconds=0)
    return found


def indexed(container: Container, kind: Callable[[str], Any] = int) -> list[Any]:
    """The keys in the index, as what they are in the queue."""
    setup = setup_of(container)
    served = setup.target.served(setup.alias)
    assert served is not None
    found = setup.target.read(served, "").column(*setup.rows.key).to_pylist()
    return sorted(kind(str(key)) for key in found)
