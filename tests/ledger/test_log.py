"""The event log in a database beyond the contract: snapshots, what is torn in its tables, and its statements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, select, update

from instep.domain.events import (
    EVENTS,
    UPCASTERS,
    Catalogue,
    Collected,
    Event,
    InstanceTainted,
    WantCanceled,
    WantCreated,
)
from instep.errors import Conflict, UserError
from instep.ledger import snapshots as snapshotting
from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up
from instep.ledger.tables import events, instances, snapshots, wants
from tests.contracts.ledger import REF, START, VirtualClock
from tests.contracts.ledger.building import imported
from tests.ledger.log_statements import fill_log, log_statements


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = sqlite_engine(tmp_path / "ledger.db")
    bring_up(engine, "here")
    yield engine
    engine.dispose()


@pytest.fixture
def ledger(engine: Engine, clock: VirtualClock) -> Ledger:
    return Ledger(engine, SqliteDialect(clock, "here"))


def _wants(first: int, count: int) -> list[Event]:
    return [WantCreated(want=f"{number}", refs=(str(REF),)) for number in range(first, first + count)]


class TestSnapshots:
    @pytest.fixture(autouse=True)
    def _often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(snapshotting, "EVERY", 10)
        monkeypatch.setattr(snapshotting, "_KEPT", 50)
        monkeypatch.setattr(snapshotting, "_PIECE", 100)

    def _made(self, engine: Engine) -> list[tuple[int, int]]:
        with engine.connect() as connection:
            found = select(snapshots.c.sequence, snapshots.c.at).where(snapshots.c.piece == 0)
            return [(row.sequence, row.at) for row in connection.execute(found.order_by(snapshots.c.sequence))]

    def test_one_is_made_when_enough_was_appended_by_one_call_or_many(
        self, ledger: Ledger, engine: Engine, clock: VirtualClock
    ) -> None:
        ledger.events.append(_wants(0, 9))
        assert self._made(engine) == []
        clock.advance(1)
        ledger.events.append(_wants(9, 2))
        assert self._made(engine) == [(10, START + 1)]
        ledger.events.append(_wants(11, 8))
        assert len(self._made(engine)) == 1
        clock.advance(1)
        ledger.events.append(_wants(19, 26))
        assert self._made(engine) == [(40, START + 2)], "one is enough; of the older ones the nearest would be kept"

    def test_the_one_before_and_a_few_of_long_ago_are_kept(self, ledger: Ledger, engine: Engine) -> None:
        for number in range(13):
            ledger.events.append(_wants(10 * number, 10))
        assert [sequence for sequence, _ in self._made(engine)] == [50, 100, 120, 130]

    def test_the_state_is_the_same_with_them_as_without(
        self, ledger: Ledger, engine: Engine, clock: VirtualClock
    ) -> None:
        there = imported(ledger)
        for number in range(6):
            clock.advance(10)
            ledger.events.append(_wants(7 * number, 7))
        ledger.events.append([InstanceTainted(instance=there.uuid)])
        moments = [{"sequence": number} for number in range(45)] + [{"at": START + number} for number in range(70)]
        assert len(self._made(engine)) > 1
        shortened = [ledger.events.state(), *(ledger.events.state(**each) for each in moments)]
        with engine.execution_options(write=True).begin() as connection:
            connection.execute(delete(snapshots))
        assert [ledger.events.state(), *(ledger.events.state(**each) for each in moments)] == shortened

    def test_one_that_cannot_be_read_is_passed_over(self, ledger: Ledger, engine: Engine) -> None:
        for number in range(3):
            ledger.events.append(_wants(10 * number, 10))
        expected = ledger.events.state()
        for sequence in (30, 20):
            with engine.execution_options(write=True).begin() as connection:
                torn = (snapshots.c.sequence == sequence, snapshots.c.piece == 1)
                connection.execute(update(snapshots).where(*torn).values(body=b"torn"))
            assert ledger.events.state() == expected

    def test_a_snapshot_spares_reading_the_log_before_it(self, ledger: Ledger, engine: Engine) -> None:
        """What is before a snapshot is not looked at again."""
        ledger.events.append(_wants(0, 12))
        expected = ledger.events.state()
        with engine.execution_options(write=True).begin() as connection:
            connection.execute(delete(events).where(events.c.sequence <= 10))
        assert ledger.events.state() == expected

    def test_a_rebuild_begins_without_them(self, ledger: Ledger, engine: Engine) -> None:
        ledger.events.append(_wants(0, 12))
        ledger.events.rebuild_projections()
        assert self._made(engine) == []


def test_the_id_of_a_want_that_was_collected_may_be_used_again_at_once(ledger: Ledger) -> None:
    imported(ledger)
    ledger.events.append(_wants(0, 2))
    again = WantCreated(want="0", refs=(str(REF),), as_of=START + 1)
    ledger.events.append([Collected(wants=("0",)), again])
    assert [each.id for each in ledger.wants.newest()] == ["0", "1"]
    assert [each.id for each in ledger.wants.newest(ref=REF, open_only=True)] == ["0"]
    assert ledger.events.verify().differences == ()


class TestTorn:
    def test_an_event_with_a_torn_body_is_named_and_skipped(self, ledger: Ledger, engine: Engine) -> None:
        ledger.events.append(_wants(0, 3))
        with engine.execution_options(write=True).begin() as connection:
            connection.execute(update(events).where(events.c.sequence == 2).values(body='{"want": "1", "re'))
        verified = ledger.events.verify()
        assert (verified.events, verified.skipped) == (3, {"malformed": 1})
        assert verified.differences == (
            "want 1 is stored, and not in the log",
            "what is waited for by 1 Document@global is stored, and not in the log",
        )
        assert list(ledger.events.state().wants) == ["0", "2"]
        assert ledger.events.append(_wants(3, 1))[0].sequence == 4, "it is no stop"
        ledger.events.rebuild_projections()
        assert ledger.events.verify().differences == ()
        assert [each.id for each in ledger.wants.newest()] == ["3", "2", "0"]

    def test_events_that_are_gone_are_counted(self, ledger: Ledger, engine: Engine) -> None:
        ledger.events.append(_wants(0, 4))
        with engine.execution_options(write=True).begin() as connection:
            connection.execute(delete(events).where(events.c.sequence.in_([2, 4])))
        verified = ledger.events.verify()
        assert verified.skipped == {"missing": 1}
        assert [(each.sequence, each.name) for each in verified.skips] == [(2, "missing")]
        assert "the last event should be 4, and is 3" in verified.differences
        assert ledger.events.append(_wants(4, 1))[0].sequence == 5, "a number is never given twice"

    def test_a_projection_with_a_torn_body_is_reported_and_recreated(self, ledger: Ledger, engine: Engine) -> None:
        there = imported(ledger)
        ledger.events.append(_wants(0, 1))
        with engine.execution_options(write=True).begin() as connection:
            connection.execute(update(instances).values(body="[7"))
            connection.execute(update(wants).values(body="{}"))
        for read in (lambda: ledger.instances.canonical(REF), ledger.wants.newest):
            with pytest.raises(UserError, match="instep ledger rebuild"):
                read()
        differences = ledger.events.verify().differences
        assert len(differences) == 2
        for each in differences:
            assert "body cannot be read" in each
            assert len(each) < 200, "in words, not with all that the log leads to"
        ledger.events.rebuild_projections()
        assert ledger.instances.canonical(REF) == there

    def test_texts_too_long_for_an_index_are_refused(self, ledger: Ledger) -> None:
        long = WantCreated(want="a", refs=(f"Document@{'1' * 250}",))
        for event_ in (long, WantCreated(want="b" * 81, refs=(str(REF),))):
            with pytest.raises(Conflict, match="too long"):
                ledger.events.append([event_])
        assert ledger.events.rows() == []


def test_events_of_an_older_version_are_brought_to_the_newest_and_left_as_they_are_in_the_log(
    ledger: Ledger, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.events.append([*_wants(0, 2), WantCanceled(want="0", by="ann")])
    # Let there be a second version of it, with other names: what is in the log is of the first.
    with engine.execution_options(write=True).begin() as connection:
        connection.execute(update(events).where(events.c.sequence == 3).values(body='{"wish":"0","who":"ann"}'))
    assert ledger.events.verify().skipped == {"malformed": 1}
    monkeypatch.setattr(WantCanceled, "VERSION", 2)
    newer = Catalogue(
        EVENTS.types.values(),
        UPCASTERS | {(WantCanceled.KIND, 1): lambda old: {"want": old["wish"], "by": old["who"]}},
    )
    for name, value in vars(newer).items():
        monkeypatch.setattr(EVENTS, name, value)
    verified = ledger.events.verify()
    assert (verified.skipped, verified.differences) == ({}, ()), "what follows from it is what followed then"
    ledger.events.append([WantCanceled(want="1")])
    assert [row[2:] for row in ledger.events.rows(2)] == [
        ("want.canceled", 1, '{"wish":"0","who":"ann"}'),
        ("want.canceled", 2, '{"want":"1"}'),
    ]
    ledger.events.rebuild_projections()
    assert [str(each.state) for each in ledger.wants.newest()] == ["Canceled", "Canceled"]


def test_appending_and_reading_find_everything_by_index(ledger: Ledger, engine: Engine) -> None:
    fill_log(ledger)
    said = log_statements(ledger, engine)
    with engine.connect() as connection:
        for statement, values in said:
            rows = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, values).all()
            steps = "\n".join(row.detail for row in rows)
            assert "SCAN" not in steps or "SCAN wants USING INDEX wants_newest" in steps, (statement, steps)
            assert "B-TREE" not in steps, (statement, steps)
