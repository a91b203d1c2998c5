"""Windows of tables: which rows a run reads, and up to when it says that all is there, whatever happens in between."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from instep.answers.jobs import job_answers
from instep.answers.status import entity_status
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import PartitionRef, Scope
from instep.domain.rows import RowSlice, decode_row_slice
from instep.entities.plan_request import Kind
from instep.entities.tables import cutting
from instep.jobs.namespaces import delete_namespace
from instep.planning.context import Context
from instep.planning.plan import EntityPlan
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.doubles.through import replaced

from .quick import ArrowTable, Crash, Fault, QuickShop, during, slice_by_slice
from .shop import Row

PEOPLE = "slices: 4"


@pytest.fixture
def shop(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.edit("deleted: gone\n    node: {label: Person", f"deleted: gone\n    {PEOPLE}\n    node: {{label: Person")
    made.fill(people=100, tickets=60)
    return made


def crash(shop: QuickShop, call: str, *, at: int = 1, after: bool = False, only: str = "Person") -> None:
    """A run whose process is gone at this call; the clock moves past its leases."""
    fault = Fault(at, after, lambda made: made == call)

    def context(context: Context) -> Context:
        return slice_by_slice(fault.context(context))

    with pytest.raises(Crash):
        shop.run(only, setups=fault.target, around=context)
    assert fault.crashed_in == call
    shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)  # nothing of the dead process runs on


def slices(shop: QuickShop, ref: str = "Person@global") -> tuple[str, list[tuple[RowSlice, SliceState]]]:
    """Of the latest job: its id, and its slices with their states."""
    with closing(shop.container().ledger()) as ledger:
        job = ledger.jobs.latest(PartitionRef.parse(ref))
        assert job is not None
        found = ledger.slices.of_part(job.id, PartitionRef.parse(ref))
        return job.id, [(_rows(each.payload), each.state) for each in found]


def delete(shop: QuickShop, namespace: str) -> None:
    """The tickets of a namespace, as the message says."""
    container = shop.container()
    with closing(container), closing(container.ledger()) as ledger:
        tables = {"Ticket": shop.setup("Ticket").target}
        delete_namespace(Scope.parse(namespace), tables, container.bus(ledger), container.context(ledger, Silent()))


def _rows(payload: bytes) -> RowSlice:
    rows = decode_row_slice(payload)
    assert rows is not None
    return rows


def micros(at: datetime) -> int:
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def newest(shop: QuickShop) -> int:
    """The greatest watermark that people have."""
    return max(micros(row.at) for row in shop.rows["people"].values() if row.at)


def ids(shop: QuickShop) -> set[int]:
    return {row["id"] for row in shop.stored("Person")}


# A run that is interrupted.


def test_a_resumed_run_keeps_slices_bounds_and_target_of_the_one_that_was_interrupted(shop: QuickShop) -> None:
    began = shop.clock.now()
    crash(shop, "slices.complete", at=3)  # two are recorded; the third is in the target, and not recorded
    job, before = slices(shop)
    assert [state for _, state in before].count(SliceState.COMPLETED) == 2
    assert shop.checkpoint("Person@global") is None
    assert shop.stored("Person") == []

    target = before[0][0].window
    assert target is not None
    assert began * 1000 <= target.target <= shop.clock.now() * 1000
    for number in range(0, 100, 2):
        shop.remove("people", number)  # so other bounds would be made now
    for number in range(1000, 1500):
        shop.put("people", id=number, name="new")  # above what was the greatest
    shop.put("people", id=-1, name="new")
    shop.save()
    shop.edit(PEOPLE, "slices: 7")
    old = {row["id"] for row in shop.alive("people") if 0 <= row["id"] < 100}
    first = shop.run("Person")["Person"]
    assert first.state is JobState.COMPLETED

    # The first of its two jobs: what was begun.
    with closing(shop.container().ledger()) as ledger:
        resumed = ledger.jobs.get(job)
        assert resumed is not None
        found = ledger.slices.of_part(job, PartitionRef.parse("Person@global"))
        checkpoint = ledger.checkpoints.get(PartitionRef.parse("Person@global"))
    assert resumed.state is JobState.COMPLETED
    assert [_rows(each.payload) for each in found] == [rows for rows, _ in before]
    # What was done is not read again; the other two are, in one wave, of which the source gave those of the window.
    assert [len(each.ranges) for each in shop.sources["Person"].asked] == [1, 0]
    assert shop.sources["Person"].asked[0].window == target
    # Rows above the target come with the job after that, and these alone.
    assert shop.sources["Person"].given[1] == 501
    assert checkpoint is not None
    assert checkpoint.watermark * 1000 > target.target
    assert old | {-1, *range(1000, 1500)} <= ids(shop)
    assert shop.run("Person", full_refresh=True)["Person"].state is JobState.COMPLETED
    assert shop.wrong("Person") == {}


def test_a_run_that_is_interrupted_before_it_is_finished_ends_without_reading_again(shop: QuickShop) -> None:
    crash(shop, "parts.begin_finish")
    _, before = slices(shop)
    assert [state for _, state in before] == [SliceState.COMPLETED] * 4
    assert shop.checkpoint("Person@global") is None
    window = before[0][0].window
    assert window is not None
    result = shop.run("Person")["Person"]
    assert result.state is JobState.COMPLETED
    assert result.counts.read == 99
    assert shop.sources["Person"].asked == []
    assert shop.checkpoint("Person@global") == window.target // 1000
    assert shop.wrong("Person") == {}


def test_another_worker_finishes_a_run_killed_between_two_waves(shop: QuickShop) -> None:
    crash(shop, "slices.claim", at=2)
    job, before = slices(shop)
    assert [state for _, state in before].count(SliceState.COMPLETED) == 1
    assert [state for _, state in before].count(SliceState.PENDING) == 3
    shop.work("Person")
    assert [state for _, state in slices(shop)[1]] == [SliceState.COMPLETED] * 4
    asked = [each for selection in shop.sources["Person"].asked for each in selection.ranges]
    assert asked == [rows.range for rows, state in before if state is SliceState.PENDING]
    with closing(shop.container().ledger()) as ledger:
        (done,) = ledger.jobs.newest()
    assert (done.id, done.state) == (job, JobState.COMPLETED)
    assert (done.counts.read, done.counts.written) == (99, 99)
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING


@pytest.mark.parametrize("ref", ["Like", "Ticket@1/2"])
@pytest.mark.parametrize("tables", ["*.lance", "*__*.lance"], ids=["all", "edges"])
@pytest.mark.parametrize("how", ["run", "worker"])
def test_a_build_that_lost_a_table_between_two_waves_begins_anew(
    shop: QuickShop, ref: str, tables: str, how: str
) -> None:
    shop.edit("key: [person, ticket]\n", "key: [person, ticket]\n    slices: 3\n")
    crash(shop, "slices.claim", at=2, only=ref)
    _, before = slices(shop, ref if "@" in ref else f"{ref}@global")
    assert SliceState.COMPLETED in [state for _, state in before]
    entity = ref.partition("@")[0]
    lost = [*(shop.root / "index").glob(f"{entity}__{tables}")]
    assert lost
    for each in lost:
        shutil.rmtree(each)
    if how == "worker":
        shop.work(ref)
    shop.run(entity)
    assert shop.wrong(entity) == {}
    assert {each.plan.kind for each in shop.run(entity).values()} == {Kind.NOTHING}


def test_slices_of_a_job_that_was_given_up_block_nothing(shop: QuickShop) -> None:
    crash(shop, "slices.complete", at=3, after=True)
    shop.edit(PEOPLE, "slices: 2")
    result = shop.run("Person", full_refresh=True)["Person"]
    assert result.state is JobState.COMPLETED
    assert result.counts.read == 99
    assert len(slices(shop)[1]) == 2
    assert shop.wrong("Person") == {}


def test_a_refresh_that_is_interrupted_keeps_its_floor_and_its_target(shop: QuickShop) -> None:
    shop.run("Person")
    before, floor = shop.checkpoint("Person@global"), newest(shop)
    shop.put("people", id=1, name="changed")
    shop.save()
    after = newest(shop)
    crash(shop, "target.commit")
    assert shop.checkpoint("Person@global") == before
    shop.put("people", id=2, name="changed later")
    shop.save()
    shop.run("Person")
    first, second = shop.sources["Person"].asked
    assert first.window is not None
    assert second.window is not None
    assert first.window.floor == floor
    assert second.window.floor == after
    assert shop.sources["Person"].given == [1, 1]
    assert shop.wrong("Person") == {}


# A window of many rows.


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "_SLICES_OF_A_WINDOW", 2)


def many_change(shop: QuickShop) -> int:
    """So many people that the window is cut; returns the checkpoint before it."""
    shop.edit(PEOPLE, f"{PEOPLE}\n    slice_rows: 1000")
    shop.run("Person")
    floor = shop.checkpoint("Person@global")
    assert floor is not None
    for number in range(3_500):
        shop.put("people", id=number, name=f"new {number}", gone=number % 100 == 7)
    shop.save()
    return floor


@pytest.mark.usefixtures("few_are_many")
def test_a_window_of_many_rows_is_cut_and_resumed_with_the_rest_of_it(shop: QuickShop) -> None:
    seen = newest(shop)
    floor = many_change(shop)
    crash(shop, "slices.complete", at=3)  # two are recorded; the third is in the target, and not recorded
    job, before = slices(shop)
    assert [rows.window and rows.window.floor for rows, _ in before] == [seen] * 4
    changed = newest(shop)
    assert [state for _, state in before].count(SliceState.COMPLETED) == 2
    assert shop.checkpoint("Person@global") == floor
    shop.put("people", id=5, name="changed again")
    shop.save()
    assert shop.run("Person")["Person"].state is JobState.COMPLETED
    # Two of the four ranges, and then what has changed since.
    first, second = shop.sources["Person"].asked
    assert (len(first.ranges), len(second.ranges)) == (1, 0)
    assert shop.sources["Person"].given[1] == 1
    window = before[0][0].window
    assert window is not None
    assert second.window is not None
    assert second.window.floor == changed
    with closing(shop.container().ledger()) as ledger:
        resumed = ledger.jobs.get(job)
    assert resumed is not None
    assert (resumed.state, resumed.counts.read) == (JobState.COMPLETED, 3_500)
    assert shop.wrong("Person") == {}


@pytest.mark.usefixtures("few_are_many")
def test_two_servers_share_a_window_and_its_checkpoint_waits_for_both(shop: QuickShop) -> None:
    """The other one does a slice while the first one has another in work, and is gone then."""
    floor = many_change(shop)
    sources: list[ArrowTable] = []
    states: list[list[SliceState]] = []
    fault = Fault(1, after=True, counts=lambda made: made == "slices.complete")

    def other() -> None:
        sources.append(shop.sources["Person"])
        with pytest.raises(Crash):
            shop.run("Person", setups=fault.target, around=lambda context: slice_by_slice(fault.context(context)))
        sources.append(shop.sources["Person"])
        states.append([state for _, state in slices(shop)[1]])
        assert shop.checkpoint("Person@global") == floor

    result = shop.run("Person", around=lambda context: during(slice_by_slice(context), "slices.complete", other))
    assert result["Person"].state is JobState.COMPLETED
    first, others = (each.asked for each in sources)
    assert sorted(states[0]) == sorted([SliceState.COMPLETED, SliceState.PROCESSING, *[SliceState.PENDING] * 2])
    assert (len(first), len(others)) == (3, 1)
    assert len({each.ranges for each in (*first, *others)}) == 4
    _, after = slices(shop)
    window = after[0][0].window
    assert window is not None
    assert shop.checkpoint("Person@global") == window.target // 1000
    assert result["Person"].counts.read == 3_500
    assert shop.wrong("Person") == {}


@pytest.mark.usefixtures("few_are_many")
def test_rows_leave_and_change_their_namespace_in_a_window_of_many(shop: QuickShop) -> None:
    shop.edit("slices: 3", "slices: 3\n    slice_rows: 1000")
    shop.run("Ticket")
    for number in range(3_000):
        shop.put("tickets", id=number, path="1/2/1/", title=f"new {number}", author=None)
    for number in (2, 4):
        shop.put("tickets", id=number, path="9/9/")
    shop.put("tickets", id=6, path="1/3/1/")
    shop.put("tickets", id=8, gone=True)
    shop.save()
    results = shop.run("Ticket")
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    assert len(slices(shop, "Ticket@1/2")[1]) == 3
    assert {row["id"] for row in shop.stored("Ticket")} == {*range(3_000)} - {2, 4, 8}


def test_rows_that_appear_beyond_the_planned_bounds_are_in_the_first_and_the_last_slice(shop: QuickShop) -> None:
    crash(shop, "slices.claim")
    for number in (-5, 10_000):
        shop.put("people", id=number, name="late", at=shop.now - timedelta(hours=1))
    shop.save()
    result = shop.run("Person")["Person"]
    assert result.state is JobState.COMPLETED
    assert result.counts.written == 101
    assert shop.wrong("Person") == {}


# Up to when.


def test_a_request_older_than_the_completed_watermark_does_nothing(shop: QuickShop) -> None:
    shop.run("Person")
    complete = shop.checkpoint("Person@global")
    assert complete is not None
    shop.put("people", id=1, name="changed")
    shop.save()
    for asked in (complete - 60_000, complete):
        assert shop.run("Person", watermark=asked)["Person"].plan.kind is Kind.NOTHING
    assert shop.checkpoint("Person@global") == complete
    assert shop.run("Person", watermark=shop.clock.now())["Person"].counts.read == 1
    assert shop.wrong("Person") == {}


def test_a_rebuild_is_never_of_an_older_state_than_the_index_it_replaces(shop: QuickShop) -> None:
    shop.run()
    complete = {ref: shop.checkpoint(ref) for ref in ("Person@global", "Ticket@1/2")}
    shop.put("people", id=1, name="changed")
    shop.put("tickets", id=1, title="changed")
    shop.save()
    shop.run()
    shop.run("Person", "Ticket", full_refresh=True, watermark=complete["Person@global"])
    assert shop.wrong() == {}
    for ref, before in complete.items():
        after = shop.checkpoint(ref)
        assert before is not None
        assert after is not None
        assert after >= before


def test_watermarks_at_the_bounds_of_a_window_are_read_once(shop: QuickShop) -> None:
    target = shop.clock.now() + 1_000
    at = shop.now + timedelta(seconds=1)
    edge = timedelta(microseconds=1)
    for number, when in ((201, at - edge), (202, at), (203, at), (204, at + edge)):
        shop.put("people", id=number, name="edge", at=when)
    shop.save()
    shop.run("Person", watermark=target)
    assert shop.checkpoint("Person@global") == target
    assert {201, 202, 203} <= ids(shop)
    assert 204 not in ids(shop)
    shop.run("Person")
    assert shop.read("Person") == 1
    assert shop.wrong("Person") == {}


def test_rows_that_come_late_by_less_than_the_lag_are_read_and_told_of(shop: QuickShop) -> None:
    """As of a transaction that was open while others had committed. Nobody has to wait for new rows."""
    shop.edit(PEOPLE, f"{PEOPLE}\n    watermark_lag: 10m")
    shop.put("people", id=300, name="just now")
    shop.save()
    shop.run("Person")
    assert 300 in ids(shop)
    shop.clock.sleep(600)
    at = shop.rows["people"][(300,)].at
    assert at is not None
    shop.put("people", id=301, name="late", at=at - timedelta(minutes=9))
    shop.save()
    (told,) = shop.run("Person")["Person"].notes
    assert told.startswith("warning: 1 row came late, such as 301: written after a run that had seen a later at.")
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
    with closing(shop.container().ledger()) as ledger:
        (note,) = entity_status(shop.setup("Person"), ledger).notes
    assert note.startswith("1 row came late, such as 301, seen and read 20")


def test_rows_of_the_last_moment_that_was_seen_are_read(shop: QuickShop) -> None:
    shop.edit(PEOPLE, f"{PEOPLE}\n    watermark_lag: 0s")
    at = shop.now
    shop.put("people", id=300, name="one", at=at)
    shop.save()
    shop.run("Person")
    shop.put("people", id=301, name="of the same moment", at=at)
    shop.put("people", id=300, name="changed in the same moment", at=at)
    shop.save()
    shop.run("Person")
    assert shop.wrong("Person") == {}


def test_rows_without_a_watermark_are_read_when_one_has_changed(shop: QuickShop) -> None:
    row = shop.rows["people"][(1,)]
    shop.rows["people"][(1,)] = row._replace(at=None)
    shop.save()
    (told,) = shop.run("Person")["Person"].notes
    assert told.startswith("warning: 1 row without at: every run compares all of them")
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
    shop.rows["people"][(1,)] = row._replace(at=None, values={"id": 1, "name": "changed"})
    shop.rows["people"][(901,)] = Row({"id": 901, "name": "new"}, None, False)
    shop.save()
    shop.run("Person")
    assert shop.read("Person") == 2
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING


def test_what_a_new_file_has_is_read_whatever_it_says(shop: QuickShop) -> None:
    """With yesterday's watermarks, without any, and ahead of the clock."""
    shop.by_files = True
    shop.run("Person")
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
    schema = pq.read_schema(shop.root / "people" / "0.parquet")
    marks = [shop.now - timedelta(days=1), None, shop.now + timedelta(hours=1)]
    rows = {number: Row({"id": number, "name": "new"}, at, False) for number, at in enumerate(marks, 901)}
    found = [{**row.values, "at": row.at, "gone": False} for row in rows.values()]
    pq.write_table(pa.Table.from_pylist(found, schema=schema), shop.root / "people" / "late.parquet")
    shop.rows["people"] |= {(number,): row for number, row in rows.items()}
    result = shop.run("Person")["Person"]
    assert result.plan.found.why == ["1 new or changed file"]
    assert shop.read("Person") == 3
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING


def test_a_row_that_a_later_file_deletes_stays_deleted_when_all_files_are_read(shop: QuickShop) -> None:
    shop.by_files = True
    shop.run("Person")
    folder = shop.root / "people"
    row = {"id": 3, "name": "gone", "at": shop.now, "gone": True}
    pq.write_table(pa.Table.from_pylist([row], schema=pq.read_schema(folder / "0.parquet")), folder / "gone.parquet")
    shop.put("people", id=3, gone=True)
    assert shop.run("Person")["Person"].counts.deleted == 1
    assert shop.wrong("Person") == {}
    result = shop.run("Person", full_refresh=True)["Person"]
    assert result.state is JobState.COMPLETED
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING


@pytest.mark.parametrize("name", ["Person", "Ticket"])
def test_a_table_whose_later_files_have_other_versions_of_most_rows_is_rebuilt(shop: QuickShop, name: str) -> None:
    """Staged and in place."""
    shop.by_files = True
    shop.run(name)
    table, said = ("people", "name") if name == "Person" else ("tickets", "title")
    changed = [{**row.values, said: "changed"} for row in list(shop.rows[table].values()) if not row.gone]
    _write_later(shop, table, *changed)
    shop.clock.sleep(60)
    shop.run(name)
    results = shop.run(name, full_refresh=True).values()
    assert {each.state for each in results} == {JobState.COMPLETED}
    for (note,) in (each.notes for each in results):
        assert re.search(r"\d+ rows that were read are not in the index: .* later versions of them", note)
    assert shop.wrong(name) == {}


def test_a_key_that_most_rows_share_in_one_file_is_asked_after(shop: QuickShop) -> None:
    """Files of changes may have several versions of a row, so it is no error."""
    shop.by_files = True
    rows = [{"id": number, "name": "again and again"} for number in range(201, 501)]
    _write_later(shop, "people", *rows)
    shop.edit("path: people}\n    key: id", "path: people}\n    key: name")
    result = shop.run("Person")["Person"]
    assert result.state is JobState.COMPLETED
    assert result.notes[-1].endswith("have the same key. Some have more rows than there are files: is `key` right?")


def _changed_by_a_later_file(shop: QuickShop) -> list[int]:
    """The tickets of a namespace, after a later file has changed them all, and runs have read both."""
    shop.by_files = True
    shop.run("Ticket")
    rows = [row for row in shop.rows["tickets"].values() if not row.gone]
    _write_later(shop, "tickets", *({**row.values, "title": "changed"} for row in rows))
    shop.run("Ticket")
    return [row.values["id"] for row in rows if str(row.values["path"]).startswith("1/2/")]


def _without(shop: QuickShop, key: int, *names: str) -> None:
    """Files lose a row."""
    for name in names:
        file = shop.root / "tickets" / name
        table = pq.read_table(file)
        pq.write_table(table.filter(pc.field("id") != key), file)


def test_a_namespace_whose_files_have_several_versions_of_rows_is_rebuilt_though_a_row_is_gone(shop: QuickShop) -> None:
    key = _changed_by_a_later_file(shop)[0]
    del shop.rows["tickets"][(key,)]
    _without(shop, key, "0.parquet", "later.parquet")
    results = shop.run("Ticket", full_refresh=True)
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    assert shop.wrong("Ticket") == {}


def test_a_namespace_whose_files_have_several_versions_and_lost_the_latest_of_one_is_not_rebuilt(
    shop: QuickShop,
) -> None:
    """The index has a later version of it, which would be deleted as if the source had none."""
    key, other, *_ = _changed_by_a_later_file(shop)
    _without(shop, key, "later.parquet")
    _without(shop, other, "0.parquet", "later.parquet")
    found = shop.run("Ticket", full_refresh=True)
    assert (found["Ticket@1/2"].state, found["Ticket@1/3"].state) == (JobState.FAILED, JobState.COMPLETED)
    assert "1 of 51 rows that were read did not replace what is stored" in found["Ticket@1/2"].notes[-1]
    assert {key, other} <= {each["id"] for each in shop.stored("Ticket")}


def test_an_edge_stays_gone_that_an_earlier_file_has_when_all_files_are_read(shop: QuickShop) -> None:
    shop.by_files = True
    for old in ("namespaces: [1/2, 1/3]", "    scope: path\n", "    deleted: gone\n    slices: 3\n"):
        shop.edit(old, "")
    shop.edit("[id, title]", "[id, path, title]")
    ticket = {"id": 1, "path": "1/3/1/", "title": "without its author", "author": None}
    _write_later(shop, "tickets", ticket)
    shop.run("Ticket")
    assert 1 not in {each["to_id"] for each in shop.stored("Ticket", "OPENED")}
    assert [each["title"] for each in shop.stored("Ticket") if each["id"] == 1] == ["without its author"]


@pytest.mark.parametrize("deleted", [True, False])
def test_a_row_that_a_later_file_moves_away_stays_away_when_all_files_are_read(shop: QuickShop, deleted: bool) -> None:
    """As when the index is built anew elsewhere, and nothing in it says that the row has moved."""
    shop.by_files = True
    if not deleted:
        shop.edit("    deleted: gone\n    slices: 3\n", "    slices: 3\n")
    moved = [{"id": number, "path": path, "title": "moved", "author": 3} for number, path in ((1, "9/9/"), (41, None))]
    _write_later(shop, "tickets", *moved)
    for each in shop.run("Ticket").values():
        assert each.state is JobState.COMPLETED
    assert {1, 41}.isdisjoint(each["id"] for each in shop.stored("Ticket"))
    assert {1, 41}.isdisjoint(each["to_id"] for each in shop.stored("Ticket", "OPENED"))
    assert len(shop.stored("Ticket")) == sum((not row.gone or not deleted) for row in shop.rows["tickets"].values()) - 2


def _write_later(shop: QuickShop, table: str, *rows: Mapping[str, Any]) -> None:
    """Other versions of rows, in a file of their own."""
    folder = shop.root / table
    for row in rows:
        shop.put(table, **row)
    found = [{"at": shop.now, "gone": False, **row} for row in rows]
    pq.write_table(pa.Table.from_pylist(found, schema=pq.read_schema(folder / "0.parquet")), folder / "later.parquet")


def test_a_row_is_deleted_of_which_the_same_file_has_an_older_version(shop: QuickShop) -> None:
    """As when several files were made into one."""
    shop.by_files = True
    _write_later(shop, "people", {"id": 3, "name": "gone", "gone": True})
    folder = shop.root / "people"
    together = pq.read_table(folder)
    for each in folder.iterdir():
        each.unlink()
    pq.write_table(together, folder / "all.parquet")
    assert shop.run("Person")["Person"].state is JobState.COMPLETED
    assert shop.wrong("Person") == {}


def test_a_refresh_of_new_files_that_is_interrupted_reads_these_and_those_that_came_since(shop: QuickShop) -> None:
    shop.by_files = True
    shop.run("Person")
    folder = shop.root / "people"
    for number in (901, 902):
        shop.put("people", id=number, name="new", at=shop.now - timedelta(days=1))
        row = {"id": number, "name": "new", "at": shop.now - timedelta(days=1), "gone": False}
        schema = pq.read_schema(folder / "0.parquet")
        pq.write_table(pa.Table.from_pylist([row], schema=schema), folder / f"{number}.parquet")
        if number == 901:
            crash(shop, "target.commit")
    shop.run("Person")
    assert {901, 902} <= ids(shop)
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING


def test_a_checkpoint_of_an_older_version_reads_files_once_as_a_whole(shop: QuickShop) -> None:
    """Nobody knows which of them it had read."""
    shop.run("Person")  # It goes by watermarks: of files nothing is known.
    shop.by_files = True
    result = shop.run("Person")["Person"]
    assert result.plan.kind is Kind.REFRESH
    assert result.plan.found.why == ["it is not known yet which of its files were read: all are, once"]
    assert shop.read("Person") == len(shop.rows["people"])
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING


def test_rows_that_are_ahead_of_the_clock_are_reported(shop: QuickShop) -> None:
    """A table of local times east of Greenwich would be indexed as an empty one, without a word."""
    until = shop.now + timedelta(hours=10)
    for number, at in ((901, until), (902, shop.now + timedelta(minutes=9))):
        shop.put("people", at=at, id=number, name="local time")
    shop.save()
    (told,) = shop.run("Person")["Person"].notes
    assert told.startswith(
        f"warning: 2 rows with a at ahead of now, up to {until:%Y-%m-%d %H:%M} UTC: no run sees them"
    )
    shop.clock.sleep(timedelta(minutes=15).total_seconds())
    (told,) = shop.run("Person")["Person"].notes
    assert told.startswith("warning: 1 row with a at ahead of now")
    assert shop.read("Person") == 1
    assert list(shop.wrong("Person")) == ["Person/"]
    shop.clock.sleep(timedelta(hours=10).total_seconds())
    assert shop.run("Person")["Person"].notes == []
    assert shop.wrong("Person") == {}


def test_rows_in_no_namespace_are_counted(shop: QuickShop) -> None:
    """Once, and with one of their paths: what is wrong with it can be seen."""
    shop.put("tickets", id=901, path="1/2", title="new", author=None)
    shop.put("tickets", id=902, path="1/2/7", title="new", author=None)
    shop.put("tickets", id=903, path="9/", title="new", author=None)
    shop.put("tickets", id=904, path=None, title="new", author=None)
    shop.save()
    results = shop.run("Ticket")
    assert [each.notes for each in results.values()][1:] == [[]]
    (told,) = results["Ticket@1/2"].notes
    assert told.startswith("warning: 3 rows in no namespace that is indexed, such as path = '1/2': they are")
    assert {901, 902, 903, 904} & {row["id"] for row in shop.stored("Ticket")} == {902}
    assert shop.run("Ticket", full_refresh=True)["Ticket@1/2"].notes == [told]
    for number in (901, 903, 904):
        shop.remove("tickets", number)
    shop.save()
    assert shop.run("Ticket", full_refresh=True)["Ticket@1/2"].notes == []
    assert shop.wrong("Ticket") == {}


def test_new_rows_in_no_namespace_are_counted_by_the_refresh_that_passes_them_over(shop: QuickShop) -> None:
    shop.run("Ticket")
    for number in (901, 902):
        shop.put("tickets", id=number, path="1/2", title="new", author=None)
    shop.put("tickets", id=903, path="1/2/1/", title="new", author=None)
    shop.save()
    results = shop.run("Ticket")
    (told,) = results["Ticket@1/2"].notes
    assert told.startswith("warning: 2 rows in no namespace that is indexed, such as path = '1/2': they are")
    shop.put("tickets", id=903, path="1/2/1/", title="newer", author=None)
    shop.save()
    assert [each.notes for each in shop.run("Ticket").values()] == [[], []]


@pytest.mark.parametrize("watermark", ["none", "restored"])
def test_a_rebuild_of_a_namespace_whose_watermarks_went_back_is_refused_and_loses_nothing(
    shop: QuickShop, watermark: str
) -> None:
    """What is stored has a later version, so it stays, under the instance before: sweeping it would lose the row."""
    shop.run("Ticket")
    before = shop.now - timedelta(days=30)
    row = shop.rows["tickets"][(2,)]
    values = {**row.values, "title": "restored from a backup"}
    restored = row._replace(at=None if watermark == "none" else before, values=values)
    shop.rows["tickets"][(2,)] = restored
    shop.save()
    results = shop.run("Ticket", full_refresh=True)
    assert {name: each.state for name, each in results.items()} == {
        "Ticket@1/2": JobState.FAILED,
        "Ticket@1/3": JobState.COMPLETED,
    }
    *warned, note = results["Ticket@1/2"].notes
    assert len(warned) == (watermark == "none")
    assert "instep namespace delete 1/2" in note
    shop.rows["tickets"][(2,)] = row
    assert shop.wrong("Ticket") == {}
    shop.rows["tickets"][(2,)] = restored
    delete(shop, "1/2")
    assert shop.run("Ticket@1/2")["Ticket@1/2"].state is JobState.COMPLETED
    assert shop.wrong("Ticket") == {}


def test_rows_that_were_deleted_and_are_restored_are_there_when_their_namespace_is_built_from_nothing(
    shop: QuickShop,
) -> None:
    """The index remembers that they were deleted later than what the backup says of them."""
    shop.run("Ticket")
    restored = {key: row for key, row in shop.rows["tickets"].items() if key[0] % 4 == 2}
    for (key,) in restored:
        shop.put("tickets", id=key, gone=True)
    shop.save()
    shop.run("Ticket", allow_deletes=True)
    assert shop.wrong("Ticket") == {}
    shop.rows["tickets"] |= restored
    shop.save()
    result = shop.run("Ticket", full_refresh=True)["Ticket@1/2"]
    assert result.state is JobState.FAILED
    assert "with earlier watermarks: then instep namespace delete 1/2, and run again" in result.notes[-1]
    delete(shop, "1/2")
    assert shop.run("Ticket@1/2")["Ticket@1/2"].state is JobState.COMPLETED
    assert shop.wrong("Ticket") == {}


def test_few_rows_that_a_rebuild_read_and_the_index_did_not_take_are_said(shop: QuickShop) -> None:
    """Too few to refuse it."""
    shop.run("Ticket")
    restored = shop.rows["tickets"][(2,)]
    shop.put("tickets", id=2, gone=True)
    shop.save()
    shop.run("Ticket")
    shop.rows["tickets"][(2,)] = restored
    shop.save()
    results = shop.run("Ticket", full_refresh=True)
    assert {each.state for each in results.values()} == {JobState.COMPLETED}
    (note,) = results["Ticket@1/2"].notes
    assert note.startswith("warning: 1 row that was read is not in the index: ")
    assert note.endswith("instep namespace delete 1/2, and run again")
    assert results["Ticket@1/3"].notes == []


def test_without_a_watermark_a_row_that_moves_to_a_namespace_is_there(shop: QuickShop) -> None:
    ticket = "scope: path\n    watermark: at\n"
    shop.edit(ticket, "scope: path\n")
    shop.run("Ticket")
    for number in range(4):  # one namespace is worked on more often than the other
        shop.put("tickets", id=2, title=f"change {number}")
        shop.save()
        shop.run("Ticket@1/2")
    shop.put("tickets", id=2, path="1/3/9/")
    shop.save()
    shop.run("Ticket")
    assert shop.wrong("Ticket") == {}


def test_without_a_watermark_only_changed_files_are_read(shop: QuickShop) -> None:
    shop.edit(f"watermark: at\n    deleted: gone\n    {PEOPLE}", f"deleted: gone\n    {PEOPLE}")
    shop.run("Person")
    assert shop.wrong("Person") == {}
    assert shop.run("Person")["Person"].plan.kind is Kind.NOTHING
    assert shop.read("Person") == 0
    shop.put("people", id=1, name="changed", at=shop.now - timedelta(days=9))
    shop.remove("people", 2)
    shop.save()
    assert shop.run("Person")["Person"].plan.kind is Kind.REBUILD
    assert shop.wrong("Person") == {}


# What is told of it.


@dataclass
class Told(Silent):
    """Totals of what was begun, and units of what was done."""

    begun: list[int | None] = field(default_factory=list)
    done: int = 0

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        self.begun.append(total)

    def advance(self, entity: str, units: int) -> None:
        self.done += units


def test_uncounted_rows_are_not_shown_as_a_known_total(shop: QuickShop) -> None:
    def run(told: Told) -> EntityPlan:
        return shop.run("Person", around=lambda context: replace(context, progress=told))["Person"].plan

    first, second = Told(), Told()
    assert run(first).found.counts == {"new": 99}
    assert (first.begun, first.done) == ([99], 99)
    shop.put("people", id=1, name="changed")
    shop.put("people", id=2, name="changed")
    shop.save()
    plan = run(second)
    assert (plan.units, plan.found.counts) == (0, {})
    assert (second.begun, second.done) == ([None], 2)
    with closing(shop.container().ledger()) as ledger:
        view = job_answers(ledger, limit=1)[0]
    assert (view.units, view.done, [each.units for each in view.parts]) == (None, 2, [None])


def test_dependencies_of_an_entity_are_read_once_for_all_its_namespaces(shop: QuickShop) -> None:
    shop.run("Ticket")
    asked: list[str] = []

    def counted(real: Callable[[str], set[str]], entity: str) -> set[str]:
        asked.append(entity)
        return real(entity)

    def around(context: Context) -> Context:
        return replace(context, ledger=replaced(context.ledger, {"partitions.indexes": counted}))

    results = shop.run("Ticket", around=around)
    assert {each.plan.kind for each in results.values()} == {Kind.NOTHING}
    assert len(results) == 2
    assert len(asked) == 1
