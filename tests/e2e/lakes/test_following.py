"""Documents that are rows of Delta and Iceberg tables: followed from version to version, without Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import instep
from instep.domain.jobs import JobState
from instep.entities import setup as setups
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.jobs import live_refresh
from instep.sources.tables.delta_rows import DeltaRows
from instep.sources.tables.iceberg_rows import IcebergRows
from instep.targets.lance import LanceTarget

from .tables import DeltaLake, IcebergLake, Lake, rows

LAKES: dict[str, type[Lake]] = {"delta": DeltaLake, "iceberg": IcebergLake}
ROWS = {"delta": DeltaRows, "iceberg": IcebergRows}


@pytest.fixture(params=list(LAKES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(kind: str, tmp_path: Path) -> Lake:
    return LAKES[kind](tmp_path / "desk")


@pytest.fixture
def never_listed(kind: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the time on at which it is called, reading all rows is an error."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("all rows were read")

    def begin() -> None:
        monkeypatch.setattr(ROWS[kind], "listed", refuse)
        monkeypatch.setattr(ROWS[kind], "rows", refuse)

    return begin


def test_what_changed_is_read_and_nothing_else(lake: Lake, never_listed: Callable[[], None]) -> None:
    lake.fill(50)
    built = lake.run()
    assert (built.state, built.counts.written) == (JobState.COMPLETED, 50)
    assert (lake.wrong(), lake.checkpoint()) == ("", lake.version)
    never_listed()
    assert lake.run().plan.kind is Kind.NOTHING

    lake.change(t3="Another text.", t100="A new one.")
    lake.delete(7, 8)
    found = lake.run()
    assert lake.wrong() == ""
    assert (found.counts.read, found.counts.written, found.counts.deleted) == (4, 2, 2)
    assert lake.checkpoint() == lake.version
    assert lake.run().plan.kind is Kind.NOTHING


def test_of_several_changes_of_a_row_the_last_counts(lake: Lake, never_listed: Callable[[], None]) -> None:
    lake.fill(20)
    lake.run()
    never_listed()
    lake.change(t1="First.", t2="Soon gone.", t30="Came and went.")
    lake.change(t1="Second.")
    lake.delete(2, 3, 30)
    lake.change(t1="Third.", t3="Back again.")
    found = lake.run()
    assert lake.wrong() == ""
    assert (found.counts.written, found.counts.deleted) == (2, 1)


def test_a_table_rewritten_with_the_same_rows_embeds_nothing(lake: Lake, never_listed: Callable[[], None]) -> None:
    lake.fill(20)
    lake.run()
    never_listed()
    lake.overwrite(rows(dict(reversed(lake.tickets.items()))))
    before = lake.version
    found = lake.run()
    assert (found.counts.read, found.counts.written, found.counts.deleted) == (0, 0, 0)
    assert any("went from" in each for each in found.plan.found.why)
    assert (lake.wrong(), lake.checkpoint()) == ("", before)
    assert lake.run().plan.kind is Kind.NOTHING


def test_many_changes_are_compared_in_columns(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.fill(20)
    lake.run()
    monkeypatch.setattr("instep.entities.documents.versions.FEW", 0)
    lake.change(t3="Another text.", t100="A new one.")
    lake.delete(7)
    found = lake.run()
    assert (found.counts.written, found.counts.deleted, lake.wrong()) == (2, 1, "")


def test_documents_that_failed_are_tried_again_whatever_has_changed(lake: Lake) -> None:
    lake.declared = "limits: {max_document_bytes: 100}"
    lake.fill(20)
    lake.run()
    lake.change(t3="x" * 200, t4="Another text.")
    before = lake.tickets.pop(3)
    assert lake.run().state is JobState.COMPLETED_WITH_ERRORS
    assert list(lake.failures()) == ["table://Ticket/3"]
    assert lake.run().plan.kind is Kind.NOTHING
    lake.declared = "limits: {max_document_bytes: 1000}"
    lake.declare()
    lake.tickets[3] = before
    lake.run(retry_failures=True)
    assert (lake.failures(), lake.wrong()) == ({}, "")


def test_more_deletes_than_are_usual_are_asked_for(lake: Lake) -> None:
    lake.fill(60)
    lake.run()
    checkpoint = lake.checkpoint()
    lake.delete(*range(30))
    with pytest.raises(UserError, match="30 of 60 documents are gone from the source"):
        lake.run()
    assert lake.checkpoint() == checkpoint
    assert lake.run(allow_deletes=True).counts.deleted == 30
    assert lake.wrong() == ""


def test_a_version_that_is_gone_leads_to_a_comparison_of_all_rows(lake: Lake) -> None:
    lake.fill(20)
    lake.run()
    lake.change(t3="Another text.")
    lake.change(t4="Another text, too.")
    lake.delete(5)
    lake.expire()
    found = lake.run()
    assert lake.wrong() == ""
    assert (found.counts.written, found.counts.deleted) == (2, 1)
    said = " ".join([*found.plan.found.why, *found.plan.found.warnings])
    assert "all rows were compared: its " in said
    assert lake.checkpoint() == lake.version
    assert lake.run().plan.kind is Kind.NOTHING


def test_a_new_column_is_no_change_and_a_missing_one_is_named(lake: Lake) -> None:
    lake.fill(20)
    lake.run()
    lake.append(rows({50: "A row with more."}, more="more"))
    lake.tickets[50] = "A row with more."
    assert lake.run().counts.written == 1
    assert lake.wrong() == ""

    lake.document = "key: id, text: words"
    lake.declare()
    with pytest.raises(UserError, match="there is no column 'words'") as error:
        lake.run()
    assert "'body'" in str(error.value)


def test_rows_that_share_a_key_fail_until_one_is_left(lake: Lake) -> None:
    lake.fill(20)
    lake.run()
    lake.append(rows({50: "One of two."}))
    lake.append(rows({51: "Alone."}))
    lake.tickets |= {50: "One of two.", 51: "Alone."}
    lake.run()
    assert lake.wrong() == ""
    lake.append(_twice(60))
    lake.run()
    assert lake.failures() == {"table://Ticket/60": "2 rows have this key (id)"}
    assert lake.wrong() == ""
    lake.remove(60)
    lake.run()
    assert lake.failures() == {}
    assert lake.wrong() == ""


_TWO = "2 rows have this key (id)"


def test_a_second_row_of_a_key_that_goes_again_takes_no_document_away(lake: Lake) -> None:
    lake.fill(20)
    lake.run()
    for number in (3, 50):
        lake.append(rows({number: "First."}))
        lake.append(rows({number: "Second."}))
    lake.run()
    assert lake.failures() == {"table://Ticket/3": "3 rows have this key (id)", "table://Ticket/50": _TWO}
    lake.table.delete("body = 'Second.'")
    lake.run()
    assert lake.failures() == {"table://Ticket/3": _TWO}
    lake.table.delete("body = 'First.' AND id = 3")
    lake.tickets[50] = "First."
    lake.run()
    assert lake.failures() == {}
    assert lake.wrong() == ""


def test_a_row_that_is_marked_as_deleted_leaves_another_one_with_its_key(lake: Lake) -> None:
    lake.declare()
    lake.document = "key: id, text: body, deleted: old"
    lake.fill(0)
    lake.tickets = {1: "First.", 2: "Another."}
    lake.append(_old(rows(lake.tickets), old=False))
    lake.run()
    lake.append(_old(rows({1: "Of long ago."}), old=True))
    lake.run()
    assert lake.wrong() == ""


def _old(table: pa.Table, *, old: bool) -> pa.Table:
    return table.append_column("old", pa.array([old] * table.num_rows, pa.bool_()))


def _twice(number: int) -> pa.Table:
    return pa.concat_tables([rows({number: "One."}), rows({number: "Other."})])


def test_versions_of_rows_are_read_without_their_texts(lake: Lake, kind: str) -> None:
    lake.document = "key: id, text: body, version: at"
    lake.declare()
    tickets = {number: f"Ticket {number}" for number in range(20)}
    lake.create(rows(tickets, at="first"))
    lake.run()
    lake.merge(rows({1: "Changed.", 2: "Changed."}, at="second"))
    lake.merge(rows({3: "Unnoticed, since its version stays."}, at="first"))
    lake.tickets = tickets | {1: "Changed.", 2: "Changed."}
    assert lake.run().counts.written == 2
    assert lake.wrong() == ""


def test_rows_that_are_marked_as_deleted_are_gone(lake: Lake) -> None:
    lake.document = "key: id, text: body, deleted: gone"
    lake.declare()
    lake.tickets = {number: f"Ticket {number}" for number in range(10)}
    lake.create(_flagged(lake.tickets, gone=False))
    lake.run()
    lake.merge(_flagged({4: lake.tickets.pop(4)}, gone=True))
    assert lake.run().counts.deleted == 1
    assert lake.wrong() == ""
    lake.tickets[4] = "Back."
    lake.merge(_flagged({4: "Back."}, gone=False))
    assert lake.run().counts.written == 1
    assert lake.wrong() == ""


def _flagged(tickets: dict[int, str], *, gone: bool) -> pa.Table:
    return rows(tickets).append_column("gone", pa.array([gone] * len(tickets)))


#: Dies when the rows of a wave are in the target and the ledger does not know of it yet.
_DIE = """
import os, signal
import instep
from instep.targets.lance import LanceTarget
inner = LanceTarget.commit
def commit(self, *args, **kwargs):
    inner(self, *args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
LanceTarget.commit = commit
instep.load(".").run()
"""


def test_a_run_that_is_killed_goes_on_from_the_same_version(lake: Lake, never_listed: Callable[[], None]) -> None:
    lake.fill(20)
    lake.run()
    checkpoint = lake.checkpoint()
    lake.change(t3="Another text.", t21="A new one.")
    died = subprocess.run([sys.executable, "-c", _DIE], cwd=lake.root, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert lake.checkpoint() == checkpoint

    lake.change(t4="Later than the run.")
    never_listed()
    assert lake.run().plan.kind is Kind.RESUME
    assert (lake.wrong(), lake.checkpoint()) == ("", lake.version)
    assert lake.run().plan.kind is Kind.NOTHING


def test_why_says_at_which_version_the_index_is(lake: Lake) -> None:
    lake.fill(20)
    lake.run()
    lake.change(t3="Another text.")
    lake.run()
    found = instep.load(lake.root).why("Ticket", "table://Ticket/3")
    assert found.version == lake.version


@pytest.mark.parametrize("fails", [False, True], ids=["rebuilt", "rebuild fails"])
def test_a_snapshot_that_comes_back_after_a_rebuild_has_followed_on_is_read(
    tmp_path: Path, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = IcebergLake(tmp_path / "desk")  # A Delta table that is restored has a new version.
    monkeypatch.setattr(setups, "MOST_CLAIMS", 1)
    monkeypatch.setattr(live_refresh, "LOOK_SECONDS", 0.0)
    lake.fill(20)
    lake.run()
    before, commit, promote = lake.version, LanceTarget.commit, LanceTarget.promote

    def change_first(*args: Any, **named: Any) -> Any:
        if lake.version == before:
            lake.merge(rows({3: "For a while.", 50: "As well."}))
        return commit(*args, **named)

    def promoted(*args: Any, **named: Any) -> Any:
        if fails:
            raise UserError("not today")
        return promote(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(LanceTarget, "commit", change_first)
        patched.setattr(LanceTarget, "promote", promoted)
        with suppress(UserError):
            lake.run(full_refresh=True)
    assert "too many" in lake.wrong()
    assert lake.checkpoint() == (before if fails else lake.version)
    lake.table.manage_snapshots().rollback_to_snapshot(before).commit()
    for _ in range(3):  # One gives up the job that is left.
        lake.run(allow_deletes=True)
    assert (lake.wrong(), lake.checkpoint()) == ("", before)
    assert lake.run().plan.kind is Kind.NOTHING


def test_what_changes_during_a_rebuild_is_served_before_it_and_after(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setups, "MOST_CLAIMS", 1)
    monkeypatch.setattr(live_refresh, "LOOK_SECONDS", 0.0)
    lake.fill(20)
    lake.run()
    commit, promote = LanceTarget.commit, LanceTarget.promote
    served: list[str] = []

    def change_first(*args: Any, **named: Any) -> Any:
        if 50 not in lake.tickets:
            lake.change(t3="Another text.", t50="A new one.")
            lake.delete(7)
        return commit(*args, **named)

    def look_first(*args: Any, **named: Any) -> Any:
        served.append(lake.wrong())
        return promote(*args, **named)

    monkeypatch.setattr(LanceTarget, "commit", change_first)
    monkeypatch.setattr(LanceTarget, "promote", look_first)
    assert lake.run(full_refresh=True).promoted
    assert served[0] == ""
    assert lake.wrong() == ""
    found = lake.run()
    assert (found.counts.read, lake.wrong(), lake.checkpoint()) == (0, "", lake.version)
