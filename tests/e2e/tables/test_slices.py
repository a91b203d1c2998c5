"""How rows become slices: whatever the keys are, the live ranges hold each row once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.domain.cuts import Bin
from instep.domain.keys import INT64_MAX, INT64_MIN, Key, key_of
from instep.domain.rows import Histogram, RowColumns, RowSlice, Selection, decode_row_slice
from instep.domain.seen import Look
from instep.domain.settings import NO_SETTINGS
from instep.entities.plan_request import Found, Kind, PlanOptions, PlanRequest
from instep.entities.tables.changes import find_rows
from instep.entities.tables.setup import TableSetup

from .quick import QuickShop

#: Keys of each kind, the least and the greatest among them.
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(INT64_MIN, INT64_MAX) | st.sampled_from([INT64_MIN, INT64_MAX, 0]),
    "string": st.text(max_size=6) | st.sampled_from(["", "\U0001f600", "￿", "\U0010ffff", "a", "a "]),
    "timestamp": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC)),
    "date": st.dates(),
    "decimal": st.decimals(-(10**30), 10**30, places=4),
    "bytes": st.binary(max_size=5),
    "bool": st.booleans(),
}


@dataclass(frozen=True)
class Rows:
    """A `TableSource` of keys, each as often as it has rows."""

    keys: Sequence[Key]

    text = "rows"

    def changed(self, *_asked: Any) -> bool:
        return False

    def files(self) -> None:
        """It is no table of files."""

    def look(self, *_asked: Any, **_bounds: Any) -> Look:
        return Look(None, len(self.keys), len(self.keys), "")

    def without_watermark(self, spark: Any, rows: RowColumns, selection: Selection) -> int:
        return 0

    def histogram(
        self, spark: Any, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        at = len(self.keys[0]) - len(columns) if self.keys else 0
        ordered = sorted(key.suffix(at) if at else key for key in self.keys)
        return Histogram(len(ordered), [Bin(key, len(list(same))) for key, same in groupby(ordered)])

    def extremes(self, spark: Any, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        return (min(self.keys), max(self.keys)) if self.keys else None


@dataclass(frozen=True)
class _Ledger:
    """A ledger without checkpoints."""

    checkpoints = SimpleNamespace(of_entity=lambda _: ())

    def now(self) -> int:
        return 1_800_000_000_000


@pytest.fixture(scope="module")
def setups(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableSetup]:
    shop = QuickShop(tmp_path_factory.mktemp("slices") / "shop", "type: lance, uri: index")
    shop.declare()
    shop.fill(people=1, tickets=1)
    return {name: shop.setup(name) for name in ("Person", "Ticket@1/2")}


def found(setup: TableSetup, keys: Sequence[Key], slices: int | None, *, even: bool = False) -> Found:
    slicing = replace(setup.slicing, slices=slices, even=even)
    asked = replace(setup, source=Rows(keys), slicing=slicing, declared=())  # type: ignore[arg-type]  # as much of one as is asked
    question = PlanRequest(
        ledger=_Ledger(),  # type: ignore[arg-type]  # it is asked for no more
        options=PlanOptions(),
        generation="",
        kind=Kind.FIRST_BUILD,
        why=[],
        checkpoint=None,
        current=None,
        unfinished=None,
        asked=lambda: False,
        settings=lambda: NO_SETTINGS,
        listing=None,
        indexes=lambda entity: set(),
    )
    return find_rows(asked, question)


def live(plan: Found) -> list[RowSlice]:
    slices = [decode_row_slice(each.payload) for each in plan.slices]
    assert None not in slices
    return [each for each in slices if each is not None]


def check_covers(plan: Found, keys: Sequence[Key]) -> None:
    """Open ends, no gap and no overlap: each key that is there, or may come, is in one slice."""
    slices = live(plan)
    assert [each.index for each in slices] == list(range(len(slices)))
    assert {each.count for each in slices} == {len(slices)}
    assert slices[0].range.lower is None
    assert slices[-1].range.upper is None
    for before, after in pairwise(slices):
        assert before.range.upper == after.range.lower is not None
    columns = len(slices[0].cut_by)
    for key in keys if columns else ():
        own = key.suffix(len(key) - columns) if columns < len(key) else key
        assert sum(each.range.holds(own) for each in slices) == 1
    units = sum(each.units for each in plan.slices)
    assert units >= len(keys) or (units == 0 and len(slices) == 1)  # for one slice nothing is counted


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), wanted=st.integers(1, 12))
def test_ranges_cover_all_keys_exactly(
    setups: dict[str, TableSetup], kind: str, data: st.DataObject, wanted: int
) -> None:
    values = data.draw(st.lists(KEYS[kind], min_size=1, max_size=40))
    keys = [key_of(each) for each in values]
    plan = found(setups["Person"], keys, wanted)
    others = [key_of(each) for each in data.draw(st.lists(KEYS[kind], max_size=10))]
    check_covers(plan, [*keys])
    for each in others:
        slices = live(plan)
        assert len(slices) == 1 or sum(one.range.holds(each) for one in slices) == 1
    assert len(plan.slices) == min(wanted, len(set(keys)))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tenants=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=80),
    wanted=st.integers(1, 8),
)
def test_ranges_of_tenants_cover_all_keys_exactly(
    setups: dict[str, TableSetup], tenants: list[tuple[int, int]], wanted: int
) -> None:
    keys = [key_of(f"1/2/{tenant}/", number) for tenant, number in tenants]
    check_covers(found(setups["Ticket@1/2"], keys, wanted), keys)


@pytest.mark.parametrize("kind", ["int64", "timestamp", "date"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), wanted=st.integers(1, 12))
def test_even_ranges_cover_all_keys_exactly(
    setups: dict[str, TableSetup], kind: str, data: st.DataObject, wanted: int
) -> None:
    keys = [key_of(each) for each in data.draw(st.lists(KEYS[kind], min_size=1, max_size=20))]
    check_covers(found(setups["Person"], keys, wanted, even=True), keys)


def test_nothing_known_is_one_slice_of_everything(setups: dict[str, TableSetup]) -> None:
    for even in (False, True):
        check_covers(found(setups["Person"], [], 5, even=even), [])


def test_fewer_keys_than_slices_are_fewer_slices(setups: dict[str, TableSetup]) -> None:
    assert len(found(setups["Person"], [key_of(number % 3) for number in range(100)], 8).slices) == 3


def test_a_skewed_key_leaves_the_others_to_slices_of_their_own(setups: dict[str, TableSetup]) -> None:
    keys = [key_of(5)] * 990 + [key_of(number) for number in range(10)]
    plan = found(setups["Person"], keys, 4)
    check_covers(plan, keys)
    assert len(plan.slices) == 4
    assert max(each.units for each in plan.slices) <= 995


def test_a_dominant_tenant_is_cut_inside(setups: dict[str, TableSetup]) -> None:
    keys = [key_of("1/2/1/", number) for number in range(900)]
    keys += [key_of(f"1/2/{tenant}/", 10_000 + tenant) for tenant in range(2, 9)]
    plan = found(setups["Ticket@1/2"], keys, 4)
    check_covers(plan, keys)
    slices = live(plan)
    assert slices[0].cut_by == ("path", "id")
    assert max(each.units for each in plan.slices) <= 230


def test_a_column_of_few_values_is_warned_of(setups: dict[str, TableSetup]) -> None:
    plan = found(setups["Person"], [key_of(number % 2) for number in range(1_000)], 8)
    assert any("'id'" in why and "order" in why for why in plan.why)
