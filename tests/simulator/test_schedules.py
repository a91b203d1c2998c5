"""Many schedules of the real service code: whatever goes wrong, nothing is lost, double or stale. `make soak` plays
very many more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from .ledgers import server_kept, sqlite_ledger
from .simulation import Product, Report, command, play

#: What must have happened now and then: where it did not, a schedule proves nothing about it.
SOMETIMES = (
    "takeovers",
    "refused by ledger",
    "refused by target",
    "unknown commits",
    "found committed",
    "lost",
    "plans lost",
    "late",
    "twice",
    "crash before",
    "crash after",
    "pause before",
    "pause after",
    "splits",
    "resumed parts",
    "sweeps that found something",
    "ledger out of reach",
    "target out of reach",
    "stop asked",
    # In so many schedules there was such an event.
    "instance.created",
    "instance.building",
    "instance.live",
    "instance.failed",
    "instance.refreshing",
    "instance.refreshed",
    "instance.refresh-failed",
    "instance.tainted",
    "instance.expired",
    "instance.served",
    "want.created",
    "want.canceled",
    "dependency.missed",
    "generation.promoted",
    # What was refused, and is not tried again.
    "held back",
)


def check(seeds: range, ledger: str, product: Product) -> Counter[str]:
    counters: Counter[str] = Counter()
    broken: list[Report] = []
    for seed in seeds:
        report = play(seed, product)
        counters.update(report.counters)
        if report.broken:
            broken.append(report)
    told = [f"seed {each.seed}: {'; '.join(each.broken)[:500]}\n  {command(each.seed, ledger)}" for each in broken]
    assert not broken, "\n".join(told[:10])
    return counters


#: More and more of them: always, when what they are about has changed, and in `make soak`.
MODEL = [
    range(60),
    pytest.param(range(60, 620), marks=pytest.mark.proof),
    *(pytest.param(range(first, first + 500), marks=pytest.mark.long) for first in range(620, 5_000, 500)),
]
#: The first with takeovers and refusals among them.
SQLITE = [
    range(8, 14),
    pytest.param(range(14, 31), marks=pytest.mark.proof),
    pytest.param(range(31, 56), marks=pytest.mark.long),
]


@pytest.mark.parametrize("seeds", MODEL)
def test_schedules_on_the_model(seeds: range) -> None:
    counters = check(seeds, "model", Product())
    few = len(seeds) < 500
    assert [each for each in SOMETIMES if not counters[each]] == [] or few
    assert counters["takeovers"]


def test_a_part_ends_with_several_documents_that_fail_each_time() -> None:
    """It never did when a streak of failed waves gave documents their attempts back."""
    check(range(1030, 1031), "model", Product())
    check(range(2611, 2612), "model", Product())


@pytest.mark.parametrize("seeds", SQLITE)
def test_schedules_on_sqlite(seeds: range) -> None:
    counters = check(seeds, "sqlite", Product(ledger=sqlite_ledger))
    assert counters["takeovers"]
    assert counters["refused by ledger"]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("postgresql", range(8, 14)),
        pytest.param("postgresql", range(14, 31), marks=pytest.mark.long),
        pytest.param("mariadb", range(25), marks=pytest.mark.long),
    ],
)
def test_schedules_on_servers(name: str, seeds: range) -> None:
    kept = server_kept(name)
    counters = check(seeds, name, kept.product)
    kept.ledger.close()
    assert counters["takeovers"]
    assert counters["refused by ledger"]


def test_a_seed_is_always_the_same_schedule() -> None:
    assert [play(seed) for seed in range(8)] == [play(seed) for seed in range(8)]


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(3))
def test_ledgers_give_the_same_schedule(seed: int) -> None:
    """The same history on SQLite as on the model, to the millisecond."""
    told: Callable[[Report], object] = lambda report: (report.trace, report.counters)  # noqa: E731  # said once
    assert told(play(seed, Product(ledger=sqlite_ledger))) == told(play(seed))
