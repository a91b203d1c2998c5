"""Money: what jobs spend in a month, what waves reserve of it, and that the limit holds whoever dies."""

from __future__ import annotations

import threading
from collections.abc import Callable

from instep.domain.money import Bill, Granted, Spent, month_of
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import VirtualClock, register
from tests.contracts.ledger.fixtures import Fixtures

MONTH = 31 * 24 * 3_600_000


def _reserve(
    ledger: Ledger, wave: str, wanted: int, *, limit: int | None = 100, worker: str = "ann", job_id: str = "job"
) -> Granted:
    return ledger.spending.reserve("Document", job_id=job_id, worker_id=worker, wave=wave, wanted=wanted, limit=limit)


class Spending(Fixtures):
    def test_what_is_reserved_and_spent_is_never_more_than_the_limit(self, ledger: Ledger) -> None:
        register(ledger, "ann", "bob")
        month = month_of(ledger.now())
        assert _reserve(ledger, "w1", 60) == Granted(month, 60, False, 0, 0)
        assert _reserve(ledger, "w2", 60, worker="bob") == Granted(month, 40, True, 0, 60)
        ledger.spending.pay("w1", Bill(3, 20, 5), 25)
        assert _reserve(ledger, "w3", 60) == Granted(month, 35, True, 25, 40)
        ledger.spending.pay("w2", Bill(1, 40), 40)
        ledger.spending.pay("w3", Bill(1, 35), 35)
        assert _reserve(ledger, "w4", 1) == Granted(month, 0, True, 100, 0)
        assert ledger.spending.this_month("Document") == 100
        assert ledger.spending.of_jobs(["job", "other"]) == {"job": {"Document": Spent(5, 95, 100)}}

    def test_without_a_limit_all_that_is_wanted_is_reserved(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        assert _reserve(ledger, "w1", 10**15, limit=None).cost == 10**15

    def test_a_wave_is_reserved_for_and_paid_once(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        first = _reserve(ledger, "w1", 60)
        assert _reserve(ledger, "w1", 60) == first
        for _ in range(2):
            ledger.spending.pay("w1", Bill(1, 10), 10)
        assert ledger.spending.this_month("Document") == 10

    def test_a_wave_without_a_bill_has_cost_all_that_it_reserved(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        _reserve(ledger, "w1", 60)
        ledger.spending.pay("w1", None, 0)
        assert ledger.spending.of_jobs(["job"]) == {"job": {"Document": Spent(0, 0, 60)}}

    def test_what_a_dead_worker_has_reserved_is_spent(self, ledger: Ledger) -> None:
        register(ledger, "ann", "bob")
        _reserve(ledger, "w1", 60)
        assert _reserve(ledger, "w2", 60, worker="bob").held == 60
        ledger.workers.evict("ann")
        found = _reserve(ledger, "w3", 60, worker="bob")
        assert (found.spent, found.held, found.cost) == (100, 0, 0), "bob has no other wave any more, either"
        ledger.spending.pay("w1", Bill(1, 1), 1)
        assert ledger.spending.this_month("Document") == 100, "it came too late"

    def test_months_and_entities_have_budgets_of_their_own(self, ledger: Ledger, clock: VirtualClock) -> None:
        register(ledger, "ann", "bob")
        _reserve(ledger, "w1", 100)
        other = ledger.spending.reserve("Page", job_id="job", worker_id="bob", wave="w2", wanted=100, limit=100)
        assert (other.cost, other.held) == (100, 0)
        clock.advance(MONTH)
        assert ledger.spending.this_month("Document") == 0
        assert _reserve(ledger, "w3", 70, worker="bob").cost == 70
        ledger.spending.pay("w1", Bill(1, 100), 100)
        assert ledger.spending.this_month("Document") == 70, "it counts in the month in which it was reserved"
        assert ledger.spending.of_jobs(["job"])["job"]["Document"] == Spent(1, 100, 100)

    def test_workers_that_reserve_at_once_share_the_limit(self, ledger: Ledger, ledgers: Callable[[], Ledger]) -> None:
        workers = [f"w{number}" for number in range(4)]
        register(ledger, *workers)
        mine = {worker: ledgers() for worker in workers}
        granted: list[int] = []

        def spend(worker: str) -> None:
            for number in range(10):
                wave = f"{worker}.{number}"
                cost = _reserve(mine[worker], wave, 30, limit=500, worker=worker).cost
                granted.append(cost)
                mine[worker].spending.pay(wave, Bill(1, cost), cost)

        threads = [threading.Thread(target=spend, args=(worker,)) for worker in workers]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert (len(granted), sum(granted)) == (40, 500)
        assert ledger.spending.this_month("Document") == 500

    def test_a_batch_is_left_to_others_when_its_worker_is_gone_or_gives_it_up(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        register(ledger, "ann", "bob", "cleo")
        batches = ledger.embedding_batches

        def left(worker: str) -> list[tuple[str, str | None, int, bool]]:
            return [
                (each.key, each.batch_id, each.age, each.finished) for each in batches.left("Document", "m", worker)
            ]

        batches.intend("k1", "Document", "m", "ann")
        clock.advance(5)
        batches.intend("k2", "Document", "m", "bob")
        batches.intend("k3", "Document", "other", "ann")
        batches.submitted("k1", "batch_1")
        assert (left("ann"), left("bob"), left("cleo")) == ([("k1", "batch_1", 5, False)], [("k2", None, 0, False)], [])
        batches.release("bob")
        ledger.workers.evict("ann")
        assert left("cleo") == [("k1", "batch_1", 5, False), ("k2", None, 0, False)]
        batches.finish("k1", "cleo")
        assert left("bob")[0] == ("k1", "batch_1", 5, True), "another server may need what it gave"
        batches.forget("k2")
        batches.intend("k4", "Document", "m", "cleo")
        batches.finish("k4", "cleo")
        assert left("cleo") == [("k1", "batch_1", 5, True)]
        clock.advance(MONTH)
        batches.intend("k5", "Document", "m", "cleo")
        assert [each[0] for each in left("cleo")] == ["k5"]

    def test_what_is_reserved_for_a_batch_stays_until_somebody_knows_its_cost(self, ledger: Ledger) -> None:
        register(ledger, "ann", "bob")
        ledger.embedding_batches.intend("k1", "Document", "m", "ann")
        _reserve(ledger, "k1", 60)
        assert _reserve(ledger, "w1", 1).held == 60, "ann has another wave"
        ledger.workers.evict("ann")
        assert _reserve(ledger, "w2", 60, worker="bob").held == 60
        ledger.spending.pay("k1", Bill(1, 10), 10)
        found = _reserve(ledger, "w3", 60, worker="bob")
        assert (found.spent, found.held) == (10 + 1 + 39, 0)
