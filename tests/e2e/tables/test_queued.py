"""A pending queue says what is indexed: exactly that, once, and acknowledged when it is durable; whatever dies when."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import instep
from instep.domain.jobs import JobState
from instep.domain.key_leases import ATTEMPTS, KeyLeaseState
from instep.domain.pending_queue import MAX_TEXT, KeyKind
from instep.entities.plan_request import Kind
from instep.entities.tables import change_queue
from instep.errors import UserError
from instep.planning.context import Context
from instep.queues.consumers import Wanted, next_keys, unpark
from instep.queues.queue_state import remember_reader
from tests.contracts.pending_texts import IN_ORDER
from tests.doubles.clock import VirtualClock
from tests.doubles.through import replaced

from .queued import POISON, QueuedShop, with_queue
from .quick import Crash, Fault, during

DAY = 24 * 60 * 60


@pytest.fixture(params=[KeyKind.INTEGER, KeyKind.TEXT])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> QueuedShop:
    made = QueuedShop(tmp_path / "shop", "type: lance, uri: index", kind=request.param)
    made.begin()
    return made


def test_only_pending_keys_are_indexed(shop: QueuedShop) -> None:
    shop.add(*range(10))
    shop.cover(3, 4)
    first = shop.run("Person")["Person"]
    assert (first.plan.kind, first.state, first.counts.written) == (Kind.FIRST_BUILD, JobState.COMPLETED, 8)
    assert shop.indexed() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert (shop.pending(), shop.held()) == ([], {})
    assert shop.step() is None
    shop.put("people", id=shop.key(5), name="changed without an event")
    shop.put("people", id=shop.key(12), gone=True)
    shop.add(11, 12, 13)
    shop.put("people", id=shop.key(12), gone=True)
    shop.remove("people", shop.key(13))
    shop.save()
    second = shop.run("Person")["Person"]
    assert (second.plan.kind, second.counts.read, second.counts.written, second.counts.deleted) == (
        Kind.REFRESH,
        2,
        1,
        1,
    )
    assert second.notes == ["1 key of the queue fresh had no row in the source, or went to other consumers"]
    (asked,) = shop.sources["Person"].asked
    assert [each.values for each in asked.keys] == [(shop.key(each),) for each in (11, 12, 13)]
    assert shop.indexed() == [0, 1, 2, 5, 6, 7, 8, 9, 11]
    assert {"changed without an event"}.isdisjoint(row["name"] for row in shop.stored("Person"))
    assert (shop.pending(), shop.held(), shop.step()) == ([], {}, None)
    assert [_writer(shop, str(shop.key(each))) for each in (9, 11)] == [first.job_id, second.job_id]


def _writer(shop: QueuedShop, key: str) -> str | None:
    found = instep.load(shop.root).why("Person", key)
    assert found.slice is not None
    return found.job.id if found.job else None


def test_a_row_that_fails_is_retried_later_and_parked_at_last(shop: QueuedShop) -> None:
    shop.add(1, 2, 3)
    shop.add(2, name=POISON)
    assert shop.step() is JobState.COMPLETED_WITH_ERRORS
    assert (shop.indexed(), shop.pending(), list(shop.held())) == ([1, 3], [2], [2])
    assert shop.step() is None  # It is not due yet.
    for _ in range(ATTEMPTS - 1):
        shop.clock.sleep(DAY)
        assert shop.step() is JobState.FAILED
    (hold,) = shop.held().values()
    assert (hold.state, hold.attempts) == (KeyLeaseState.PARKED, ATTEMPTS)
    assert "poison" in (hold.error or "")
    assert [(each.document_id, each.attempts) for each in shop.failures()] == [(str(shop.key(2)), ATTEMPTS)]
    shop.clock.sleep(DAY)
    assert shop.step() is None
    shop.add(2, name="mended")
    assert shop.step() is None
    with shop.store() as store, shop.asked() as ledger:
        assert unpark(store, ledger, [shop.key(2)]) == {shop.key(2)}
    assert shop.step() is JobState.COMPLETED
    assert (shop.indexed(), shop.pending(), shop.held(), shop.failures()) == ([1, 2, 3], [], {}, [])


def test_a_row_with_a_key_too_long_for_a_failure_list_goes_back_to_the_queue(tmp_path: Path) -> None:
    shop = QueuedShop(tmp_path / "shop", "type: lance, uri: index", kind=KeyKind.TEXT)
    shop.begin()
    long = IN_ORDER.index("x" * MAX_TEXT)
    shop.add(1, long)
    shop.add(long, name=POISON)
    assert shop.step() is JobState.COMPLETED_WITH_ERRORS
    assert (shop.indexed(), shop.pending(), list(shop.held())) == ([1], [long], [long])
    shop.clock.sleep(DAY)
    shop.add(long, name="mended")
    assert shop.step() is JobState.COMPLETED
    assert (shop.indexed(), shop.pending(), shop.held(), shop.failures()) == ([1, long], [], {}, [])


def test_a_job_takes_no_more_texts_than_its_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = QueuedShop(tmp_path / "shop", "type: lance, uri: index", kind=KeyKind.TEXT)
    shop.begin()
    monkeypatch.setattr(change_queue, "MOST_LETTERS", MAX_TEXT + 9)
    shop.add(*range(len(IN_ORDER)))
    result = shop.run("Person")["Person"]
    assert (result.state, result.counts.written) == (JobState.COMPLETED, len(IN_ORDER))
    assert (shop.indexed(), shop.pending(), shop.held()) == (list(range(len(IN_ORDER))), [], {})
    with shop.asked() as ledger:
        assert len(ledger.jobs.newest()) > 1


def test_long_texts_leave_room_for_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = QueuedShop(tmp_path / "shop", "type: lance, uri: index", kind=KeyKind.TEXT)
    shop.begin()
    shop.add(3, 4)
    shop.add(4, name=POISON)
    assert shop.step() is JobState.COMPLETED_WITH_ERRORS
    shop.clock.sleep(DAY)
    shop.add(*range(100, 130))
    shop.add(4, name="mended")
    monkeypatch.setattr(change_queue, "MOST_LETTERS", 40)
    first = shop.run("Person")["Person"].plan.found.counts
    assert (first["retried"], first["new"]) == (1, 7)
    assert (shop.indexed(), shop.held()) == ([3, 4, *range(100, 130)], {})


@pytest.mark.parametrize("kind", [KeyKind.TEXT, KeyKind.INTEGER])
def test_a_source_with_keys_of_another_type_is_refused_before_anything_is_leased(tmp_path: Path, kind: KeyKind) -> None:
    shop = QueuedShop(tmp_path / "shop", "type: lance, uri: index", kind=kind)
    shop.begin()
    shop.add(1, 2)
    shop.types["people"]["id"] = pa.int64() if kind is KeyKind.TEXT else pa.string()
    rows = shop.rows["people"]
    rows.clear()
    shop.put("people", id=1 if kind is KeyKind.TEXT else "1", name="one")
    shop.save()
    with pytest.raises(UserError, match=r"and keys of the queue fresh are (texts|whole numbers)"):
        shop.run("Person")
    assert (shop.pending(), shop.held()) == ([1, 2], {})


def test_keys_that_another_consumer_has_are_left_to_it(shop: QueuedShop) -> None:
    shop.add(*range(10))
    with shop.store() as store, shop.asked() as ledger:
        given = next_keys(store, ledger, Wanted(3, "other", timedelta(minutes=5)), draw=0)
    theirs = shop.numbers(each.key for each in given)
    assert shop.step() is JobState.COMPLETED
    assert shop.pending() == theirs
    assert set(shop.indexed()) == set(range(10)) - set(theirs)
    assert shop.step() is None
    shop.clock.sleep(6 * 60)
    assert shop.step() is JobState.COMPLETED
    assert (shop.indexed(), shop.pending()) == (list(range(10)), [])


def test_two_runs_at_once_index_no_key_twice(shop: QueuedShop) -> None:
    shop.add(1)
    shop.step()
    shop.add(*range(2, 12))
    others: list[Any] = []
    first = shop.run(
        "Person", around=lambda context: during(context, "slices.claim", lambda: others.append(shop.step()))
    )
    assert (first["Person"].state, others) == (JobState.COMPLETED, [JobState.COMPLETED])
    assert (shop.indexed(), shop.pending(), shop.written()) == (list(range(1, 12)), [], 11)


def test_a_run_continues_until_what_was_there_is_done(shop: QueuedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_queue, "MOST_KEYS", 4)
    shop.add(*range(10))
    coming: Iterator[int] = iter(range(100, 200))

    def arrives() -> None:
        shop.add(next(coming), next(coming), next(coming))

    def plan(real: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Whenever a job is stored three people come."""
        arrives()
        real(*args, **kwargs)

    def busy(context: Context) -> Context:
        return replace(context, ledger=replaced(context.ledger, {"parts.plan": plan}))

    result = shop.run("Person", around=busy)["Person"]
    assert result.state is JobState.COMPLETED
    assert result.counts.written == 12
    with shop.asked() as ledger:
        assert len(ledger.jobs.newest()) == 3
    shop.step()
    assert shop.pending() == []
    assert shop.indexed() == [*range(10), *range(100, 109)]


def test_a_stopped_run_gives_its_keys_back_and_resumes_with_the_free_ones(shop: QueuedShop) -> None:
    shop.add(1)
    shop.step()
    shop.add(*range(2, 8))

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.run("Person", around=lambda context: during(context, "slices.holds", ctrl_c))
    assert (shop.pending(), shop.held()) == (list(range(2, 8)), {})
    with shop.store() as store, shop.asked() as ledger:
        given = next_keys(store, ledger, Wanted(2, "other", timedelta(minutes=5)), draw=0)
    theirs = shop.numbers(each.key for each in given)
    result = shop.run("Person")["Person"]
    assert (result.plan.kind, result.state) == (Kind.RESUME, JobState.COMPLETED)
    assert (shop.pending(), shop.indexed()) == (theirs, [each for each in range(1, 8) if each not in theirs])


def test_a_stopped_job_gives_its_keys_back(shop: QueuedShop) -> None:
    shop.add(1)
    shop.step()
    shop.add(2, 3)

    def stop() -> None:
        with shop.asked() as ledger:
            ledger.jobs.request_stop(ledger.jobs.newest()[0].id, "asked to")

    with pytest.raises(UserError, match="was stopped"):
        shop.run("Person", around=lambda context: during(context, "slices.claim", stop))
    assert (shop.pending(), shop.held()) == ([2, 3], {})
    assert shop.step() is JobState.COMPLETED
    assert (shop.pending(), shop.indexed()) == ([], [1, 2, 3])


def test_a_first_build_that_is_not_served_acknowledges_nothing(shop: QueuedShop) -> None:
    shop.add(*range(6))
    for number in range(6):
        shop.rows["people"][("again", number)] = shop.rows["people"][(shop.key(number % 2),)]
    shop.save()
    assert shop.step() is JobState.FAILED
    assert (shop.pending(), shop.held(), shop.indexed()) == (list(range(6)), {}, [])
    for number in range(6):
        shop.remove("people", "again", number)
    shop.save()
    assert shop.step() is JobState.COMPLETED
    assert (shop.pending(), shop.held(), shop.indexed()) == ([], {}, list(range(6)))


def test_a_first_build_of_nothing_is_complete_and_empty(shop: QueuedShop) -> None:
    shop.add(1)
    shop.cover(1)
    assert shop.step() is JobState.COMPLETED
    assert (shop.indexed(), shop.step()) == ([], None)
    shop.add(2)
    assert shop.step() is JobState.COMPLETED
    assert (shop.indexed(), shop.pending()) == ([2], [])


def test_a_rebuild_reads_the_whole_table_and_keeps_pending_keys(shop: QueuedShop) -> None:
    shop.add(*range(5))
    shop.cover(4)
    first = shop.run("Person", full_refresh=True)["Person"]
    assert (first.plan.kind, first.counts.written, shop.pending()) == (Kind.FIRST_BUILD, 5, [0, 1, 2, 3])
    shop.step()
    shop.add(7)
    result = shop.run("Person", full_refresh=True)["Person"]
    assert (result.plan.kind, result.counts.written) == (Kind.REBUILD, 6)
    assert shop.pending() == [7]
    assert shop.step() is JobState.COMPLETED
    assert (shop.indexed(), shop.pending()) == ([0, 1, 2, 3, 4, 7], [])


def test_options_impossible_with_a_queue_are_refused(shop: QueuedShop) -> None:
    with pytest.raises(UserError, match="there are no generations"):
        shop.run("Person", generation="next")
    with shop.store() as store:
        remember_reader(store, switched=False)
    with pytest.raises(UserError, match="is not read from yet"):
        shop.run("Person")


#: What a crash is put before: what else a run writes is swept elsewhere.
WRITES = {
    *(
        "parts.plan",
        "slices.complete",
        "parts.finish",
        "key_leases.lease",
        "key_leases.forget",
        "key_leases.fail",
        "key_leases.release_held_by",
    ),
    *("target.commit", "queue.acknowledge"),
}


@pytest.mark.proof
@pytest.mark.parametrize("first", [False, True], ids=["refresh", "first build"])
def test_a_crash_between_any_two_writes_loses_nothing_and_indexes_nothing_again(
    shop: QueuedShop, tmp_path: Path, first: bool
) -> None:
    if not first:
        shop.add(1)
        shop.step()
    shop.add(*range(2, 7))
    shop.add(4, name=POISON)
    good = [2, 3, 5, 6] if first else [1, 2, 3, 5, 6]
    clean, now = tmp_path / "clean", shop.clock.now()
    shutil.copytree(shop.root, clean)
    crashed: set[str] = set()
    fault = Fault(1, counts=WRITES.__contains__)
    while True:
        shutil.rmtree(shop.root)
        shutil.copytree(clean, shop.root)
        shop.clock = VirtualClock(now)
        try:
            shop.run("Person", setups=with_queue(fault), around=fault.context)
        except Crash:
            crashed.add(fault.crashed_in)
        else:  # Past the last write: once more, with a crash after that.
            fault = Fault(fault.at - 1, after=True, counts=WRITES.__contains__)
            continue
        shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)
        where = f"{'after' if fault.after else 'before'} write {fault.at}, {fault.crashed_in}"
        shop.step()
        if set(shop.held()) > {4}:
            assert fault.crashed_in in ("key_leases.lease", "key_leases.forget", "parts.plan"), where
            shop.clock.sleep(change_queue.LEASE.total_seconds())
            shop.step()
        assert (shop.indexed(), shop.pending(), list(shop.held())) == (good, [4], [4]), where
        assert [each.document_id for each in shop.failures()] == [str(shop.key(4))], where
        assert shop.written() == len(good), where
        if fault.after:
            break
        fault = Fault(fault.at + 1, counts=WRITES.__contains__)
    expected = {
        "parts.plan",
        "slices.complete",
        "key_leases.lease",
        "key_leases.forget",
        "key_leases.fail",
        "target.commit",
        "queue.acknowledge",
    }
    assert expected <= crashed
