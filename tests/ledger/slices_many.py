"""A running job with many slices, stored without planning them one by one; and how a claim's statements are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from tests.contracts.ledger import REF
from tests.ledger.statements import watching
from tests.servers.ledgers import LedgerDatabase

MANY = 50_000


def store_slices(database: LedgerDatabase) -> None:
    """As many PENDING slices of the job `job`, which has a part on `REF`, after those that it has."""
    postgres = database.server.kind == "postgres"
    rank = "rank" if postgres else "`rank`"
    ordinals = (
        f"JSON_TABLE(CONCAT('[0', REPEAT(',0', {MANY - 1}), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"
    )
    numbers = f"generate_series(1, {MANY}) AS numbers (seq)" if postgres else ordinals
    database.execute(
        "INSERT INTO slices (id, job_id, ref, number, bucket, units, work, priority, state, attempts, fence,"
        f" {rank}, claimable_at) SELECT CONCAT('job.0.', 1000 + seq), 'job', '{REF}', 1000 + seq, 3, 2, 10, 40,"
        f" 'PENDING', 0, 0, 1000 + seq, 0 FROM {numbers}"
    )
    database.execute(
        "INSERT INTO slice_work (slice_id, lower_bound, upper_bound, payload)"
        " SELECT id, '', '', 'none' FROM slices WHERE number > 1000"
    )


def statements_of(engine: Engine, call: Callable[[], object]) -> list[tuple[str, Any]]:
    """What `call` sends about slices: statements and their parameters."""
    sent: list[tuple[str, Any]] = []

    def note(statement: str, parameters: Any) -> None:
        if "slices" in statement:
            sent.append((statement, parameters))

    with watching(engine, note):
        call()
    return sent
