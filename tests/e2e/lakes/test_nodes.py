"""Tables of Delta and Iceberg as nodes and edges: followed from version to version, here and on Spark."""

from __future__ import annotations

import base64
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import instep
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.table_versions import Unfollowable
from instep.entities.plan_request import Kind, PlanOptions
from instep.entities.tables import changes, versions
from instep.errors import UserError
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.pipeline.engine import spark_engine
from instep.pipeline.tables import lake_wave
from instep.sources.tables.delta_rows import DeltaRows
from instep.sources.tables.iceberg_rows import IcebergRows
from instep.telemetry.progress import Silent
from tests.e2e.truth import served
from tests.sources.tables.sessions import session

from .nodes import DeltaNodes, IcebergNodes, Nodes
from .tables import rows

NODES: dict[str, type[Nodes]] = {"delta": DeltaNodes, "iceberg": IcebergNodes}
ROWS: dict[str, type[DeltaRows] | type[IcebergRows]] = {"delta": DeltaRows, "iceberg": IcebergRows}


@pytest.fixture(params=list(NODES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(kind: str, tmp_path: Path) -> Nodes:
    return NODES[kind](tmp_path / "desk")


@pytest.fixture
def never_read_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the time on at which it is called, reading a version as a whole is an error; its keys may be read, to see
    whether those of rows that are gone are there still.
    """
    inner = ROWS[kind].portion

    def refuse(self: Any, version: int, names: Sequence[str], number: int) -> Any:
        assert "body" not in names, "all rows were read"
        return inner(self, version, names, number)

    return lambda: monkeypatch.setattr(ROWS[kind], "portion", refuse)


def test_rows_that_were_changed_are_read_and_no_others(lake: Nodes, never_read_whole: Callable[[], None]) -> None:
    lake.fill(50)
    built = lake.run()
    assert (built.state, built.counts.written, built.plan.engine.name) == (JobState.COMPLETED, 50, "inline")
    assert (lake.wrong(), lake.checkpoint()) == ("", lake.version)
    never_read_whole()
    assert lake.run().plan.kind is Kind.NOTHING

    before = lake.version
    lake.change(t3="Another text.", t100="A new one.")
    lake.delete(7, 8)
    found = lake.run()
    assert lake.wrong() == ""
    assert (found.counts.read, found.counts.written, found.counts.deleted) == (4, 2, 2)
    assert any(f" {before} to {lake.version}" in each for each in found.plan.found.why)
    assert lake.checkpoint() == lake.version
    assert lake.run().plan.kind is Kind.NOTHING


def test_of_several_changes_of_a_row_what_is_left_counts(lake: Nodes, never_read_whole: Callable[[], None]) -> None:
    lake.fill(20)
    lake.run()
    never_read_whole()
    first = lake.tickets[4]
    lake.change(t1="First.", t2="Soon gone.", t30="Came and went.", t4="For a while.")
    lake.change(t1="Second.")
    lake.delete(2, 3, 30)
    lake.change(t1="Third.", t3="Back again.", t4=first)
    found = lake.run()
    assert lake.wrong() == ""
    assert (found.counts.written, found.counts.deleted) == (2, 1)


def test_a_table_rewritten_with_the_same_rows_writes_nothing(lake: Nodes, never_read_whole: Callable[[], None]) -> None:
    lake.fill(20)
    lake.run()
    never_read_whole()
    lake.overwrite(rows(dict(reversed(lake.tickets.items()))))
    found = lake.run()
    assert (found.counts.read, found.counts.written, found.counts.deleted) == (0, 0, 0)
    assert any("went from" in each for each in found.plan.found.why)
    assert (lake.wrong(), lake.checkpoint()) == ("", lake.version)
    assert lake.run().plan.kind is Kind.NOTHING


def test_one_of_two_equal_rows_that_goes_takes_nothing_away(lake: Nodes) -> None:
    lake.fill(20)
    lake.append(rows({7: lake.tickets[7]}))
    lake.run()
    lake.overwrite(rows(lake.tickets))
    found = lake.run()
    assert (found.counts.deleted, lake.wrong(), lake.checkpoint()) == (0, "", lake.version)


def test_a_row_without_a_key_that_goes_fails_nothing(lake: Nodes) -> None:
    lake.fill(20)
    keyless = rows({30: "nobody's"})
    lake.append(keyless.set_column(0, keyless.field(0), pa.nulls(1, pa.int64())))
    assert lake.run().counts.failed == 1
    lake.overwrite(rows(lake.tickets))
    found = lake.run()
    assert (found.state, found.counts.failed, lake.wrong()) == (JobState.COMPLETED, 0, "")


def test_the_failure_of_a_row_without_a_key_ends_when_that_is_mended(lake: Nodes) -> None:
    lake.fill(20)
    keyless = rows({30: "nobody's", 31: "nor this"})
    lake.append(keyless.set_column(0, keyless.field(0), pa.array([None, 31], pa.int64())))
    lake.tickets[31] = "nor this"
    lake.run()
    assert list(lake.failures()) == ["Ticket(null)"]
    lake.change(t3="Another text.")
    lake.run()
    assert list(lake.failures()) == ["Ticket(null)"], "it is there as before"
    lake.overwrite(rows(lake.tickets))
    found = lake.run()
    assert (lake.failures(), lake.wrong(), found.promoted) == ({}, "", True)
    assert lake.run().plan.kind is Kind.NOTHING


def test_columns_that_no_node_has_are_no_change(lake: Nodes) -> None:
    lake.entity = ["node: {label: Ticket, properties: [body]}"]
    lake.declare()
    lake.tickets = {number: f"Ticket {number}" for number in range(10)}
    lake.create(rows(lake.tickets, seen="never"))
    lake.run()
    lake.merge(rows({3: lake.tickets[3]}, seen="today"))
    found = lake.run()
    assert (found.plan.found.counts["changed"], found.counts.read) == (0, 0)
    assert lake.checkpoint() == lake.version


def test_columns_that_are_not_used_may_be_lists_or_structs(lake: Nodes) -> None:
    lake.entity = ["node: {label: Ticket, properties: [body]}"]
    lake.declare()
    lake.tickets = {number: f"Ticket {number}" for number in range(10)}
    nested = {"tags": pa.array([["a"]] * 10), "by": pa.array([{"name": "b"}] * 10)}
    plain = rows(lake.tickets)
    lake.create(pa.table({name: plain[name] for name in plain.column_names} | nested))
    assert (lake.run().counts.written, lake.wrong()) == (10, "")
    lake.delete(4)
    assert (lake.run().counts.deleted, lake.wrong()) == (1, "")


@pytest.mark.parametrize("declared", [[], ["node: {label: Ticket, properties: [body, tags]}"]])
def test_a_list_that_is_to_be_indexed_is_refused(lake: Nodes, declared: list[str]) -> None:
    lake.entity = declared
    lake.declare()
    plain = rows({1: "Ticket 1"})
    lake.create(plain.append_column("tags", pa.array([["a"]])))
    with pytest.raises(UserError, match=r"'tags' is .*list.* cannot be used here") as refused:
        lake.run()
    assert ("node.properties" in str(refused.value.hint)) == (not declared)


def test_edges_follow_their_rows(lake: Nodes) -> None:
    lake.entity = [
        "node: {label: Ticket}",
        "edges: [{kind: FOLLOWS, from: {label: Ticket}, to: {label: Ticket, columns: [before]}}]",
    ]
    lake.declare()
    bodies = {number: f"Ticket {number}" for number in range(5)}

    def linked(before: list[int | None]) -> pa.Table:
        return rows(bodies).append_column("before", pa.array(before, pa.int64()))

    lake.create(linked([None, 0, 1, 2, 3]))
    lake.run()
    assert sorted(lake.edges("FOLLOWS")) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    lake.merge(linked([None, 0, 1, None, 3]))
    lake.remove(4)
    lake.run()
    assert sorted(lake.edges("FOLLOWS")) == [(1, 0), (2, 1)]


def test_rows_that_are_marked_as_deleted_are_gone_and_come_back(lake: Nodes) -> None:
    def flagged(tickets: dict[int, str], *, gone: bool) -> pa.Table:
        return rows(tickets).append_column("gone", pa.array([gone] * len(tickets)))

    lake.entity = ["deleted: gone"]
    lake.declare()
    lake.tickets = {number: f"Ticket {number}" for number in range(10)}
    lake.create(flagged(lake.tickets, gone=False))
    lake.run()
    lake.merge(flagged({4: lake.tickets.pop(4)}, gone=True))
    lake.delete(5)
    assert lake.run().counts.deleted == 2
    assert lake.wrong() == ""
    lake.tickets[4] = "Back."
    lake.merge(flagged({4: "Back."}, gone=False))
    assert lake.run().counts.written == 1
    assert lake.wrong() == ""


def test_a_purge_of_rows_that_were_marked_as_deleted_is_no_delete(
    lake: Nodes, never_read_whole: Callable[[], None]
) -> None:
    def flagged(tickets: dict[int, str], *, gone: bool) -> pa.Table:
        return rows(tickets).append_column("gone", pa.array([gone] * len(tickets)))

    lake.entity = ["deleted: gone"]
    lake.declare()
    lake.tickets = {number: f"Ticket {number}" for number in range(60)}
    old = {number: f"Long gone {number}" for number in range(100, 160)}
    lake.create(pa.concat_tables([flagged(lake.tickets, gone=False), flagged(old, gone=True)]))
    lake.run()
    never_read_whole()
    lake.remove(*old)
    found = lake.run()
    assert (found.counts.deleted, found.state, lake.wrong()) == (0, JobState.COMPLETED, "")
    lake.delete(*range(15))
    assert lake.run().counts.deleted == 15


def test_more_deletes_than_are_usual_are_asked_for(lake: Nodes) -> None:
    lake.fill(60)
    lake.run()
    checkpoint = lake.checkpoint()
    lake.delete(*range(30))
    with pytest.raises(UserError, match="the table has lost 30 of 60 rows"):
        lake.run()
    assert lake.checkpoint() == checkpoint
    assert lake.run(allow_deletes=True).counts.deleted == 30
    assert lake.wrong() == ""


def test_a_version_that_is_gone_leads_to_a_look_at_all_rows(lake: Nodes) -> None:
    lake.fill(20)
    lake.run()
    lake.change(t3="Another text.")
    lake.change(t4="Another text, too.")
    lake.delete(5)
    lake.expire()
    found = lake.run()
    assert lake.wrong() == ""
    assert "all rows are read: its " in " ".join(found.plan.found.why)
    assert lake.checkpoint() == lake.version
    assert lake.run().plan.kind is Kind.NOTHING


def test_a_large_window_is_cut_into_slices_by_the_key(lake: Nodes, never_read_whole: Callable[[], None]) -> None:
    lake.entity = ["slice_rows: 1000"]
    lake.fill(50)
    lake.run()
    never_read_whole()
    many = {number: f"Added {number}." for number in range(1_000, 13_000)}
    lake.append(rows(many))
    lake.tickets |= many
    lake.delete(41)
    found = lake.run()
    assert len(found.plan.found.slices) == 13
    assert (found.counts.written, found.counts.deleted, lake.wrong()) == (12_000, 1, "")


def _in_two_namespaces(lake: Nodes, *entity: str) -> None:
    lake.entity = ["scope: path", *entity]
    lake.declare()
    text = (lake.root / "instep.yaml").read_text()
    (lake.root / "instep.yaml").write_text(f"{text}namespaces: ['1/', '2/']\n")


def _placed(paths: dict[int, str], text: str = "Ticket") -> pa.Table:
    """Tickets by their numbers, each in a namespace."""
    bodies = rows({number: f"{text} {number}" for number in paths})
    return bodies.append_column("path", pa.array(list(paths.values())))


def test_rows_leave_the_namespace_in_which_they_were(lake: Nodes) -> None:
    def indexed() -> set[int]:
        assert all(each.unchanged or each.state is JobState.COMPLETED for each in lake.app().run())
        return {int(uri.rpartition("/")[2]) for uri, _ in lake._stored()}

    _in_two_namespaces(lake)
    lake.create(_placed({number: f"{1 + number % 2}/" for number in range(10)}))
    assert indexed() == set(range(10))
    lake.merge(_placed({1: "1/", 2: "2/", 4: "9/"}))
    lake.remove(3)
    assert indexed() == set(range(10)) - {3, 4}
    # It was in one namespace when a run last looked, and is gone from the other.
    lake.merge(_placed({5: "1/"}))
    lake.remove(5, 2)
    assert indexed() == set(range(10)) - {2, 3, 4, 5}
    lake.merge(_placed({4: "1/"}))
    assert indexed() == {0, 1, 4, 6, 7, 8, 9}


def test_rows_that_move_stay_whichever_namespace_is_indexed_first(lake: Nodes) -> None:
    _in_two_namespaces(lake)
    lake.create(_placed(dict.fromkeys(range(10), "1/") | dict.fromkeys(range(10, 20), "2/")))
    assert {each.state for each in lake.app().run()} == {JobState.COMPLETED}
    for before, after, new in (("1/", "2/", range(20, 24)), ("2/", "1/", range(24, 28))):
        # The namespace with more changes is indexed first: the one that they leave.
        lake.merge(_placed(dict.fromkeys(range(5, 7), after)))
        lake.merge(_placed(dict.fromkeys(new, before)))
        assert {each.state for each in lake.app().run()} == {JobState.COMPLETED}
        assert {int(uri.rpartition("/")[2]) for uri, _ in lake._stored()} == set(range(new.stop))


def _places(lake: Nodes) -> dict[int, str]:
    table = lance.dataset(served(lake.root / "index", "Ticket")).to_table(filter="NOT _deleted")
    return dict(zip(table["id"].to_pylist(), table["path"].to_pylist(), strict=True))


def test_a_row_that_came_back_is_there_though_its_namespace_saw_no_change(lake: Nodes) -> None:
    """Only the other namespace was refreshed in between: it took the row, and gives it back."""
    _in_two_namespaces(lake)
    lake.create(_placed(dict.fromkeys(range(5), "1/") | {9: "2/"}))
    lake.app().run()
    lake.merge(_placed({1: "2/", 2: "2/", 3: "2/"}))
    lake.app().run(["Ticket@2/"])
    assert _places(lake) == {0: "1/", 1: "2/", 2: "2/", 3: "2/", 4: "1/", 9: "2/"}
    lake.merge(_placed({1: "1/", 2: "3/"}))
    lake.remove(3)
    found = {str(each.ref): each.counts for each in lake.app().run()}
    assert _places(lake) == {0: "1/", 1: "1/", 4: "1/", 9: "2/"}
    assert (found["Ticket@1"].written, found["Ticket@2"].deleted, found["Ticket@2"].written) == (0, 3, 0)


def test_a_row_is_not_given_to_a_namespace_that_will_see_it_come(lake: Nodes) -> None:
    """It would not see the row go, if it did not see it come: only what it has already is given back."""
    _in_two_namespaces(lake)
    lake.create(_placed({1: "1/", 2: "1/", 9: "2/"}))
    lake.app().run()
    for change, name in (({9: "2/x/"}, "Ticket@2/"), ({1: "2/"}, "Ticket@1/")):
        lake.merge(_placed(change))
        lake.app().run([name])
    assert _places(lake) == {2: "1/", 9: "2/x/"}
    lake.merge(_placed({1: "3/"}))
    lake.app().run()
    assert _places(lake) == {2: "1/", 9: "2/x/"}


def test_a_job_that_is_resumed_late_writes_nothing_over_what_came_later(
    lake: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_two_namespaces(lake)
    lake.create(_placed(dict.fromkeys(range(5), "1/") | {9: "2/"}))
    lake.app().run()
    lake.merge(_placed({1: "2/", 2: "1/x/"}))

    def away(self: Any, batches: Any) -> Any:
        raise UserError("the table is away")

    with monkeypatch.context() as patched:
        patched.setattr(lake_wave.PortionWriter, "write", away)
        with pytest.raises(UserError, match="away"):
            lake.app().run(["Ticket@1/"])
    lake.merge(_placed({1: "2/", 2: "2/"}, text="Changed"))
    for names in (["Ticket@2/"], ["Ticket@1/"]):
        lake.app().run(names)
        assert _places(lake) == {0: "1/", 1: "2/", 2: "2/", 3: "1/", 4: "1/", 9: "2/"}
        assert {body for uri, body in lake._stored() if uri[-1] in "12"} == {"Changed 1", "Changed 2"}


def test_a_first_build_that_ends_late_takes_nothing_from_another_one(
    lake: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both began when there was no index yet. The one that looked first cannot follow the table from there, so that it
    gives nothing back.
    """
    _in_two_namespaces(lake)
    lake.create(_placed({1: "1/", 2: "2/", 3: "1/", 4: "2/"}))
    look, write, looks = versions.first_version, lake_wave.PortionWriter.write, 0

    def moved_in_between(source: Any) -> Any:
        nonlocal looks
        looks, found = looks + 1, look(source)
        if looks == 1:
            lake.merge(_placed({1: "2/", 2: "1/"}))
        return found

    def away_from_the_first(self: Any, batches: Any) -> Any:
        if self.writer.ref == "Ticket@1":
            raise UserError("the table is away")
        return write(self, batches)

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise Unfollowable("its versions are gone")

    with monkeypatch.context() as patched:
        patched.setattr(changes, "first_version", moved_in_between)
        patched.setattr(lake_wave.PortionWriter, "write", away_from_the_first)
        first, second = lake.app().run()
        assert (first.problem is None, second.state) == (False, JobState.COMPLETED)
    with monkeypatch.context() as patched:
        patched.setattr(changes, "find_followed", gone)
        lake.app().run(["Ticket@1/"])
    lake.app().run()
    assert _places(lake) == {1: "2/", 2: "1/", 3: "1/", 4: "2/"}


def test_the_guard_of_a_namespace_counts_its_own_rows(lake: Nodes) -> None:
    """A large table is no reason to empty a small namespace unasked."""

    _in_two_namespaces(lake)
    lake.create(_placed(dict.fromkeys(range(60), "1/") | dict.fromkeys(range(100, 1_100), "2/")))
    assert {each.state for each in lake.app().run()} == {JobState.COMPLETED}
    lake.remove(*range(30))
    refused = [str(each.problem) for each in lake.app().run() if each.problem]
    assert len(refused) == 1
    assert "the table has lost 30 of 60 rows" in refused[0]
    assert {each.problem for each in lake.app().run(allow_deletes=True)} == {None}
    assert len(lake._stored()) == 1_030


def test_another_table_with_the_same_versions_is_read_by_what_it_has_itself(tmp_path: Path) -> None:
    """A worker keeps its sources for long, and what it knows of a window no longer than until the next plan."""
    lake = DeltaNodes(tmp_path / "desk")
    lake.fill(20)
    with closing(Container(instep.load(lake.root).project)) as container, closing(container.ledger()) as ledger:
        setups, context = container.setups(), container.context(ledger, Silent())

        def run() -> EntityResult:
            (found,) = run_entities(setups, context, PlanOptions(allow_deletes=True), wait_seconds=0)
            return found

        run()
        lake.change(t3="Changed.")
        window = run().plan.found.why
        assert lake.wrong() == ""
        shutil.rmtree(lake.path)
        lake.fill(20)
        run()
        lake.change(t4="Changed in another table.")
        assert window == run().plan.found.why
        assert lake.wrong() == ""


def test_files_that_go_between_plan_and_wave_stop_the_run_and_lose_nothing(
    lake: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.fill(20)
    lake.run()
    checkpoint = lake.checkpoint()
    lake.change(t3="Changed.", t30="New.")
    lake.delete(5)
    inner, away = versions.find_followed, dict[Path, Path]()

    def vacuumed(*args: Any, **kwargs: Any) -> Any:
        found = inner(*args, **kwargs)
        for each in lake.root.rglob("*.parquet"):
            away[each] = each.rename(each.with_suffix(".away"))
        return found

    monkeypatch.setattr(changes, "find_followed", vacuumed)
    with pytest.raises(UserError, match=r"cannot be read"):
        lake.run()
    assert lake.checkpoint() == checkpoint
    monkeypatch.undo()
    for before, now in away.items():
        now.rename(before)
    found = lake.run()
    assert (found.plan.kind, found.counts.written, found.counts.deleted) == (Kind.RESUME, 2, 1)
    assert lake.wrong() == ""


@pytest.mark.spark
def test_on_spark_tasks_read_the_same_versions(lake: Nodes) -> None:
    lake.engine, lake.spark = "spark", session()
    lake.fill(30)
    lake.append(rows({30: "Of another file."}))
    lake.tickets[30] = "Of another file."
    built = lake.run()
    assert (built.plan.engine.name, built.counts.written, lake.wrong()) == ("spark", 31, "")
    lake.change(t3="Another text.", t100="A new one.")
    lake.delete(7)
    found = lake.run()
    assert (found.counts.written, found.counts.deleted, lake.wrong()) == (2, 1, "")


@pytest.mark.spark
@pytest.mark.proof
def test_several_tasks_of_spark_read_a_large_window(lake: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = list[int]()
    inner = spark_engine._of_table

    def watched(*args: Any) -> pa.Table:
        """A task that meets no row has no outcome."""
        found = inner(*args)
        busy.append(found.num_rows)
        return found

    monkeypatch.setattr(spark_engine, "_of_table", watched)
    lake.engine, lake.spark = "spark", session()
    lake.fill(30)
    lake.run()
    # No compression makes less of these than a portion has.
    drawn = random.Random(0)
    for start in (100, 200, 300):
        new = {number: base64.b64encode(drawn.randbytes(1_500_000)).decode() for number in range(start, start + 12)}
        lake.append(rows(new))
        lake.tickets |= new
    lake.change(t3="Another text.")
    lake.delete(7)
    found = lake.run()
    assert (found.counts.read, found.counts.written, found.counts.deleted, lake.wrong()) == (38, 37, 1, "")
    assert busy[-1] >= 3
    # More changes than tasks are sent: one of them finds them all.
    monkeypatch.setattr(lake_wave, "MOST_SENT", 1)
    lake.change(t3="Once more.", t100="Short.")
    lake.delete(8)
    found = lake.run()
    assert (found.counts.written, found.counts.deleted, lake.wrong(), busy[-1]) == (2, 1, "", 1)


#: Dies before or after a call of the target, in a run of its own.
_DIE = """
import os, signal, sys
import instep
from instep.targets.lance import LanceTableTarget
name, when = sys.argv[1:]
inner = getattr(LanceTableTarget, name)
def call(self, *args, **kwargs):
    if when == "after":
        inner(self, *args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(LanceTableTarget, name, call)
instep.load(".").run()
"""


@pytest.mark.parametrize(("name", "when"), [("fence", "after"), ("commit", "before"), ("commit", "after")])
def test_a_run_that_is_killed_goes_on_from_the_same_version(
    lake: Nodes, name: str, when: str, never_read_whole: Callable[[], None]
) -> None:
    lake.fill(20)
    lake.run()
    checkpoint, first = lake.checkpoint(), lake.tickets[3]
    lake.change(t3="For a while.", t21="A new one.")
    lake.delete(5)
    died = subprocess.run([sys.executable, "-c", _DIE, name, when], cwd=lake.root, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert lake.checkpoint() == checkpoint

    lake.change(t3=first, t4="Later than the run.")
    never_read_whole()
    while lake.run().plan.kind is not Kind.NOTHING:
        pass
    assert (lake.wrong(), lake.checkpoint()) == ("", lake.version)


def test_a_build_reads_the_version_that_it_was_planned_for(
    lake: Nodes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is changed while it goes on is read by the next run."""
    lake.fill(20)
    inner, first = ROWS[kind].portions, lake.tickets[3]

    def portions(self: Any, version: int) -> int:
        if lake.tickets[3] == first:
            lake.change(t3="For a while.")
        return int(inner(self, version))

    with monkeypatch.context() as patched:
        patched.setattr(ROWS[kind], "portions", portions)
        lake.run()
    lake.change(t3=first)
    lake.run()
    assert lake.wrong() == ""


def test_what_a_run_wrote_that_has_not_ended_is_read_again(lake: Nodes) -> None:
    """Of its rows, nothing is known: what they are now may be what they were before it."""
    lake.fill(20)
    lake.run()
    first = lake.tickets[3]
    lake.change(t3="For a while.")
    died = subprocess.run(
        [sys.executable, "-c", _DIE, "commit", "after"], cwd=lake.root, check=False, capture_output=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    lake.change(t3=first)
    lake.run(allow_deletes=True)  # It gives up the job that was killed.
    lake.run()
    assert lake.wrong() == ""


def test_a_table_that_was_put_back_to_an_older_state_is_built_again(lake: Nodes, tmp_path: Path) -> None:
    lake.fill(20)
    lake.run()
    shutil.copytree(lake.root / "index", tmp_path / "backup")
    lake.change(t3="Another text.")
    lake.run()
    shutil.rmtree(lake.root / "index")
    shutil.copytree(tmp_path / "backup", lake.root / "index")
    lake.change(t4="A third one.")
    assert lake.run().plan.kind is Kind.REBUILD
    assert lake.wrong() == ""


def test_why_says_which_versions_brought_a_row(lake: Nodes) -> None:
    lake.fill(20)
    lake.run()
    before = lake.version
    lake.change(t3="Another text.")
    job = lake.run().job_id
    found = instep.load(lake.root).why("Ticket", "3")
    assert found.job is not None
    assert (found.row["versions"], found.job.id) == ({"since": before, "until": lake.version}, job)
