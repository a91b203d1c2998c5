"""Eight consumers at once, on a real PostgreSQL that has the queue and the ledger."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest

from instep import Ack, KeyFailure
from instep.domain.key_leases import KeyLeaseState
from instep.queues.consumers import Effect, Wanted, acknowledge, fail, next_keys
from tests.contracts.pending_tables import created
from tests.queues.postgres_tables import PostgresTables
from tests.servers.ledgers import LedgerDatabase, postgres_ledger

KEYS = 400


@pytest.fixture
def database() -> LedgerDatabase:
    database = postgres_ledger()
    database.empty()
    return database


def test_eight_consumers_share_no_key_and_leave_none(database: LedgerDatabase) -> None:
    """Of every five keys one fails, one is covered by what its consumer writes, and the others are acknowledged."""
    tables = PostgresTables("consumers")
    store = created(tables)
    tables.played(range(1, KEYS + 1))
    handed: list[Counter[int]] = [Counter() for _ in range(8)]
    gate = threading.Barrier(8)

    def consume(number: int) -> None:
        with closing(tables.open(store.spec)) as mine, closing(database.open()) as ledger:
            gate.wait()
            while given := next_keys(mine, ledger, Wanted(10, f"consumer {number}", timedelta(minutes=10)), 0.5):
                handed[number].update(each.key for each in given)
                bad = [KeyFailure(each.key, each.fence, "no luck") for each in given if each.key % 5 == 0]
                tables.cover(each.key for each in given if each.key % 5 == 1)
                done = [Ack(each.key, each.fence) for each in given if each.key % 5]
                answers = fail(mine, ledger, bad) + acknowledge(mine, ledger, done)
                assert {each.effect for each in answers} <= {Effect.ACKED, Effect.FAILED}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(consume, range(8)))
    assert sum(handed, Counter()) == Counter(range(1, KEYS + 1)), "each key once"
    assert sum(map(bool, handed)) > 1, "they were at it at once"
    assert store.confirm(range(1, KEYS + 1)) == set(range(5, KEYS + 1, 5))
    with closing(database.open()) as ledger:
        assert ledger.key_leases.count(store.spec.name).keys() == {KeyLeaseState.WAITING}
    store.close()
    tables.drop()
