"""What every engine does with texts as keys of a queue, whatever is in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from instep.domain.pending_queue import MAX_TEXT, KeyRange, QueueKey
from instep.queues.engines.queue_engine import Ask, PendingStore
from tests.contracts.pending_tables import EVERYTHING, UserTables, read

#: In the order of their bytes, which is no language's: capitals first, and accents behind all letters.
TEXTS: Final = (
    "",
    " ",
    " a",
    "\n",
    '"',
    "$1",
    "%s",
    "'",
    "'; DROP TABLE history; --",
    "-5",
    "007",
    "7",
    "{}",
    "A",
    "B",
    "NULL",
    "\\",
    "\\x41",
    "a",
    "a ",
    "a\tb",
    "x" * MAX_TEXT,
    "é",
    "e\u0301",
    "日本",
    "\uffee",
    "\U0001f600",
    "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
)
IN_ORDER: Final = sorted(TEXTS)
TOO_LONG: Final = "y" * (MAX_TEXT + 1)


class TextsContract:
    """Inherit, and provide the fixture `texts`, whose `open` is of the engine itself."""

    @pytest.fixture
    def store(self, texts: UserTables) -> PendingStore:
        store = texts.open(replace(texts.spec(), keys=KeyRange()))
        store.create()
        return store

    def test_texts_are_read_in_the_order_of_their_bytes(self, texts: UserTables, store: PendingStore) -> None:
        texts.played(TEXTS)
        assert read(store) == IN_ORDER[::-1] == store.anti_join(EVERYTHING)
        for after in IN_ORDER:
            ask = Ask(3, after=after)
            place = IN_ORDER.index(after)
            assert read(store, ask) == IN_ORDER[max(0, place - 3) : place][::-1] == store.anti_join(ask)

    def test_texts_are_told_apart_by_each_operation(self, texts: UserTables, store: PendingStore) -> None:
        texts.played(TEXTS)
        left = list(IN_ORDER)
        for key in TEXTS:
            assert store.confirm([key]) == {key}
            store.acknowledge([key])
            left.remove(key)
            assert read(store) == left[::-1]
        store.reopen(TEXTS)
        assert read(store) == IN_ORDER[::-1]
        for key in TEXTS[::2]:
            texts.cover([key])
        rest = sorted(TEXTS[1::2])
        assert read(store) == rest[::-1]
        store.withdraw(store.read(EVERYTHING))
        assert read(store) == []
        compared = store.compare(KeyRange())
        assert compared.missing == tuple(rest)
        store.offer(compared.missing)
        assert read(store) == rest[::-1]

    def test_texts_are_cut_into_parts(self, texts: UserTables, store: PendingStore) -> None:
        texts.played(TEXTS)
        store.drop()
        store.create()
        keys, found = store.bounds(), list[QueueKey]()
        assert keys is not None
        assert (keys.after, keys.upto) == (None, IN_ORDER[-1])
        rest = keys
        while (last := store.edge(rest, 5)) is not None:
            assert store.backfill(KeyRange(rest.after, last)).keys == 5
            found.append(last)
            rest = KeyRange(last, rest.upto)
        assert found == IN_ORDER[4:-1:5]
        store.backfill(rest)
        assert read(store) == IN_ORDER[::-1]

    def test_what_no_key_can_be_is_never_offered_and_is_counted(self, texts: UserTables, store: PendingStore) -> None:
        texts.played(["a", TOO_LONG, *([] if texts.insert_only else [None])])
        texts.cover([TOO_LONG])
        store.backfill(KeyRange())
        assert read(store) == ["a"] == store.anti_join(EVERYTHING)
        assert store.compare(KeyRange()).missing == ()
        names = texts.names
        assert store.garbage() == {names.history: 1, names.salts: 1, names.players: 0}
