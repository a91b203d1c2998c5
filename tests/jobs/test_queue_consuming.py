"""Consumers of a queue, on SQLite with its real triggers and a real ledger; the simulator plays very many more."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from instep.domain.key_leases import FIRST_PAUSE, LONGEST_PAUSE, MAX_BATCH, KeyLeaseState, Refusal
from instep.domain.pending_queue import KeyRange, QueueCover, QueueSource, QueueSpec
from instep.errors import UserError
from instep.ledger.key_leases import KeyFailure
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.queues.consumers import Ack, Answer, Effect, Given, Wanted, acknowledge, fail, next_keys, parked, unpark
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.engines.sqlite import SqlitePending
from instep.queues.queue_state import Filling, recall
from tests.contracts.ledger import VirtualClock
from tests.doubles.through import through

SPEC = QueueSpec(
    "salts",
    "match_id",
    QueueSource("matches", None, None),
    (QueueCover("salts", None, None),),
    KeyRange(0, 999_999),
    timedelta(0),
    True,
    None,
)
LEASE = timedelta(minutes=10)
DAY = LONGEST_PAUSE


@dataclass
class Site:
    """A queue, the tables that it stands for, and the ledger."""

    folder: Path
    store: PendingStore = field(init=False)
    ledger: Ledger = field(init=False)
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.ledger = open_ledger(f"sqlite:///{self.folder}/ledger.db", clock=self.clock)
        # It stays open, or each call of the queue would be the last to leave, and clear up.
        self._tables = sqlite3.connect(self.folder / "tables.db", isolation_level=None)
        self._sql("PRAGMA journal_mode = WAL")
        self._sql("CREATE TABLE matches (match_id INTEGER PRIMARY KEY)")
        self._sql("CREATE TABLE salts (match_id INTEGER PRIMARY KEY)")
        self.store = SqlitePending(self.folder / "tables.db", SPEC)
        self.store.create()

    def insert(self, *keys: int, into: str = "matches") -> None:
        self._sql(f"INSERT INTO {into} VALUES {', '.join(f'({key})' for key in keys)}")

    def cover(self, *keys: int) -> None:
        self.insert(*keys, into="salts")

    def uncover(self, key: int) -> None:
        self._sql(f"DELETE FROM salts WHERE match_id = {key}")

    def _sql(self, statement: str) -> None:
        self._tables.execute(statement)

    def close(self) -> None:
        self.ledger.close()
        self._tables.close()

    def take(self, limit: int = 10, holder: str | None = "ann", *, draw: float = 0.0, **more: Any) -> list[Given]:
        return next_keys(self.store, self.ledger, Wanted(limit, holder, LEASE, **more), draw)

    def acknowledge(self, *given: Given) -> list[Answer]:
        return acknowledge(self.store, self.ledger, [Ack(each.key, each.fence) for each in given])

    def fail(self, *given: Given) -> list[Answer]:
        return fail(self.store, self.ledger, [KeyFailure(each.key, each.fence, "no luck") for each in given])

    def park(self, *keys: int) -> None:
        for _ in range(12):
            fail(self.store, self.ledger, [KeyFailure(key, None, "poison") for key in keys])
            self.clock.advance(DAY)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def keys_of(found: list[Given]) -> list[int]:
    return [each.key for each in found]


# What is given.


def test_a_key_is_given_once_newest_first_until_it_is_acknowledged(site: Site) -> None:
    site.insert(*range(1, 8))
    mine, theirs = site.take(3), site.take(10, "bob")
    assert (keys_of(mine), keys_of(theirs)) == ([7, 6, 5], [4, 3, 2, 1])
    assert mine[0] == Given(7, fence=1, until=site.clock.now() + 600_000)
    assert site.take(10, "cid") == []
    assert {each.effect for each in site.acknowledge(*mine, *theirs)} == {Effect.ACKED}
    assert site.store.confirm(range(8)) == set()
    assert site.ledger.key_leases.count(SPEC.name) == {}


def test_a_key_that_is_dealt_with_between_its_reading_and_its_lease_is_not_given(site: Site) -> None:
    class Late(SqlitePending):
        def read(self, ask: Any) -> Any:
            found = super().read(ask)
            if 5 in [each.key for each in found]:
                site.cover(5)
            return found

    site.insert(4, 5, 6)
    site.store = Late(site.folder / "tables.db", SPEC)
    assert keys_of(site.take()) == [6, 4]
    assert site.ledger.key_leases.held(SPEC.name, [5]) == {}


def test_a_hundred_failing_keys_starve_no_fresh_key(site: Site) -> None:
    """They are the newest, and no time passes in which fresh keys could wait for anything."""
    poison = set(range(1_001, 1_101))

    def work(given: list[Given]) -> None:
        site.fail(*(each for each in given if each.key in poison))
        site.acknowledge(*(each for each in given if each.key not in poison))

    site.insert(*range(1, 101), *poison)
    for _ in range(5):
        work(site.take(50, draw=0.5))
    assert site.store.confirm(range(5_000)) == poison
    assert site.store.counts().offered == 0, "they left the path of fresh keys"
    for attempts in range(1, 12):
        site.clock.advance(DAY)
        site.insert(*range(2_000 + 100 * attempts, 2_050 + 100 * attempts))
        given = site.take(20)
        assert [each.attempts for each in given] == [0] * 18 + [attempts] * 2, "a tenth, after what is fresh"
        work(given + site.take(1_000))
    assert set(parked(site.store, site.ledger)) == poison


def test_one_at_a_time_every_tenth_is_a_retry_and_neither_starves(site: Site) -> None:
    site.insert(*range(1, 4))
    site.fail(*site.take(1))
    site.clock.advance(FIRST_PAUSE)
    assert keys_of(site.take(1, draw=0.89)) == [2]
    assert keys_of(site.take(1, draw=0.9)) == [3]
    assert keys_of(site.take(1, draw=0.9)) == [1], "none is due any more"
    site.clock.advance(3_600_000)
    assert keys_of(site.take(1, draw=0.0)) == [2], "its lease ran out once: that says little about it"
    assert keys_of(site.take(1, draw=0.0)) == [1]
    assert keys_of(site.take(1, draw=0.0)) == [3], "there is nothing else"


def test_reading_without_leases_leaves_no_trace_but_failures(site: Site) -> None:
    site.insert(1, 2, 3)
    assert site.take(2, None) == [Given(3), Given(2)] == site.take(2, None)
    assert site.ledger.key_leases.count(SPEC.name) == {}
    mine = site.take(1)
    assert keys_of(site.take(5, None)) == [2, 1]
    assert (
        [each.why for each in site.fail(Given(3))]
        == [str(Refusal.LEASED)]
        == [each.why for each in site.acknowledge(Given(3))]
    )
    assert [each.effect for each in site.fail(Given(2))] == [Effect.FAILED]
    assert [each.why for each in site.fail(Given(2))] == [str(Refusal.COUNTED)]
    assert [each.effect for each in site.acknowledge(Given(1), *mine)] == [Effect.ACKED] * 2
    assert site.take(5, None) == []
    site.clock.advance(FIRST_PAUSE)
    assert site.take(5, None) == [Given(2, attempts=1, error="no luck")]
    site.cover(2)
    assert site.take(5, None) == []
    assert site.ledger.key_leases.held(SPEC.name, [2]) == {}


def test_the_anti_join_is_read_with_leases_and_pauses_too(site: Site) -> None:
    site.insert(*range(1, 6))
    assert keys_of(site.take(2, legacy=True)) == [5, 4]
    site.fail(*site.take(1, legacy=True))
    assert keys_of(site.take(5, "bob", legacy=True)) == [2, 1]
    site.clock.advance(FIRST_PAUSE)
    assert keys_of(site.take(5, "bob", legacy=True)) == [3]


def test_batches_and_leases_are_bounded(site: Site) -> None:
    for wanted in (Wanted(0), Wanted(MAX_BATCH + 1), Wanted(1, "ann"), Wanted(1, "a" * 129, LEASE)):
        with pytest.raises(UserError):
            next_keys(site.store, site.ledger, wanted, 0.0)


# What consumers say.


def test_a_queue_ends_just_below_its_bound(site: Site) -> None:
    keys = (0, 1, 999_999, 1_000_000)
    said = [each.effect for each in site.acknowledge(*map(Given, keys))]
    assert said == [Effect.UNKNOWN, Effect.ACKED, Effect.ACKED, Effect.UNKNOWN]


def test_a_late_consumer_is_refused_key_by_key(site: Site) -> None:
    site.insert(1, 2)
    late = site.take()
    site.clock.advance(600_000)
    (taken,) = site.take(1, "bob")
    assert taken.key == 2
    outside = Given(5_000_000, fence=1)
    assert site.acknowledge(*late, outside, Given(3, fence=9)) == [
        Answer(2, Effect.REFUSED, str(Refusal.OVERTAKEN)),
        Answer(1, Effect.ACKED),
        Answer(5_000_000, Effect.UNKNOWN, str(Refusal.IMPOSSIBLE)),
        Answer(3, Effect.UNKNOWN, str(Refusal.UNKNOWN)),
    ]
    assert site.store.confirm([1, 2]) == {2}
    assert [each.effect for each in site.fail(*late, outside)] == [Effect.REFUSED, Effect.UNKNOWN, Effect.UNKNOWN]
    assert site.ledger.key_leases.held(SPEC.name, [1, 2])[2].fence == taken.fence
    assert [each.effect for each in site.acknowledge(taken)] == [Effect.ACKED]


def test_parked_keys_wait_for_a_word_unless_they_are_covered(site: Site) -> None:
    site.insert(1, 2, 3)
    site.park(1, 2, 3)
    assert site.take() == []
    site.cover(2)
    assert {key: each.attempts for key, each in parked(site.store, site.ledger).items()} == {1: 12, 3: 12}
    assert list(parked(site.store, site.ledger, after=1)) == [3]
    assert site.ledger.key_leases.held(SPEC.name, [2]) == {}
    assert unpark(site.store, site.ledger, [1, 2, 9]) == {1}
    site.uncover(2)
    (one,) = site.take(1, draw=0.9)
    assert (one.key, one.attempts) == (1, 12)
    answer = site.fail(one)[0]
    assert (answer.effect, answer.attempts, answer.due) == (Effect.FAILED, 13, site.clock.now() + FIRST_PAUSE)
    assert keys_of(site.take()) == [2], "as if it never had failed"


# Crashes.


class Crash(BaseException):
    """The process is gone."""


def mortal(inner: object, left: list[int]) -> Any:
    """Dies after so many calls, of all that share `left`, have had their effect."""

    def call(_: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return real(*args, **kwargs)

    return through(inner, call)


def _take(store: Any, ledger: Any, given: list[Given]) -> object:
    return next_keys(store, ledger, Wanted(4, "ann", LEASE), 1.0)


def _acknowledge(store: Any, ledger: Any, given: list[Given]) -> object:
    return acknowledge(store, ledger, [Ack(each.key, each.fence) for each in given])


def _fail(store: Any, ledger: Any, given: list[Given]) -> object:
    return fail(store, ledger, [KeyFailure(each.key, each.fence, "no luck") for each in given])


def _parked(store: Any, ledger: Any, given: list[Given]) -> object:
    return parked(store, ledger)


@pytest.mark.proof
@pytest.mark.parametrize("act", [_take, _acknowledge, _fail, _parked])
def test_a_crash_at_any_step_loses_nothing(act: Callable[[Any, Any, list[Given]], object], site: Site) -> None:
    """Keys are fresh, in hand for the first or second time, waiting, and due or parked though covered."""
    steps = 0
    while True:
        base = 100 * (steps + 1)
        site.insert(*range(base, base + 12))
        site.park(base, base + 1)
        failed = site.take(6)
        site.fail(*failed)
        assert len(site.take(1)) == 1, "and what waits is not offered any more"
        site.clock.advance(FIRST_PAUSE)
        given = site.take(3, draw=1.0)
        assert [each.attempts for each in given] == [0, 0, 1]
        site.fail(given[0])
        site.cover(base, failed[1].key)
        site.insert(base + 20, base + 21)
        left = [steps]
        try:
            act(mortal(site.store, left), mortal(site.ledger, left), given[1:])
        except Crash:
            steps += 1
        else:
            break
        finally:
            done = _finish(site)
            assert set(done) >= site.store.confirm(range(base)) == set()
    assert steps, "there is something that a process can die before"


def _finish(site: Site) -> list[int]:
    """A consumer without failures continues until nothing is left; returns its keys."""
    done: list[int] = []
    for _ in range(20):
        unpark(site.store, site.ledger, parked(site.store, site.ledger))
        given = site.take(500, "last")
        site.acknowledge(*given)
        done += keys_of(given)
        if not given and not site.ledger.key_leases.count(SPEC.name):
            break
        site.clock.advance(DAY)
    assert site.store.confirm(range(5_000)) == set(), "a key was lost"
    assert site.ledger.key_leases.count(SPEC.name).get(KeyLeaseState.LEASED) is None
    return done


def test_how_far_a_backfill_is_in_an_earlier_form_is_understood(site: Site) -> None:
    site.store.remember("backfill", json.dumps({"lowest": 1, "reached": 51, "below": 101, "keys": 50}))
    filling = recall(site.store).filling
    assert filling == Filling(0, 50, 100, 50)
    assert filling.share == 0.5
