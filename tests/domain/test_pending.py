"""A key's state is merged by maximum: no order of events, and no repetition, makes another queue of them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.pending_queue import (
    LARGEST_KEY,
    LOWEST_KEY,
    MAX_TEXT,
    KeyKind,
    KeyRange,
    QueueCover,
    QueueKey,
    QueueSource,
    QueueSpec,
    at_most,
    before,
    beyond,
    covers,
    pending,
    register,
)

#: Cover (or None: the source), version, covered.
Event = tuple[int | None, int, bool]
COVERS = 2
EVENTS = st.lists(
    st.tuples(st.sampled_from([None, *range(COVERS)]), st.integers(1, 4), st.booleans()), min_size=1, max_size=8
)


def merged(events: Iterable[Event]) -> tuple[bool, list[int]]:
    seen, registers = False, [0] * COVERS
    for cover, version, covered in events:
        if cover is None:
            seen = True
        else:
            registers[cover] = max(registers[cover], register(version, covered=covered))
    return seen, registers


def expected(events: list[Event]) -> bool:
    """By the latest event of each cover; of two with one version (a tie), the one that covers."""
    latest = [
        max(((v, c) for cover, v, c in events if cover == number), default=(0, False)) for number in range(COVERS)
    ]
    return any(cover is None for cover, _, _ in events) and not any(covered for _, covered in latest)


@given(EVENTS, st.data())
def test_every_order_and_repetition_gives_the_same_queue(events: list[Event], data: st.DataObject) -> None:
    replayed = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=4))))
    seen, registers = merged(replayed)
    assert (seen, registers) == merged(events)
    assert pending(seen=seen, registers=registers) == expected(events)


def test_a_cover_is_taken_back_by_a_later_event_and_not_by_an_earlier_one() -> None:
    assert covers(max(register(1, covered=False), register(2, covered=True)))
    assert not covers(max(register(3, covered=False), register(2, covered=True)))
    assert not covers(0)


def test_a_queue_of_before_covers_had_versions_is_declared_as_it_was() -> None:
    """Else it would be taken for one of another declaration, and refused."""
    covers = (QueueCover("salts", "good", "lost"), QueueCover("players", "good", "lost", "created_at"))
    source, keys = QueueSource("history", None, None), KeyRange(-1, 8)
    spec = QueueSpec("q", "id", source, covers, keys, timedelta(1), newest_first=True, participants=None)
    salts = {"table": "salts", "where": "good", "uncovered": "lost"}
    assert spec.declared() == {
        "name": "q",
        "key": "id",
        "source": {"table": "history", "where": None, "event_time": None},
        "covers": (salts, {**salts, "table": "players", "version": "created_at"}),
        "keys": {"lowest": 0, "below": 9},
        "participants": None,
    }


@pytest.mark.parametrize(
    ("kind", "said", "key"),
    [
        (KeyKind.INTEGER, 7, 7),
        (KeyKind.INTEGER, 2**63, None),
        (KeyKind.INTEGER, True, None),
        (KeyKind.INTEGER, "7", None),
        (KeyKind.TEXT, "7", "7"),
        (KeyKind.TEXT, 7, None),
        (KeyKind.TEXT, "", ""),
        (KeyKind.TEXT, "a\0b", None),
        (KeyKind.TEXT, "\ud800", None),
        (KeyKind.TEXT, "\U0001f600\n", "\U0001f600\n"),
        (KeyKind.TEXT, "é" * (MAX_TEXT // 2), "é" * (MAX_TEXT // 2)),
        (KeyKind.TEXT, "é" * (MAX_TEXT // 2) + "e", None),
        (KeyKind.UUID, "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        (KeyKind.UUID, "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}", None),
        (KeyKind.UUID, "6ba7b8109dad11d180b400c04fd430c8", None),
        (KeyKind.UUID, "", None),
        (KeyKind.UUID, 7, None),
    ],
)
def test_a_key_is_of_the_type_that_the_queue_has(kind: KeyKind, said: QueueKey, key: QueueKey | None) -> None:
    assert kind.key(said) == key
    assert type(kind.key(said)) is type(key)


def test_a_queue_of_texts_is_declared_by_their_type() -> None:
    source = QueueSource("history", None, None)
    spec = QueueSpec("q", "id", source, (), KeyRange(), timedelta(1), True, None, KeyKind.TEXT)
    assert spec.declared()["keys"] == "text"
    assert spec.declared().keys() == replace(spec, keys=KeyRange(0, 9), kind=KeyKind.INTEGER).declared().keys()


_KEYS = st.one_of(
    st.integers(LOWEST_KEY, LARGEST_KEY),
    st.uuids().map(str),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
)


@given(_KEYS)
def test_a_key_lies_between_its_bounds_which_every_database_can_hold(key: QueueKey) -> None:
    lower, upper = before(key), beyond(key)
    assert lower is None or lower < key
    assert upper is None or (upper > key and "\0" not in str(upper))


def test_the_last_keys_have_no_bound_behind_them() -> None:
    assert [beyond(each) for each in (LARGEST_KEY, f"{'f' * 8}-ffff-ffff-ffff-{'f' * 12}")] == [None, None]
    assert beyond("6ba7b810-9dad-11d1-80b4-00c04fd430ff") == "6ba7b810-9dad-11d1-80b4-00c04fd43100"


def test_texts_are_counted_by_their_letters_and_numbers_are_not() -> None:
    assert at_most([], 0) == 0
    assert at_most([10**18] * 9, 1) == 9
    assert [at_most(["", "ab", "é", ""], letters) for letters in (0, 1, 2, 3)] == [1, 1, 2, 4]
