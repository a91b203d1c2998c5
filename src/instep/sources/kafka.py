"""A topic in Kafka: its partitions, how far they go, and its messages between two offsets. No group of consumers is
joined, so nothing is rebalanced: partitions are assigned, and offsets are the ledger's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from instep.domain.topic_offsets import Offsets
from instep.errors import Away, InstepError, UserError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

#: Seconds for one answer of the brokers.
_ANSWER: Final = 6.0
#: Without a message for so many seconds, the brokers are away.
_SILENCE: Final = 20.0
#: Few enough to be in the cache of the processor when they are taken apart.
_AT_ONCE: Final = 500
_NO_TIMESTAMP: Final = 0
#: Clocks of producers may be so far ahead, in milliseconds.
_AHEAD: Final = 86_400_000


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message. `time` is its timestamp in milliseconds, 0 if it has none."""

    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None


class State(NamedTuple):
    """The offsets of the first messages that are there, and those that come next."""

    first: Mapping[int, int]
    end: Offsets


@dataclass(frozen=True)
class KafkaTopic:
    """The place of a topic. `settings` are those of librdkafka; they may hold a password."""

    servers: str
    name: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def state(self) -> State:
        """Raises `UserError` when there is no such topic, `Away` when no broker answers."""
        kafka = _library()
        admin, said = _admin(self)
        said.refused = False
        specs = kafka.admin.OffsetSpec

        try:
            topics = kafka.TopicCollection([self.name])
            found = admin.describe_topics(topics, request_timeout=_ANSWER)[self.name].result(_ANSWER + 1)
            places = [kafka.TopicPartition(self.name, each.id) for each in found.partitions]
            ends = self._offsets(admin, places, specs.latest())
            first = self._offsets(admin, places, specs.earliest())
        except (kafka.KafkaException, TimeoutError) as error:
            admin.poll(0)  # What it says beside its answers.
            raise self._problem(error, said) from None
        return State(first, Offsets(str(found.topic_id), ends))

    def _offsets(self, admin: AdminClient, places: list[Any], spec: Any) -> dict[int, int]:
        from confluent_kafka import IsolationLevel

        asked = admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ANSWER
        )
        return {place.partition: answer.result(_ANSWER + 1).offset for place, answer in asked.items()}

    def within(self, start: Offsets, end: Offsets, most: int) -> Offsets:
        """The end, or an earlier one with about so many messages since the start: of all partitions those up to the
        same moment, so that a document whose key has moved to another partition keeps its newest message. Where the
        timestamps do not tell (all are the same, or there are none), the same share of each partition.
        """
        if end.waiting(start) <= most:
            return end
        earlier, later = 0, round(time.time() * 1000) + _AHEAD
        found = start
        while later - earlier > 1 and found.waiting(start) < most // 2:
            middle = (earlier + later) // 2
            some = self._until(middle, start, end)
            if some.waiting(start) > most:
                later = middle
            else:
                earlier, found = middle, some
        return found if found.waiting(start) else end.within(start, most)

    def _until(self, moment: int, start: Offsets, end: Offsets) -> Offsets:
        """The first offset of each partition that is not before this moment (in milliseconds)."""
        return end.up_to(self._at(moment, end), start)

    def since(self, moment: int, start: Offsets) -> Offsets:
        """The start, or earlier offsets: all messages behind them that are not before this moment (in milliseconds)."""
        found = self._at(moment, start).next
        return Offsets(start.topic, {each: min(offset, found[each]) for each, offset in start.next.items()})

    def _at(self, moment: int, end: Offsets) -> Offsets:
        """The first offset of each partition that is not before this moment; the end where there is none."""
        kafka = _library()
        admin, said = _admin(self)
        places = [kafka.TopicPartition(self.name, each) for each in end.next]
        try:
            found = self._offsets(admin, places, kafka.admin.OffsetSpec.for_timestamp(moment))
        except (kafka.KafkaException, TimeoutError) as error:
            raise self._problem(error, said) from None
        there = {each: found[each] if found[each] >= 0 else last for each, last in end.next.items()}
        return Offsets(end.topic, there)

    def tombstones_kept(self) -> int | None:
        """The milliseconds for which a topic that is compacted keeps its tombstones; None if it is not, or nobody may
        know.
        """
        kafka = _library()
        admin, _ = _admin(self)
        asked = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, self.name)
        try:
            settings = admin.describe_configs([asked], request_timeout=_ANSWER)[asked].result(_ANSWER + 1)
            compacted = "compact" in settings["cleanup.policy"].value
            return int(settings["delete.retention.ms"].value) if compacted else None
        except (kafka.KafkaException, TimeoutError, KeyError, TypeError, ValueError):
            return None  # Not all that speak Kafka's protocol say all of it.

    def messages(self, start: Offsets, end: Offsets) -> Iterator[Message]:
        """Those from the start to before the end: of each partition in its order."""
        kafka, said = _library(), _Said()
        ends = {each: offset for each, offset in end.next.items() if start.next[each] < offset}
        if not ends:
            return
        consumer = kafka.Consumer({**_client_settings(self, said), **_READING})
        try:
            consumer.assign([kafka.TopicPartition(self.name, each, start.next[each]) for each in ends])
            yield from self._read(consumer, ends, said)
        except kafka.KafkaException as error:
            raise self._problem(error, said) from None
        finally:
            consumer.close()

    def _read(self, consumer: Any, ends: dict[int, int], said: _Said) -> Iterator[Message]:
        kafka, heard = _library(), time.monotonic()
        while ends:
            found = consumer.consume(_AT_ONCE, timeout=0.1)
            if found:
                heard = time.monotonic()
            elif said.refused or time.monotonic() - heard > _SILENCE:
                raise self._problem(None, said)
            for each in found:
                partition, error = each.partition(), each.error()
                if error is not None:
                    if error.code() != kafka.KafkaError._PARTITION_EOF:
                        raise kafka.KafkaException(error)
                    # The last offsets were compacted, or are marks of transactions. A broker that has just become the
                    # leader may not have all of them yet.
                    if each.offset() >= ends.get(partition, 0):
                        ends.pop(partition, None)
                    continue
                offset, last = each.offset(), ends.get(partition, 0) - 1
                if offset <= last:
                    kind, stamp = each.timestamp()
                    yield Message(partition, offset, stamp if kind else _NO_TIMESTAMP, each.key(), each.value())
                if offset >= last:
                    ends.pop(partition, None)

    def _problem(self, error: Exception | None, said: _Said) -> InstepError:
        """Nothing of what the client says is repeated: it may hold what is secret."""
        code = _library().KafkaError
        found = error.args[0] if error is not None and error.args else None
        number = found.code() if isinstance(found, code) else None
        if said.refused or number in (code._AUTHENTICATION, code.SASL_AUTHENTICATION_FAILED):
            hint = "Check `user`, `password`, `mechanism` and `security` of the source."
            return UserError("Kafka refuses the login", where=self.text, hint=hint)
        if number in (code.UNKNOWN_TOPIC_OR_PART, code._UNKNOWN_TOPIC):
            return UserError("there is no such topic", where=self.text, hint="Check `topic`, or create the topic.")
        if number in (code.TOPIC_AUTHORIZATION_FAILED, code.CLUSTER_AUTHORIZATION_FAILED):
            return UserError("Kafka gives no right to read it", where=self.text, hint="It needs Describe and Read.")
        if number in (code.OFFSET_OUT_OF_RANGE, code._AUTO_OFFSET_RESET):
            return UserError("messages were deleted while they were read", where=self.text, hint="Run again.")
        return Away(
            "no broker of Kafka answers", where=self.text, hint="Check `servers`, and whether the brokers are up."
        )

    @property
    def text(self) -> str:
        """For people; without secrets."""
        return f"topic {self.name} at {self.servers}"


#: Offsets are told by us, and an offset that is not there is an error and not another one.
_READING: Final[Mapping[str, Any]] = {
    "group.id": "instep",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
    "queued.max.messages.kbytes": 65_536,
}


class _Said:
    """The errors that a client tells beside its answers."""

    def __init__(self) -> None:
        self.refused = False

    def __call__(self, error: KafkaError) -> None:
        kafka = _library().KafkaError
        self.refused = self.refused or error.code() in (kafka._AUTHENTICATION, kafka.SASL_AUTHENTICATION_FAILED)


def _client_settings(topic: KafkaTopic, said: _Said) -> dict[str, Any]:
    return {
        "client.id": "instep",
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 1_000,
        **dict(topic.settings),
        "bootstrap.servers": topic.servers,
        "error_cb": said,
    }


@cache
def _admin(topic: KafkaTopic) -> tuple[AdminClient, _Said]:
    """Kept: it holds connections."""
    said = _Said()
    return _library().admin.AdminClient(_client_settings(topic, said)), said


def _library() -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise UserError("Kafka needs confluent-kafka", hint="pip install 'instep[kafka]'") from None
    return confluent_kafka
