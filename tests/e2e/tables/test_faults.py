"""A crash between any two writes of ledger and target, while tables are indexed: the next run mends it, and who
reads at that time finds what was there, or what is to be there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.planning.context import Context
from tests.doubles.clock import VirtualClock
from tests.doubles.through import replaced

from .quick import Crash, Fault, QuickShop, slice_by_slice

#: What a crash is put before and after: calls that change something, of a run that works on a job.
WRITES = {
    *(
        "leases.acquire",
        "parts.adopt",
        "parts.begin_finish",
        "jobs.begin",
        "slices.claim",
        "slices.complete",
        "parts.finish",
        "jobs.leave",
    ),
    *("instances.new", "parts.plan", "jobs.start", "leases.transfer"),
    *("target.commit", "target.create", "target.fence", "target.promote", "target.sweep"),
}
#: The first of these is in place, the others are staged.
TICKETS, PEOPLE = "Ticket@1/2", "Person"


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.edit("slices: 3", "slices: 2")
    made.edit("deleted: gone\n    node: {label: Person", "deleted: gone\n    slices: 2\n    node: {label: Person")
    made.fill(people=12, tickets=24)
    return made


def build(shop: QuickShop) -> None:
    shop.run("Person", "Ticket")


def changes(shop: QuickShop) -> None:
    """Of each kind: changed, new, deleted, deleted for good; one moves here, and one gets another edge."""
    shop.put("people", id=1, name="changed")
    shop.put("people", id=50, name="new")
    shop.put("people", id=2, gone=True)
    shop.put("tickets", id=2, title="changed", author=5)
    shop.put("tickets", id=50, path="1/2/1/", title="new", author=1)
    shop.put("tickets", id=4, gone=True)
    shop.put("tickets", id=5, path="1/2/9/")
    shop.save()


def lost(shop: QuickShop) -> None:
    changes(shop)
    shop.remove("people", 3)
    shop.remove("tickets", 6)
    shop.save()


def nothing(shop: QuickShop) -> None:
    return


JOBS: dict[str, tuple[str, Callable[[QuickShop], None], Callable[[QuickShop], None], dict[str, Any]]] = {
    "first build of a namespace": (TICKETS, nothing, nothing, {}),
    "refresh of a namespace": (TICKETS, build, changes, {}),
    "rebuild of a namespace": (TICKETS, build, lost, {"full_refresh": True}),
    "staged build": (PEOPLE, nothing, nothing, {}),
    "refresh of a whole": (PEOPLE, build, changes, {}),
    "staged rebuild": (PEOPLE, build, lost, {"full_refresh": True}),
}


#: In place and staged, with all that can happen in either; the others are run by `make soak`.
OFTEN = ("rebuild of a namespace", "refresh of a whole")


@pytest.mark.proof
@pytest.mark.parametrize(
    "job", [each if each in OFTEN else pytest.param(each, marks=pytest.mark.long) for each in JOBS]
)
def test_a_crash_between_any_two_writes_loses_and_doubles_nothing(shop: QuickShop, tmp_path: Path, job: str) -> None:
    ref, prepare, change, options = JOBS[job]
    prepare(shop)
    served = stored(shop, ref)
    change(shop)
    clean = tmp_path / "clean"
    shutil.copytree(shop.root, clean)
    now = shop.clock.now()
    crashed: list[str] = []
    fault = Fault(1, counts=WRITES.__contains__)
    while True:
        shutil.rmtree(shop.root)
        shutil.copytree(clean, shop.root)
        shop.clock = VirtualClock(now)
        try:
            run_with(fault, shop, ref, options)
        except Crash:
            crashed.append(fault.crashed_in)
        else:  # Past the last write: once more, with a crash after that.
            fault = Fault(fault.at - 1, after=True, counts=WRITES.__contains__)
            continue
        # Nothing of the dead process runs on: a clock of its own.
        shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)
        where = f"{job}: crash {'after' if fault.after else 'before'} write {fault.at}, {fault.crashed_in}"
        readable(shop, ref, served, where)
        mend_and_check(shop, ref, options, where)
        if fault.after:
            break
        fault = Fault(fault.at + 1, counts=WRITES.__contains__)
    # The sweep really met what it is about.
    always = {"leases.acquire", "parts.plan", "slices.claim", "slices.complete", "parts.begin_finish", "parts.finish"}
    assert always | {"target.fence", "target.commit"} <= set(crashed)
    assert ("target.promote" in crashed) == (job not in ("refresh of a namespace", "rebuild of a namespace"))
    assert ("target.sweep" in crashed) == ("build of a namespace" in job)


Tables = dict[str, list[dict[str, Any]]]


def run_with(fault: Fault, shop: QuickShop, ref: str, options: dict[str, Any]) -> None:
    def context(context: Context) -> Context:
        return slice_by_slice(fault.context(context))

    shop.run(ref, setups=fault.target, around=context, **options)


def stored(shop: QuickShop, ref: str) -> Tables:
    """What a reader finds of the partition, by kind."""
    name, _, scope = ref.partition("@")
    return {kind: _within(shop.stored(name, kind), scope) for entity, kind in shop.expected() if entity == name}


def truth(shop: QuickShop, ref: str) -> Tables:
    name, _, scope = ref.partition("@")
    return {kind: _within(rows, scope) for (entity, kind), rows in shop.expected().items() if entity == name}


def _within(rows: list[dict[str, Any]], scope: str) -> list[dict[str, Any]]:
    found = [row for row in rows if not scope or row["path"].startswith(f"{scope}/")]
    return sorted(found, key=lambda row: int(row["id"]))


def readable(shop: QuickShop, ref: str, before: Tables, where: str) -> None:
    """What was there, or what is to be there: of an index that is built beside all of one, else row by row."""
    now, after = stored(shop, ref), truth(shop, ref)
    if not any(before.values()):
        return  # Nothing was promised yet.
    if ref == PEOPLE and where.startswith("staged rebuild"):
        assert now in (before, after), where
    for kind, rows in now.items():
        assert all(row in before[kind] or row in after[kind] for row in rows), where
        ids = [row["id"] for row in rows]
        assert len(set(ids)) == len(ids), where
        stays = {row["id"] for row in before[kind]} & {row["id"] for row in after[kind]}
        assert stays <= set(ids), where


def mend_and_check(shop: QuickShop, ref: str, options: dict[str, Any], where: str) -> None:
    result = shop.run(ref)[ref]
    if options and result.plan.kind is not Kind.RESUME and stored(shop, ref) != truth(shop, ref):
        # It was not known yet that a rebuild was wanted.
        assert result.plan.kind in (Kind.NOTHING, Kind.REFRESH), where
        result = shop.run(ref, **options)[ref]
    assert stored(shop, ref) == truth(shop, ref), where
    assert shop.run(ref)[ref].plan.kind is Kind.NOTHING, where
    if result.state is None:
        return  # The crash came after all was done.
    assert result.state is JobState.COMPLETED, where
    assert result.counts.balanced, where
    if result.plan.kind in (Kind.FIRST_BUILD, Kind.REBUILD):
        assert result.counts.written == len(truth(shop, ref)[""]), where


@pytest.mark.parametrize("slices", [2, 3, 4])
def test_a_target_that_refused_all_waves_leaves_no_trace_once_it_is_mended(shop: QuickShop, slices: int) -> None:
    shop.edit("slices: 2", f"slices: {slices}")

    def refuse(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the disk is full")

    with pytest.raises(UserError, match="the disk is full"):
        shop.run(TICKETS, setups=lambda setup: replace(setup, target=replaced(setup.target, {"commit": refuse})))
    mended = shop.run(TICKETS)
    assert (mended[TICKETS].state, mended[TICKETS].promoted) == (JobState.COMPLETED, True)
