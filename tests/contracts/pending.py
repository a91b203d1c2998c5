"""What every engine of a pending queue must do. Inherit `PendingContract`, and provide the fixture `tables`, whose keys
are of the class's kind.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from instep.domain.pending_queue import KeyKind, KeyRange, QueueSource
from instep.errors import UserError
from instep.queues.engines.queue_engine import NAMED, Ask
from tests.contracts.pending_events import EventsContract
from tests.contracts.pending_tables import EVERYTHING, KEYS, START, Names, UserTables, created, demand_equal, read

HOSTILE = Names(
    key="ma'tch \"id`%s",
    history='his"to`ry%s{}',
    salts="salts'; DROP TABLE x; --",
    players="{players}",
    kind="ki'nd",
    happened='at"%(x)s`',
    account='"',
    state="state`",
)


class PendingContract(EventsContract):
    #: What tables and columns of the engine may be called.
    hostile: ClassVar[Names] = HOSTILE
    kind: ClassVar[KeyKind] = KeyKind.INTEGER

    # -- being there ---------------------------------------------------------------------------

    def test_create_is_idempotent_and_drop_leaves_the_tables_of_the_user(self, tables: UserTables) -> None:
        store = tables.open(tables.spec())
        assert not store.exists()
        store.check()
        store.create()
        tables.played([1, 2])
        store.create()
        assert store.exists()
        assert read(store) == [2, 1]
        store.drop()
        assert not store.exists()
        tables.played([3])
        tables.cover([3])
        store.drop()
        store.create()
        assert read(store) == []
        store.backfill(KEYS)
        assert read(store) == [2, 1]

    def test_the_printed_statements_are_those_that_create_runs(self, tables: UserTables) -> None:
        store = tables.open(tables.spec())
        for _ in range(2):
            for statement in store.statements():
                tables.run(statement)
        assert store.exists()
        store.create()
        tables.played([1, 2])
        tables.cover([2])
        assert read(store) == [1]

    def test_the_printed_statements_of_a_backfill_are_those_that_run(self, tables: UserTables) -> None:
        tables.played([1, 2, 3])
        tables.cover([2])
        store = created(tables)
        for _ in range(2):
            for statement in store.backfill_statements(KEYS):
                tables.run(statement)
        assert read(store) == [3, 1]

    def test_a_queue_of_another_declaration_is_refused(self, tables: UserTables) -> None:
        created(tables)
        spec = tables.spec()
        tables.open(replace(spec, settle=timedelta(hours=1))).create()
        with pytest.raises(UserError, match="another declaration"):
            tables.open(replace(spec, covers=spec.covers[:1])).create()
        with pytest.raises(UserError, match="another declaration"):
            tables.open(replace(spec, source=replace(spec.source, where=None))).create()
        with pytest.raises(UserError, match="another declaration"):
            tables.open(replace(spec, covers=spec.covers[:1])).demand_same()
        tables.open(replace(spec, newest_first=False)).demand_same()
        tables.open(replace(spec, name="elsewhere", covers=spec.covers[:1])).demand_same()

    def test_queues_do_not_disturb_each_other(self, tables: UserTables) -> None:
        one, other = tables.spec("one"), tables.spec("one_acks")
        first, second = created(tables, one), created(tables, replace(other, covers=other.covers[1:]))
        tables.played([1, 2])
        tables.cover([1])
        first.acknowledge([2])
        assert (read(first), read(second)) == ([], [2, 1])
        first.drop()
        tables.played([3])
        assert read(second) == [3, 2, 1]

    @pytest.mark.parametrize("wrong", ["table", "cover", "key", "type", "where", "event_time"])
    def test_an_impossible_queue_is_refused_before_anything_is_created(self, tables: UserTables, wrong: str) -> None:
        spec = tables.spec()
        match wrong:
            case "table":
                spec = replace(spec, source=QueueSource("nowhere", None, None))
            case "cover":
                spec = replace(spec, covers=(*spec.covers, replace(spec.covers[0], table="nowhere")))
            case "key":
                spec = replace(spec, key="nothing")
            case "type":
                other = tables.names.state if tables.kind is KeyKind.INTEGER else tables.names.account
                table = tables.names.salts if tables.kind is KeyKind.INTEGER else tables.names.history
                spec = replace(spec, key=other, source=replace(spec.source, table=table))
            case "where":
                spec = replace(spec, source=replace(spec.source, where="nothing = 1"))
            case _:
                spec = replace(spec, source=replace(spec.source, event_time="nothing"))
        store = tables.open(spec)
        for call in (store.check, store.create):
            with pytest.raises(UserError):
                call()
        assert not store.exists()

    def test_names_may_be_hostile(self, tables: UserTables) -> None:
        names = tables.names = self.hostile
        tables.create()
        store = created(tables, tables.spec(participants=names.account))
        tables.played([1, 2, 3, 4, 5])
        tables.cover([4])
        tables.cover([5], by=names.players)
        assert read(store) == [3, 2, 1]
        assert read(store, replace(EVERYTHING, participants=(1,))) == [3, 2, 1]
        tables.uncover([5], by=names.players)
        store.acknowledge([1])
        assert read(store) == [5, 3, 2]
        store.backfill(KEYS)
        demand_equal(store)
        assert set(store.garbage()) == {names.history, names.salts, names.players}
        store.drop()

    def test_conditions_may_end_in_a_comment(self, tables: UserTables) -> None:
        spec = tables.spec()
        source = replace(spec.source, where=f"{spec.source.where} -- the % of {{them}}")
        covers = tuple(replace(each, where=f"{each.where} OR 1 = 0 -- so") for each in spec.covers)
        store = created(tables, replace(spec, source=source, covers=covers))
        tables.played([1, 2])
        tables.cover([2])
        store.backfill(KEYS)
        assert read(store) == [1]
        demand_equal(store)

    # -- reading -------------------------------------------------------------------------------

    def test_the_newest_come_first_and_after_continues(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played(range(1, 31))
        assert read(store, Ask(3)) == [30, 29, 28] == store.anti_join(Ask(3))
        assert read(store, Ask(3, after=28)) == [27, 26, 25] == store.anti_join(Ask(3, after=28))
        assert read(store, Ask(3, after=2)) == [1]
        tables.cover(range(5, 31))
        assert read(store, Ask(3)) == [4, 3, 2] == store.anti_join(Ask(3))

    def test_or_the_oldest(self, tables: UserTables) -> None:
        store = created(tables, tables.spec(newest_first=False))
        tables.played(range(1, 11))
        tables.cover([2])
        assert read(store, Ask(3)) == [1, 3, 4] == store.anti_join(Ask(3))
        assert read(store, Ask(3, after=4)) == [5, 6, 7] == store.anti_join(Ask(3, after=4))

    def test_keys_settle_by_the_earliest_of_their_rows(self, tables: UserTables) -> None:
        store = created(tables)
        for hour in range(4):
            tables.played([hour + 1], at=START + timedelta(hours=hour))
        tables.played([3], at=START)
        tables.played([1], at=START + timedelta(hours=5))
        settled = START + timedelta(hours=1)
        for ask in (Ask(10, settled), Ask(2, settled), Ask(10, START), Ask(10, START - timedelta(seconds=1))):
            assert read(store, ask) == store.anti_join(ask)
        assert read(store, Ask(10, settled)) == [3, 2, 1]
        assert store.read(Ask(1, settled))[0].event_time == START
        assert read(store, Ask(2, settled, after=3)) == [2, 1]

    def test_a_key_without_an_event_time_has_nothing_to_wait_for(self, tables: UserTables) -> None:
        """Nor would it ever be given, since no time makes one older. A row that has one says it for its key."""
        spec, names = tables.spec(), tables.names
        account, happened = tables.quoted(names.account), tables.quoted(names.happened)
        time = f"CASE WHEN {account} = 2 THEN NULL ELSE {happened} END"
        store = tables.open(replace(spec, source=replace(spec.source, event_time=time)))
        tables.played([1, 2], account=2)
        store.create()
        store.backfill(KEYS)
        tables.played([3, 4, 5], account=2)
        late = START + timedelta(hours=2)
        tables.played([2, 4], at=late)
        tables.played([4], account=2)
        tables.cover([5])
        asks = (Ask(10, START), Ask(2, START), Ask(10, late), Ask(10))
        assert [read(store, ask) for ask in asks] == [store.anti_join(ask) for ask in asks]
        assert [read(store, ask) for ask in asks] == [[3, 1], [3, 1], [4, 3, 2, 1], [4, 3, 2, 1]]
        tables.uncover([5])
        assert read(store, Ask(10, START)) == [5, 3, 1]
        assert store.read(Ask(1, START))[0].event_time is None

    def test_a_queue_without_event_times_waits_for_nothing(self, tables: UserTables) -> None:
        spec = tables.spec()
        store = created(tables, replace(spec, source=replace(spec.source, event_time=None)))
        tables.played([1])
        assert [(offer.key, offer.event_time) for offer in store.read(Ask(5))] == [(1, None)]

    def test_those_of_some_participants_are_read(self, tables: UserTables) -> None:
        store = tables.open(tables.spec(participants=tables.names.account))
        tables.played([1, 2], account=7)
        store.create()
        store.backfill(KEYS)
        tables.played([2, 3], account=8)
        tables.played([4], account=9)
        tables.played([5], account=7)
        tables.cover([5])
        for participants, keys in {
            (7,): [2, 1],
            (8,): [3, 2],
            (7, 8): [3, 2, 1],
            (9,): [4],
            (10,): [],
            (): None,
        }.items():
            ask = Ask(10, participants=participants)
            assert read(store, ask) == store.anti_join(ask) == (keys if keys is not None else [4, 3, 2, 1])
        assert read(store, Ask(1, after=3, participants=(7, 8))) == [2]
        tables.uncover([5])
        assert read(store, Ask(1, participants=(7,))) == [5]

    def test_printed_statements_name_the_queue(self, tables: UserTables) -> None:
        store = created(tables)
        assert "instep:queue:salts" in store.read_statement(Ask(5))
        assert "instep:queue:salts:legacy" in store.anti_join_statement(Ask(5))

    def test_confirm_gives_the_keys_pending_now(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1, 2, 3, 2_000_000])
        tables.cover([2])
        assert store.confirm([1, 2, 3, 4, 2_000_000]) == {1, 3}
        assert store.confirm([]) == set()

    # -- consuming -----------------------------------------------------------------------------

    def test_withdrawn_keys_stay_pending_and_are_not_read(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1, 2, 3])
        store.withdraw([offer for offer in store.read(EVERYTHING) if offer.key != 2])
        assert read(store) == [2]
        assert store.confirm([1, 2, 3]) == {1, 2, 3}
        assert store.compare(KEYS).missing == (1, 3)
        store.clean()
        store.offer([1, 9])
        assert read(store) == [2, 1]
        store.withdraw([])
        store.offer([])

    def test_a_key_that_was_offered_again_is_not_withdrawn(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1, 2])
        old = store.read(EVERYTHING)
        store.offer([2])
        tables.cover([1])
        tables.uncover([1])
        new = {offer.key: offer.version for offer in store.read(EVERYTHING)}
        assert all(new[offer.key] > offer.version for offer in old)
        store.withdraw(old)
        assert read(store) == [2, 1]
        store.withdraw(store.read(EVERYTHING))
        assert read(store) == []

    def test_offering_does_not_uncover(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1, 2])
        tables.cover([1])
        store.acknowledge([2])
        store.offer([1, 2, 3])
        assert read(store) == []

    def test_acknowledged_keys_are_covered_until_they_are_reopened(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1, 2, 3])
        store.acknowledge([2, 3, 9, 2])
        tables.played([2, 9])
        assert read(store) == [1]
        demand_equal(store)
        tables.cover([3])
        store.reopen([2, 3, 4])
        assert read(store) == [2, 1]
        store.acknowledge([2])
        store.acknowledge([])
        store.reopen([])
        assert read(store) == [1]

    def test_reopening_offers_withdrawn_keys(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1])
        store.withdraw(store.read(EVERYTHING))
        store.reopen([1])
        assert read(store) == [1]

    # -- upkeep --------------------------------------------------------------------------------

    def test_compare_finds_missing_keys_in_its_range(self, tables: UserTables) -> None:
        tables.played(range(1, NAMED + 1501))
        store = created(tables)
        tables.played([NAMED + 2000])
        some = KeyRange(0, NAMED + 1000)
        compared = store.compare(some)
        assert (compared.pending, compared.missing_count, compared.surplus_count) == (NAMED + 1000, NAMED + 1000, 0)
        assert compared.missing == tuple(range(1, NAMED + 1)), "the lowest"
        assert store.compare(KeyRange(NAMED + 1500, NAMED + 4000)).missing == ()
        store.offer(compared.missing)
        assert store.compare(some).missing_count == 1000
        assert store.backfill(KEYS).pending == NAMED + 1501

    def test_parts_have_so_many_keys_each(self, tables: UserTables) -> None:
        """However many rows a key has, and however far apart keys are."""
        store = tables.open(tables.spec())
        tables.played([1, 1, 2, 3, 900, 900, 900, 90_000, 2_000_000])
        tables.played([4], kind="private")
        assert (bounds := store.bounds()) is not None
        assert bounds.upto == 90_000
        assert bounds.holds(1)
        assert not bounds.holds(-20)
        assert [store.edge(KEYS, size) for size in (1, 2, 3, 4, 5, 6)] == [1, 2, 3, 900, None, None]
        assert [store.edge(KeyRange(after, 900), 1) for after in (0, 2, 3, 900)] == [1, 3, None, None]

    def test_keys_out_of_range_are_garbage(self, tables: UserTables) -> None:
        tables.played([0, 2])
        tables.cover([2**62])
        store = created(tables)
        store.backfill(KEYS)
        tables.played([-5, 3, 1_000_000, 3 * 2**60])
        tables.cover([2**61], by=tables.names.players)
        store.acknowledge([0])
        assert read(store) == [3, 2] == store.anti_join(EVERYTHING)
        assert (bounds := store.bounds()) is not None
        assert bounds.upto == 3
        assert bounds.holds(2)
        assert not bounds.holds(-20)
        names = tables.names
        assert store.garbage() == {names.history: 4, names.salts: 1, names.players: 1}
        demand_equal(store)

    def test_counts_are_those_of_offers(self, tables: UserTables) -> None:
        store = created(tables)
        assert store.bounds() is None
        tables.played(range(1, 11))
        tables.cover([1, 2, 3])
        store.withdraw(store.read(Ask(2)))
        store.clean()
        counts = store.counts()
        assert (counts.offered, counts.withdrawn) == (5, 0)
        assert counts.bytes is None or counts.bytes > 0
        assert store.clean() == 0

    def test_words_are_kept(self, tables: UserTables) -> None:
        store = created(tables)
        assert store.recall() == {}
        store.remember("phase", "back'fill")
        store.remember("phase", "verif\\y")
        store.remember("at", "%s {} \n12")
        assert tables.open(tables.spec()).recall() == {"phase": "verif\\y", "at": "%s {} \n12"}
        store.create()
        assert store.recall()["phase"] == "verif\\y"

    def test_observing_names_its_own_queries(self, tables: UserTables) -> None:
        """Where the engine counts queries at all."""
        store = created(tables)
        tables.played([1])
        store.read(EVERYTHING)
        with contextlib.suppress(UserError):
            seen = store.observe(datetime.now(UTC) - timedelta(hours=1))
            assert {each.comment for each in seen} <= {"instep:queue:salts", "instep:queue:salts:legacy"}
        store.close()
