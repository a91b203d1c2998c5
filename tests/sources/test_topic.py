"""The newest messages of documents, in whatever order the partitions of their topic are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given
from hypothesis import strategies as st

from instep.domain.topic_offsets import Offsets
from instep.sources import kafka
from instep.sources.debezium import DebeziumLines
from instep.sources.kafka import KafkaTopic, Message
from instep.sources.topic import _FLAW, TopicSource, _Newest

SOURCE = TopicSource("Ticket", KafkaTopic("nowhere:1", "tickets"), DebeziumLines(("id",), "body"), 1_000)


class Event(NamedTuple):
    """A change of a row, or of the whole table if it has no `row`. `there`: the row is there then; None of a message
    that cannot be read, and changes nothing.
    """

    partition: int
    row: int | None
    there: bool | None = True

    def message(self, moment: int) -> Message:
        """With the moment as its offset and text."""
        if self.row is None:
            return Message(self.partition, moment, moment, None, b'{"op": "t"}')
        key, row = json.dumps({"id": self.row}).encode(), {"id": self.row, "body": str(moment)}
        if self.there is None:
            return Message(self.partition, moment, moment, key, b'{"op": "?"}')
        said = {"op": "u", "after": row} if self.there else {"op": "d", "before": row}
        return Message(self.partition, moment, moment, key, json.dumps(said).encode())


PUTS = st.builds(Event, st.integers(0, 2), st.integers(0, 3), st.sampled_from([True, False, None]))
EMPTIED = st.builds(Event, st.integers(0, 2), st.none())


def versions(messages: list[Message]) -> dict[str, str]:
    """The versions of documents that are there, by URI, without failures."""
    newest = _Newest(SOURCE, None)
    for each in messages:
        newest.add(each)
    documents = newest.listing().documents
    return {each.uri: each.version for each in documents if not (each.locator or "").startswith(_FLAW)}


@given(events=st.lists(st.one_of(PUTS, PUTS, PUTS, EMPTIED), max_size=12), order=st.permutations([0, 1, 2]))
@example(events=[Event(0, None), Event(0, 1), Event(1, None)], order=[1, 0, 2])
@example(events=[Event(0, 1), Event(1, 1, None)], order=[1, 0, 2])
@example(events=[Event(0, 1), Event(0, 1, False), Event(1, 1, None)], order=[1, 0, 2])
def test_in_whatever_order_partitions_are_read_what_was_last_counts(events: list[Event], order: list[int]) -> None:
    happened = [each.message(moment) for moment, each in enumerate(events, 1)]
    there: dict[int, Message] = {}
    for event, message in zip(events, happened, strict=True):
        if event.row is None:
            there.clear()
        elif event.there is None:
            continue
        elif event.there:
            there[event.row] = message
        else:
            there.pop(event.row, None)
    read = [each for partition in order for each in happened if each.partition == partition]
    wanted = {f"feed://Ticket/{row}": f"tickets/{each.partition}/{each.offset}" for row, each in there.items()}
    assert versions(read) == wanted


def changed(moment: int, time: int, row: int | None, source: dict[str, Any], *, schema: bool = False) -> Message:
    """A row that is put into its own partition, or an emptied table in another."""
    after = None if row is None else {"id": row, "body": "text"}
    event: dict[str, Any] = {"op": "t" if row is None else "c", "after": after, "source": source}
    value = {"schema": {}, "payload": event} if schema else event
    return Message(9 if row is None else row, moment, time, None, json.dumps(value).encode())


@given(
    events=st.lists(st.one_of(st.integers(0, 2), st.integers(0, 2), st.none()), max_size=12),
    order=st.permutations([0, 1, 2, 9]),
    log=st.sampled_from(["postgres", "mysql"]),
    schema=st.booleans(),
)
def test_of_one_millisecond_the_log_of_the_database_says_which_rows_an_emptied_table_still_had(
    events: list[int | None], order: list[int], log: str, schema: bool
) -> None:
    """As when a connector catches up, or empties and fills a table in one transaction."""
    happened, there = [], dict[int, Message]()
    for moment, row in enumerate(events, 1):
        place = {"lsn": moment} if log == "postgres" else {"file": f"log.{9 + moment // 4}", "pos": 4 + moment % 4}
        happened.append(changed(moment, moment // 5, row, place, schema=schema))
        there = {} if row is None else there | {row: happened[-1]}
    read = [each for partition in order for each in happened if each.partition == partition]
    wanted = {f"feed://Ticket/{row}": f"tickets/{each.partition}/{each.offset}" for row, each in there.items()}
    assert versions(read) == wanted


@pytest.mark.parametrize("source", [{}, {"lsn": None, "pos": 4}, {"file": 5}, {"scn": "12"}], ids=str)
def test_a_row_of_the_millisecond_in_which_a_table_was_emptied_stays_unless_it_is_known_to_be_older(
    source: dict[str, Any],
) -> None:
    row, emptied = changed(1, 5, 0, source), changed(2, 5, None, source)
    assert versions([row, emptied]) == versions([emptied, row]) == {"feed://Ticket/0": "tickets/0/1"}


def test_a_row_whose_key_changes_leaves_no_document_behind() -> None:
    """As of a key that is not the primary one. What another row puts under the former key later stays."""

    def moved(moment: int, before: int | None, after: int, partition: int = 0) -> Message:
        rows = [None if each is None else {"id": each, "body": str(moment)} for each in (before, after)]
        said = {"op": "u", "before": rows[0], "after": rows[1]}
        return Message(partition, moment, moment, b'{"primary": 7}', json.dumps(said).encode())

    newest = _Newest(SOURCE, None)
    for each in (moved(1, None, 1), moved(2, 1, 2), moved(4, None, 3, partition=1), moved(3, 3, 5)):
        newest.add(each)
    listing = newest.listing()
    assert {each.uri: each.version for each in listing.documents} == {
        "feed://Ticket/2": "tickets/0/2",
        "feed://Ticket/3": "tickets/1/4",
        "feed://Ticket/5": "tickets/0/3",
    }
    assert list(listing.deleted) == ["feed://Ticket/1"]


class _Heard:
    """What a client of Kafka hands on: a message, or that it has come to the end."""

    def __init__(self, offset: int, *, ends: bool = False) -> None:
        self._offset, self._ends = offset, ends

    def __getattr__(self, name: str) -> Callable[[], object]:
        said: dict[str, object] = {
            "partition": 0,
            "offset": self._offset,
            "timestamp": (1, 7),
            "key": b"k",
            "value": b"v",
        }
        return lambda: said[name]

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._ends else None


def test_a_new_leader_that_has_not_all_messages_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that the partition ends before the offset up to which messages were there."""
    answers = [[_Heard(0), _Heard(1, ends=True)], [], [_Heard(1), _Heard(2, ends=True)], [_Heard(3, ends=True)]]

    class Consumer:
        def __init__(self, settings: object) -> None: ...

        def assign(self, places: object) -> None: ...

        def consume(self, most: int, timeout: float) -> list[_Heard]:
            return answers.pop(0)

        def close(self) -> None: ...

    monkeypatch.setattr(kafka._library(), "Consumer", Consumer)
    topic = KafkaTopic("nowhere:1", "tickets")
    read = [each.offset for each in topic.messages(Offsets("t", {0: 0}), Offsets("t", {0: 3}))]
    assert (read, answers) == ([0, 1], [])
