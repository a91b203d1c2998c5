"""A key that is pending is offered, whatever ClickHouse merged or dropped of its rows, in whatever order they came."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instep.domain.pending_queue import covers, pending, register
from instep.queues.engines.clickhouse.tables import offered, spent

COVERS = 2
#: An offer and the registers of covers.
Row = tuple[int, ...]
Numbers = npt.NDArray[np.uint64]
NOTHING: Row = (0,) * (1 + COVERS)


def row(offer: int = 0, **registers: int) -> Row:
    return offer, *(registers.get(f"cover_{number}", 0) for number in range(COVERS))


def together(rows: list[Row]) -> Row:
    return tuple(map(max, *rows, NOTHING)) if rows else NOTHING


def holds(rule: Callable[[Numbers, list[Numbers]], Any], merged: Row) -> bool:
    """Whether a rule of many merged rows holds of this one."""
    offer, *registers = (np.array([each], np.uint64) for each in merged)
    return bool(rule(offer, registers)[0])


@dataclass
class Key:
    """Both tables' rows of one key, as inserts, merges, readers and clean-ups leave them."""

    seen: bool = False
    truth: Row = NOTHING
    offers: list[Row] = field(default_factory=list)
    seen_by_readers: list[Row] = field(default_factory=list)

    def arrive(self, cover: int | None, version: int, covered: bool) -> None:
        """The source offers under a version of its own; a cover under that of its event."""
        if cover is None:
            self.seen = True
            self.offers.append(row(register(version, covered=False)))
            return
        event = register(version, covered=covered)
        self.truth = together([self.truth, row(**{f"cover_{cover}": event})])
        self.offers.append(row(0 if covered else event, **{f"cover_{cover}": event}))

    def read(self) -> None:
        """What a reader finds covered, it withdraws some time later."""
        if any(map(covers, self.truth[1:])):
            self.seen_by_readers.append((0, *(each if covers(each) else 0 for each in self.truth[1:])))

    def withdraw(self) -> None:
        self.offers += self.seen_by_readers
        self.seen_by_readers = []

    def merge(self, some: slice) -> None:
        """Neighbouring parts become one; a merge drops what is spent."""
        self.offers[some] = [each for each in [together(self.offers[some])] if not holds(spent, each)]

    @property
    def pending(self) -> bool:
        return pending(seen=self.seen, registers=self.truth[1:])

    @property
    def offered(self) -> bool:
        merged = together(self.offers)
        return holds(offered, merged)


#: The last number says how many later events an event is older than: its insert took long.
ARRIVE = st.tuples(
    st.just("arrive"), st.sampled_from([None, *range(COVERS)]), st.booleans(), st.sampled_from([0, 0, 0, 1, 2])
)
MERGE = st.tuples(st.just("merge"), st.integers(0, 3), st.integers(2, 4), st.just(0))
READ, WITHDRAW = st.just(("read", 0, 0, 0)), st.just(("withdraw", 0, 0, 0))
STEPS = st.lists(st.one_of(ARRIVE, ARRIVE, ARRIVE, MERGE, READ, WITHDRAW), min_size=3, max_size=12)


@given(STEPS)
#: The row that stood above an old cover must not leave with what another cover made of it.
@example(
    [
        ("arrive", None, False, 0),
        ("arrive", 0, True, 0),
        ("arrive", 0, False, 0),
        ("arrive", 1, True, 0),
        ("merge", 2, 2, 0),
        ("arrive", 1, False, 0),
    ]
)
#: A reader found the key covered before an older event than the offer it saw took the cover back.
@example(
    [
        ("arrive", 0, True, 0),
        ("arrive", None, False, 0),
        ("read", 0, 0, 0),
        ("arrive", 0, False, 2),
        ("withdraw", 0, 0, 0),
    ]
)
@settings(max_examples=200)
def test_pending_keys_are_offered(steps: list[tuple[str, int | None, int, int]]) -> None:
    key = Key()
    for number, (step, first, second, late) in enumerate(steps):
        match step:
            case "arrive":
                key.arrive(first, 1000 + 100 * number - 120 * late, bool(second))
            case "merge":
                key.merge(slice(first, (first or 0) + second))
            case "read":
                key.read()
            case "withdraw":
                key.withdraw()
        assert key.offered or not key.pending, (key, steps)
