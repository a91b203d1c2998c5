"""Transactions that do not see each other: whatever is pending when they are done is offered.

No writer ever waits or is refused because of the queue, so that every interleaving can be played in one thread,
one step after the other. All that transactions may do to a key is done at once, with a key for each combination.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import psycopg
import pytest

from instep.queues.engines.postgres import PostgresPending, capture
from tests.contracts.pending_tables import EVERYTHING, KEYS, read
from tests.queues.postgres_tables import PostgresTables

Writer: TypeAlias = psycopg.Connection[tuple[object, ...]]

#: What a transaction does to a key.
ACTS: Final = {
    "plays": "INSERT INTO history SELECT key, 'ranked', now(), 1 FROM unnest(%s::bigint[]) AS key",
    "covers": "INSERT INTO salts SELECT key, 'good' FROM unnest(%s::bigint[]) AS key",
    "uncovers": "DELETE FROM salts WHERE match_id = ANY(%s)",
    "spoils": "UPDATE players SET state = 'bad' WHERE match_id = ANY(%s)",
    "unplays": "DELETE FROM history WHERE match_id = ANY(%s)",
    "rests": "",
}

#: Two that take the same row away wait for each other, queue or not.
ALONE: Final = ("uncovers", "spoils", "unplays")

#: What is there before: a row of the source, of the one cover, of the other.
BEFORE: Final = list(itertools.product([False, True], repeat=3))

_numbers = itertools.count(1)


@pytest.fixture(params=["few rows", "many rows"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresTables]:
    """A statement is captured by its size: here all as if they had few, or many."""
    monkeypatch.setattr(capture, "_FEW", 0 if request.param == "many rows" else 1_000_000)
    made = PostgresTables(f"interleaved {next(_numbers)}")
    yield made
    made.drop()


def interleavings(transactions: int) -> list[tuple[int, ...]]:
    """Each number stands for the next step of that transaction: to act, then to end."""
    return sorted(set(itertools.permutations([each for each in range(transactions) for _ in range(2)])))


def demand_all_offered(
    tables: PostgresTables, isolation: Sequence[str], acts: Sequence[str], *, kept: bool = True
) -> None:
    store = tables.open(tables.spec())
    store.create()
    writers = [tables.connect(each) for each in isolation]
    for order in interleavings(len(writers)):
        for reading in (False, True):
            keys = _before(tables, acts, len(writers))
            _play(store, writers, order, keys, reading=reading, kept=kept)
            assert store.compare(KEYS).missing == (), (order, reading, keys)
            store.clean()
            assert store.compare(KEYS).surplus == (), (order, reading, keys)
            assert read(store) == store.anti_join(EVERYTHING)
            tables.run("TRUNCATE history, salts, players")
    for writer in writers:
        writer.close()


def _before(tables: PostgresTables, acts: Sequence[str], writers: int) -> dict[int, tuple[str, ...]]:
    """What each transaction will do to each key."""
    choices = [
        (before, each)
        for before in BEFORE
        for each in itertools.product(acts, repeat=writers)
        if all(each.count(alone) < 2 for alone in ALONE)
    ]
    for place, table in enumerate(("history", "salts", "players")):
        keys = [key for key, (before, _) in enumerate(choices, 1) if before[place]]
        tables.played(keys) if table == "history" else tables.cover(keys, by=table)
    return {key: each for key, (_, each) in enumerate(choices, 1)}


def _play(
    store: PostgresPending,
    writers: Sequence[Writer],
    order: Sequence[int],
    keys: dict[int, tuple[str, ...]],
    *,
    reading: bool,
    kept: bool,
) -> None:
    for writer in writers:
        # A transaction with one snapshot for all has it from here.
        writer.execute("SELECT FROM history LIMIT 1")
    acted: set[int] = set()
    for number in order:
        if number not in acted:
            _act(writers[number], {key: each[number] for key, each in keys.items()})
        elif kept or number:
            writers[number].commit()
        else:
            writers[number].rollback()
        acted.add(number)
        if reading:
            read(store)


def _act(writer: Writer, acts: dict[int, str]) -> None:
    writer.execute("SET LOCAL lock_timeout = '1s'")
    for act, statement in ACTS.items():
        if statement:
            writer.execute(statement, ([key for key, each in acts.items() if each == act],))


@pytest.mark.parametrize(
    "isolation",
    [
        ("read committed", "read committed"),
        ("repeatable read", "read committed"),
        pytest.param(("repeatable read", "repeatable read"), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_keys_left_pending_by_two_transactions_are_offered(tables: PostgresTables, isolation: tuple[str, str]) -> None:
    demand_all_offered(tables, isolation, list(ACTS))


def test_a_rollback_leaves_pending_keys_unchanged(tables: PostgresTables) -> None:
    demand_all_offered(tables, ["read committed"] * 2, list(ACTS), kept=False)


@pytest.mark.long
def test_keys_left_pending_by_three_transactions_are_offered(tables: PostgresTables) -> None:
    demand_all_offered(tables, ["read committed"] * 3, ["plays", "covers", "uncovers", "spoils"])
