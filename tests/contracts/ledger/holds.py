"""Keys of queues in the hands of consumers: leases, failures, parked keys."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from instep.domain.key_leases import ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE, RAN_OUT, KeyLease, KeyLeaseState, Refusal
from instep.domain.pending_queue import LARGEST_KEY, MAX_TEXT, QueueKey
from instep.ledger.key_lease_rows import KeyLeaseCount
from instep.ledger.key_leases import KeyFailure, Leased
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import START, VirtualClock
from tests.contracts.ledger.fixtures import Fixtures

QUEUE = "salts"
MINUTE = 60_000


def _lease(ledger: Ledger, keys: list[int], holder: str = "ann", *, retries: bool = False) -> Leased:
    return ledger.key_leases.lease(QUEUE, keys, holder, lasting=MINUTE, retries=retries)


def _due(ledger: Ledger, limit: int = 10, holder: str = "bob") -> dict[int, KeyLease]:
    return dict(_lease(ledger, list(ledger.key_leases.due(QUEUE, limit)), holder, retries=True).leased)


def _fail(ledger: Ledger, key: QueueKey, fence: int | None, error: str = "no luck") -> KeyLease | Refusal:
    return ledger.key_leases.fail(QUEUE, [KeyFailure(key, fence, error)])[key]


def _park(ledger: Ledger, clock: VirtualClock, key: QueueKey) -> None:
    for _ in range(ATTEMPTS):
        assert isinstance(_fail(ledger, key, None), KeyLease)
        clock.advance(LONGEST_PAUSE)


class HeldKeys(Fixtures):
    # Leases.

    def test_a_lease_keeps_keys_from_others_and_names_its_holder(self, ledger: Ledger, clock: VirtualClock) -> None:
        mine = KeyLease(1, "ann", START + MINUTE, 0, START)
        assert _lease(ledger, [7, 5, LARGEST_KEY]) == Leased({7: mine, 5: mine, LARGEST_KEY: mine}, {})
        assert list(_lease(ledger, [9, 1], "cid").leased) == [9, 1], "in the order in which they were asked for"
        clock.advance(1)
        theirs = KeyLease(3, "bob", START + 1 + MINUTE, 0, START + 1)
        assert _lease(ledger, [5, 6], "bob") == Leased({6: theirs}, {5: mine})
        assert _lease(ledger, [5], "ann").leased == {}, "its holder has it already"
        assert ledger.key_leases.held(QUEUE, [4, 5, 6]) == {5: mine, 6: theirs}
        assert ledger.key_leases.lease("other", [5], "bob", lasting=1).leased.keys() == {5}

    def test_consumers_share_no_key_while_leases_hold(self, ledger: Ledger, ledgers: Callable[[], Ledger]) -> None:
        """All ask for the same keys, each in an order of its own, of a queue that no ledger knows yet."""
        keys = range(120)
        gate = threading.Barrier(8)
        had: list[list[int]] = [[] for _ in range(8)]

        def work(number: int) -> None:
            mine = ledgers()
            gate.wait()
            for turn in range(0, 120, 10):
                asked = [(turn + each * (number * 2 + 1)) % 120 for each in range(12)]
                taken = mine.key_leases.lease(QUEUE, asked, f"consumer {number}", lasting=MINUTE).leased
                had[number] += taken
                for key, hold in list(taken.items())[::3]:
                    assert mine.key_leases.extend(QUEUE, {key: hold.fence}, lasting=MINUTE) == {}

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        every = sorted(key for some in had for key in some)
        assert every == list(keys)
        held = ledger.key_leases.held(QUEUE, keys)
        assert {key: each.holder for key, each in held.items()} == {
            key: f"consumer {number}" for number, some in enumerate(had) for key in some
        }

    def test_a_lease_that_ran_out_is_a_failed_attempt_and_the_late_holder_is_refused(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        _lease(ledger, [5, 6])
        clock.advance(MINUTE - 1)
        assert _lease(ledger, [5], "bob").leased == {}
        clock.advance(1)
        taken = _lease(ledger, [5], "bob").leased[5]
        assert taken == KeyLease(2, "bob", START + 2 * MINUTE, 1, START + MINUTE, RAN_OUT)
        assert ledger.key_leases.extend(QUEUE, {5: 1, 6: 1}, lasting=MINUTE) == {5: Refusal.OVERTAKEN}, (
            "6 was not taken"
        )
        assert _fail(ledger, 5, 1) is Refusal.OVERTAKEN
        assert ledger.key_leases.forget(QUEUE, {5: 1, 6: 1}) == {5: Refusal.OVERTAKEN}
        assert ledger.key_leases.release(QUEUE, {5: 1}) == {5: Refusal.OVERTAKEN}
        assert ledger.key_leases.held(QUEUE, [5, 6]) == {5: taken}

    def test_a_fence_that_was_never_given_is_not_said_to_be_overtaken(self, ledger: Ledger) -> None:
        taken = _lease(ledger, [5]).leased[5]
        assert ledger.key_leases.forget(QUEUE, {5: 99}) == {5: Refusal.UNGIVEN}
        assert ledger.key_leases.held(QUEUE, [5]) == {5: taken}

    def test_a_key_whose_lease_ran_out_twice_is_a_retry(self, ledger: Ledger, clock: VirtualClock) -> None:
        for _ in range(2):
            _lease(ledger, [5])
            clock.advance(MINUTE)
        assert _lease(ledger, [5]).leased == {}
        assert _lease(ledger, [5], retries=True).leased[5].attempts == 2
        clock.advance(MINUTE)
        assert _due(ledger)[5].attempts == 3

    def test_a_fence_never_comes_back(self, ledger: Ledger) -> None:
        """Who had the key before it was acknowledged cannot speak for who has it now, even under the same name."""
        _lease(ledger, [5])
        assert ledger.key_leases.forget(QUEUE, {5: 1}) == {}
        assert ledger.key_leases.held(QUEUE, [5]) == {}
        assert _lease(ledger, [5]).leased[5].fence == 2
        assert ledger.key_leases.forget(QUEUE, {5: 1}) == {5: Refusal.OVERTAKEN}
        ledger.key_leases.drop(QUEUE)
        assert ledger.key_leases.forget(QUEUE, {5: 2}) == {5: Refusal.UNKNOWN}
        assert _lease(ledger, [5]).leased[5].fence == 3

    def test_released_keys_are_free_at_once_and_no_attempt_is_spent(self, ledger: Ledger, clock: VirtualClock) -> None:
        _fail(ledger, 5, None)
        clock.advance(FIRST_PAUSE)
        fences = {key: each.fence for key, each in (_lease(ledger, [4, 5], retries=True).leased).items()}
        assert ledger.key_leases.release(QUEUE, fences) == {}
        assert ledger.key_leases.held(QUEUE, [4, 5]).keys() == {5}, "one that failed stays a retry"
        assert _due(ledger)[5].attempts == 1
        assert _lease(ledger, [4]).leased[4].attempts == 0

    def test_keys_may_be_any_text_and_are_told_apart_from_numbers(self, ledger: Ledger, clock: VirtualClock) -> None:
        texts = ["", " ", "'", '"; --', "7", "A", "a", "a ", "a\n", "b" * MAX_TEXT, "\uffff", "\U0001f600"]
        for key in (*texts, 7, -1):
            _park(ledger, clock, key)
        parked = ledger.key_leases.parked(QUEUE)
        assert list(parked) == [-1, 7, *sorted(texts)], "numbers first, then texts by their bytes"
        assert list(ledger.key_leases.parked(QUEUE, after="7", limit=2)) == ["A", "a"]
        assert ledger.key_leases.held(QUEUE, ["7", "x"]) == {"7": parked["7"]}
        assert ledger.key_leases.unpark(QUEUE, ["7"]) == {"7"}
        assert list(ledger.key_leases.lease(QUEUE, texts, "ann", lasting=MINUTE, retries=True).leased) == ["7"]

    # Failures.

    def test_pauses_double_up_to_a_day_and_the_twelfth_failure_parks(self, ledger: Ledger, clock: VirtualClock) -> None:
        fence, pauses = _lease(ledger, [5]).leased[5].fence, []
        for attempt in range(1, ATTEMPTS):
            failed = _fail(ledger, 5, fence, f"error {attempt}")
            assert isinstance(failed, KeyLease)
            assert failed.due is not None
            pauses.append(failed.due - ledger.now())
            clock.advance(pauses[-1] - 1)
            assert _due(ledger) == {}
            assert _lease(ledger, [5], retries=True).leased == {}
            clock.advance(1)
            assert list(ledger.key_leases.due(QUEUE, 10)) == [5]
            fence = _due(ledger)[5].fence
        assert [each // MINUTE for each in pauses] == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]
        parked = _fail(ledger, 5, fence, "x" * 5_000)
        assert parked == KeyLease(fence, None, None, ATTEMPTS, ledger.now(), "x" * 2_000)
        clock.advance(10 * LONGEST_PAUSE)
        assert _due(ledger) == {}
        assert ledger.key_leases.parked(QUEUE) == {5: parked}

    def test_a_failure_counts_once(self, ledger: Ledger, clock: VirtualClock) -> None:
        fence = _lease(ledger, [5, 6]).leased[5].fence
        assert _fail(ledger, 5, None) is Refusal.LEASED
        assert isinstance(_fail(ledger, 5, fence), KeyLease)
        assert _fail(ledger, 5, fence) is Refusal.COUNTED
        assert _fail(ledger, 5, None) is Refusal.COUNTED
        assert _fail(ledger, 7, fence) is Refusal.UNKNOWN
        clock.advance(FIRST_PAUSE)
        assert isinstance(_fail(ledger, 5, None), KeyLease), "tried again by one who reads without leases"
        assert ledger.key_leases.held(QUEUE, [5])[5].attempts == 2

    def test_a_lease_that_runs_out_for_the_last_time_parks(self, ledger: Ledger, clock: VirtualClock) -> None:
        _lease(ledger, [5, 6])
        for _ in range(ATTEMPTS - 1):
            clock.advance(MINUTE)
            assert 5 in _due(ledger)
        clock.advance(MINUTE)
        assert _due(ledger) == {}
        assert {key: each.error for key, each in ledger.key_leases.parked(QUEUE).items()} == {5: RAN_OUT, 6: RAN_OUT}

    def test_the_key_due_first_is_tried_first(self, ledger: Ledger, clock: VirtualClock) -> None:
        for key in (3, 1, 2):
            _fail(ledger, key, None)
            clock.advance(1)
        clock.advance(FIRST_PAUSE)
        assert list(_due(ledger, 2)) == [3, 1]
        assert list(_due(ledger, 2)) == [2]

    def test_a_released_parked_key_has_all_its_attempts_again(self, ledger: Ledger, clock: VirtualClock) -> None:
        for key in (1, 5, 9):
            _park(ledger, clock, key)
        assert list(ledger.key_leases.parked(QUEUE, limit=2)) == [1, 5]
        assert list(ledger.key_leases.parked(QUEUE, after=5)) == [9]
        assert ledger.key_leases.unpark(QUEUE, [5, 6]) == {5}
        fence = _due(ledger)[5].fence
        failed = _fail(ledger, 5, fence)
        assert isinstance(failed, KeyLease)
        assert (failed.attempts, failed.due) == (ATTEMPTS + 1, ledger.now() + FIRST_PAUSE)

    def test_keys_are_counted_by_state(self, ledger: Ledger, clock: VirtualClock) -> None:
        assert ledger.key_leases.count(QUEUE) == {}
        _park(ledger, clock, 1)
        parked = ledger.key_leases.parked(QUEUE)[1].since
        _fail(ledger, 2, None)
        begun = ledger.now()
        clock.advance(FIRST_PAUSE)
        _fail(ledger, 3, None)
        _lease(ledger, [4, 5])
        assert ledger.key_leases.count(QUEUE) == {
            KeyLeaseState.PARKED: KeyLeaseCount(1, 0, parked),
            KeyLeaseState.WAITING: KeyLeaseCount(2, 1, begun),
            KeyLeaseState.LEASED: KeyLeaseCount(2, 0, begun + FIRST_PAUSE),
        }
        clock.advance(MINUTE)
        assert ledger.key_leases.count(QUEUE)[KeyLeaseState.LEASED].due == 2

    # A job's.

    def test_a_job_holds_many_keys_at_once(self, ledger: Ledger, clock: VirtualClock) -> None:
        keys = [key * 3 for key in range(4_000)]
        _fail(ledger, 6, None)
        clock.advance(FIRST_PAUSE)
        leased = _lease(ledger, keys, "job", retries=True).leased
        assert len(leased) == 4_000
        assert list(ledger.key_leases.held_by(QUEUE, "job", limit=3)) == [0, 3, 6]
        assert ledger.key_leases.held_by(QUEUE, "another") == {}
        clock.advance(MINUTE)
        _lease(ledger, [3], "bob")
        assert ledger.key_leases.extend_held_by(QUEUE, "job", lasting=MINUTE) == 3_999, "keys that were not taken since"
        assert _due(ledger) == {}
        fences = {key: each.fence for key, each in ledger.key_leases.held_by(QUEUE, "job").items() if key < 6_000}
        assert ledger.key_leases.forget(QUEUE, {3: leased[3].fence, **fences}) == {3: Refusal.OVERTAKEN}
        assert ledger.key_leases.release_held_by(QUEUE, "job") == 2_000
        assert ledger.key_leases.held(QUEUE, keys).keys() == {3}
