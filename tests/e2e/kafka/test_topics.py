"""Documents of a topic, with a broker of Kafka and Lance: what is indexed is what the newest messages say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

import instep
from instep.entities.plan_request import Found
from instep.errors import Away, UserError
from instep.jobs.entity_result import EntityResult
from instep.sources.kafka import KafkaTopic
from tests.e2e.truth import stored
from tests.servers.kafka import KafkaServer, running_kafka
from tests.waiting import until

_SLOW = 60.0
_MOMENT = round(time.time() * 1000)


class Followed:
    """A project that follows a topic of its own."""

    def __init__(self, root: Path, kafka: KafkaServer, *, partitions: int = 1, **settings: str) -> None:
        self.root, self.kafka, self.topic = root, kafka, f"Tickets.{uuid.uuid4().hex[:8]}"
        self.messages = 0
        kafka.make(self.topic, partitions, **settings)
        self.declare()

    def declare(self, source: str = "", entity: str = "") -> None:
        lines = [
            "name: test",
            "targets: {index: {type: lance, uri: .instep/index}}",
            "engine: inline",
            "entities:",
            "  Ticket:",
            f"    source: {{type: kafka, servers: '{self.kafka.address}', topic: {self.topic}{source}}}",
            "    embed: {type: hashing, dimensions: 16}",
            *([f"    {entity}"] if entity else []),
        ]
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "instep.yaml").write_text("\n".join(lines) + "\n")

    def put(self, **texts: str | None) -> None:
        self.kafka.send(self.topic, [{"key": name, "value": _line(name, text)} for name, text in texts.items()])

    def send(self, *messages: dict[str, Any]) -> None:
        self.kafka.send(self.topic, messages)

    def forget(self, offset: int) -> None:
        """The topic loses what comes before this offset."""
        from confluent_kafka import TopicPartition

        admin = self.kafka.admin()
        for each in admin.delete_records([TopicPartition(self.topic, 0, offset)]).values():
            each.result(30)

    def rolled(self) -> list[str]:
        """The keys of all messages, after one more has closed the segment of those before: these can be compacted."""
        self.put(d="last")
        topic = KafkaTopic(self.kafka.address, self.topic)
        first, end = topic.state()
        return [(each.key or b"").decode() for each in topic.messages(end.begun(None, first), end)]

    def open(self) -> instep.Instep:
        return instep.load(self.root)

    def run(self, **options: Any) -> list[EntityResult]:
        return list(self.open().run(**options))

    def idle(self) -> bool:
        (plan,) = self.open().plan()
        return str(plan.kind) == "nothing"

    def texts(self) -> list[str]:
        return sorted(text for _, text in stored(self.root / ".instep" / "index", "Ticket"))


def _line(name: str, text: str | None) -> str | None:
    return None if text is None else json.dumps({"id": name, "text": text})


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    server = running_kafka()
    yield server
    server.revive()


@pytest.fixture
def place(tmp_path: Path, kafka: KafkaServer) -> Followed:
    return Followed(tmp_path / "project", kafka)


def test_the_newest_message_of_a_key_is_indexed_and_a_tombstone_deletes(place: Followed) -> None:
    place.put(a="one", b="two", c="three")
    place.put(a="one more")
    place.run()
    assert place.texts() == ["one more", "three", "two"]
    place.put(b=None, d="four", c="changed")
    place.put(c="changed again")
    (done,) = place.run()
    assert place.texts() == ["changed again", "four", "one more"]
    assert done.counts.read == 3
    assert place.idle()


def test_messages_are_read_once_though_somebody_has_taken_rows_out_of_the_index(place: Followed) -> None:
    """A process that watches would make a job of them several times a second, and never come to later messages."""
    place.put(a="one", b="two")
    place.run()
    (index,) = (place.root / ".instep" / "index").glob("Ticket__*.lance")
    lance.dataset(str(index)).delete("text = 'two'")
    place.put(a="one more")
    (result,) = place.run()
    assert any("1 rows where 2 were recorded" in each for each in result.notes)
    assert place.texts() == ["one more"]
    assert place.idle()
    place.put(c="three")
    place.open().repair()
    place.run()
    assert place.texts() == ["one more", "three", "two"]


def test_a_message_whose_id_ends_like_a_file_is_read_without_a_warning(place: Followed) -> None:
    place.put(**{f"{at}.docx": f"text {at}" for at in range(3)})
    (result,) = place.run()
    assert not result.notes
    assert place.texts() == ["text 0", "text 1", "text 2"]


def test_a_plan_says_how_many_messages_wait_and_takes_none(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.put(a="two", b="three")
    for _ in range(2):
        (plan,) = place.open().plan()
        assert f"2 messages wait in topic {place.topic}" in plan.why


def test_each_run_says_how_many_messages_failed_before(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.send({"value": b"{"}, {"key": "b", "value": b'{"id": "b"}'})
    assert [each.known_failures for each in place.run()] == [0]
    assert [each.known_failures for each in place.run()] == [2]
    place.put(b="two")
    assert [each.known_failures for each in place.run()] == [1]
    (plan,) = place.open().plan()
    assert plan.counts["known_failures"] == 1


def test_messages_of_no_document_are_failures_that_name_their_offsets_and_stop_nothing(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.send({"value": b"{"})
    place.run()
    place.put(b="two")
    place.run()
    assert place.texts() == ["one", "two"]
    (failure,) = place.open().failures()
    assert f"{place.topic}, partition 0, offset 1: not JSON" in failure.reason
    assert place.idle()


def test_the_failure_of_a_message_ends_with_the_next_one_of_its_key(place: Followed) -> None:
    place.put(a="one", b="two")
    place.run()
    place.send({"key": "a", "value": b"{"}, {"key": "c", "value": b"{"})
    place.run()
    assert place.texts() == ["one", "two"], "what is indexed stays"
    assert sorted(each.uri for each in place.open().failures()) == ["feed://Ticket/a", "feed://Ticket/c"]
    reasons = {each.uri: each.reason for each in place.open().failures()}
    assert f"{place.topic}, partition 0, offset 2: not JSON" in reasons["feed://Ticket/a"]
    place.put(a="changed", c=None)
    place.run()
    assert place.texts() == ["changed", "two"]
    assert place.open().failures() == []


@pytest.mark.parametrize("anew", [False, True], ids=["refresh", "rebuild"])
def test_a_message_that_cannot_be_read_takes_none_away_that_waited_with_it(place: Followed, anew: bool) -> None:
    place.put(a="one", b="two", c="three")
    place.run()
    place.put(a="changed", b=None)
    place.send(*({"key": each, "value": b"{"} for each in "ac"), {"key": "b", "value": b"{"})
    for number in range(60):  # A rebuild is refused where too much of it fails.
        place.put(**{f"d{number}": "more"})
    place.run(full_refresh=anew)
    assert set(place.texts()) == {"changed", "more", "three"}
    named = {each.uri for each in place.open().failures()}
    of_c = f"kafka:/{place.topic}/0/6" if anew else "feed://Ticket/c"
    assert named == {f"kafka:/{place.topic}/0/5", of_c, f"kafka:/{place.topic}/0/7"}
    place.run()
    assert place.idle()


def test_the_failure_of_a_message_without_a_key_ends_when_it_leaves_the_topic(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.send({"value": b"{"})
    place.run()
    place.run()
    assert [each.uri for each in place.open().failures()] == [f"kafka:/{place.topic}/0/1"]
    place.forget(2)
    place.run()
    assert place.open().failures() == []
    assert place.idle()


def test_the_failure_of_a_message_without_a_key_is_dismissed_and_stays_so(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.send({"value": b"{"}, {"value": b"}"}, {"key": "b", "value": b"{"})
    place.run()
    (dismissed,) = place.open().dismiss_failures([f"kafka:/{place.topic}/0/1"])
    assert dismissed.uri == f"kafka:/{place.topic}/0/1"
    assert len(place.open().dismiss_failures([f"kafka:/{place.topic}/*"], ["Ticket"])) == 1
    place.put(c="two")
    place.run()
    assert [each.uri for each in place.open().failures()] == ["feed://Ticket/b"]
    assert place.texts() == ["one", "two"]


def test_a_document_whose_key_moves_to_another_partition_keeps_its_newest_message(
    place: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from instep.entities.documents import topics

    place.put(a="one")
    place.run()
    monkeypatch.setattr(topics, "WINDOW", 4)
    now = round(time.time() * 1000)
    old = [{"key": f"k{each}", "value": _line(f"k{each}", "old"), "timestamp": now - 99 + each} for each in range(10)]
    place.send(*old)
    place.kafka.grow(place.topic, 2)
    # In jobs of as many messages of each partition, these would be taken first.
    new = [{"key": "k9", "value": _line("k9", "new"), "timestamp": now + each, "partition": 1} for each in range(2)]
    place.send(*new)
    place.run()
    assert place.texts() == ["new", *["old"] * 9, "one"]


def test_a_run_takes_what_waited_when_it_began(place: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.entities.documents import topics
    from instep.jobs.worker import Worker

    place.put(a="one")
    place.run()
    monkeypatch.setattr(topics, "WINDOW", 4)
    place.put(**{f"k{each}": "waited" for each in range(6)})
    work = Worker.work
    jobs: list[int] = []

    def worked(self: Worker, *args: Any, **options: Any) -> None:
        jobs.append(len(jobs))
        assert len(jobs) < 20, "it goes on for as long as messages come"
        # More come than one job takes; and each message of one document is one of several.
        place.put(**{f"n{len(jobs)}-{each}": "later" for each in range(5)})
        work(self, *args, **options)

    monkeypatch.setattr(Worker, "work", worked)
    place.run()
    assert place.texts().count("waited") == 6
    assert place.texts().count("later") == 0
    assert not place.idle()


@pytest.mark.parametrize("built", [True, False], ids=["rebuild", "first build"])
def test_messages_that_come_while_it_builds_are_read_next_and_not_said_to_be_there(
    place: Followed, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    from instep.ledger.jobs import Jobs
    from instep.targets.lance.target import LanceTarget

    place.put(a="one")
    if built:
        place.run()
    begin, commit, wanted = Jobs.begin, LanceTarget.commit, []

    def sends(real: Callable[..., Any], **texts: str) -> Callable[..., Any]:
        def first(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(Jobs if real is begin else LanceTarget, real.__name__, real)
            place.put(**texts)
            wanted.append(place.open().want(["Ticket"], fresh_within=timedelta()).id)
            return real(*args, **kwargs)

        return first

    monkeypatch.setattr(Jobs, "begin", sends(begin, a="changed before the job", b="before the job"))
    monkeypatch.setattr(LanceTarget, "commit", sends(commit, c="in the job"))
    place.run(full_refresh=built)
    assert place.texts() == ["one"]
    assert [place.open().want_of(each).state for each in wanted] == ["Idle", "Idle"]
    place.run()
    assert place.texts() == ["before the job", "changed before the job", "in the job"]
    assert [place.open().want_of(each).state for each in wanted] == ["Successful", "Successful"]


def test_a_run_goes_on_when_many_messages_are_of_one_document(place: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.entities.documents import topics

    place.put(a="one")
    place.run()
    monkeypatch.setattr(topics, "WINDOW", 4)
    sent = [{"key": "b", "value": _line("b", f"text {each}"), "timestamp": _MOMENT} for each in range(12)]
    place.send(*sent, {"key": "c", "value": _line("c", "last"), "timestamp": _MOMENT})
    place.run()
    assert place.texts() == ["last", "one", "text 11"]
    assert place.idle()


def test_messages_that_change_nothing_are_not_read_again(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.put(z=None)
    place.run()
    assert place.idle()


def test_a_row_says_which_message_it_came_from(place: Followed) -> None:
    place.put(a="one", b="two")
    place.run()
    found = place.open().why("Ticket", "feed://Ticket/b")
    assert found.row["source_version"] == f"{place.topic}/0/1"


def test_debezium_events_and_their_tombstones(place: Followed) -> None:
    place.declare(", format: debezium", "document: {key: id, text: body}")

    def event(op: str, number: int, body: str | None) -> dict[str, Any]:
        side = "before" if op == "d" else "after"
        return {"key": json.dumps({"id": number}), "value": json.dumps({"op": op, side: {"id": number, "body": body}})}

    place.send(event("r", 1, "one"), event("r", 2, "two"), event("c", 3, "three"))
    place.run()
    place.send(event("u", 1, "one more"), event("d", 2, None), {"key": '{"payload": {"id": 3}}', "value": None})
    place.run()
    assert place.texts() == ["one more"]
    place.send({"value": json.dumps({"op": "t"})}, event("c", 4, "four"))
    with pytest.raises(UserError, match="gone from the source"):
        place.run()
    place.run(allow_deletes=True)
    assert place.texts() == ["four"]


def test_an_emptied_table_takes_no_row_away_that_an_earlier_run_has_read_of_another_partition(place: Followed) -> None:
    """That it was emptied is told in one partition, which may come to us after later messages of others."""
    place.declare(", format: debezium", "document: {key: id, text: body}")
    place.kafka.grow(place.topic, 3)

    def event(partition: int, time: int, number: int | None) -> dict[str, Any]:
        row = None if number is None else {"id": number, "body": f"row {number}"}
        value = {"op": "t" if row is None else "c", "after": row, "source": {"lsn": time}}
        return {"value": json.dumps(value), "partition": partition, "timestamp": _MOMENT + time // 10}

    place.send(event(0, 10, 1), event(1, 90, 2), event(1, 91, 3), event(2, 30, 4), event(1, 120, 5), event(2, 140, 6))
    place.run()
    place.send(event(0, 100, None))
    (done,) = place.run()
    assert (place.texts(), done.counts.written, done.counts.deleted) == (["row 5", "row 6"], 0, 4)
    place.send(event(0, 110, 7))
    place.run()
    assert place.texts() == ["row 5", "row 6", "row 7"]


def test_partitions_that_are_added_are_read_from_their_beginning(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.kafka.grow(place.topic, 3)
    place.send(*({"key": "x", "value": _line(f"p{each}", f"of {each}"), "partition": each} for each in range(3)))
    place.run()
    assert place.texts() == ["of 0", "of 1", "of 2", "one"]


def test_messages_that_were_deleted_unread_are_an_error_that_names_their_offsets(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.put(b="lost", c="lost too")
    place.forget(3)
    place.put(d="two")
    with pytest.raises(UserError, match="deleted before they were read: offsets 1 to 2 of partition 0") as told:
        place.run()
    assert "--full-refresh" in str(told.value)
    assert place.texts() == ["one"]
    place.run(full_refresh=True, allow_deletes=True)
    assert place.texts() == ["two"]


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_that_was_read(place: Followed) -> None:
    place.put(a="one")
    place.run()
    place.kafka.drop(place.topic)

    def made_again() -> bool:
        try:
            place.kafka.make(place.topic)
        except Exception:
            return False  # It is being dropped.
        return True

    until(made_again)
    place.put(a="two")
    with pytest.raises(UserError, match="not the topic that was read before"):
        place.run()


def test_a_window_is_not_larger_than_its_bound_and_one_run_takes_all(
    place: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from instep.entities.documents import changes, topics

    place.put(a="one")
    place.run()
    monkeypatch.setattr(topics, "WINDOW", 4)
    place.send(*({"key": "k", "value": _line(f"k{each}", "text"), "timestamp": _MOMENT} for each in range(10)))
    planned: list[tuple[int, int | None]] = []
    (before,) = place.open().checkpoints()
    find = changes.find_documents

    def found(*args: Any) -> Found:
        plan = find(*args)
        planned.append((plan.left, plan.target))
        return plan

    monkeypatch.setattr(changes, "find_documents", found)
    results = place.run()
    assert len(place.texts()) == 11, results
    # Up to a window that leaves messages, the index is not yet as of now.
    reached = (before.watermark or 0) // 1_000
    assert planned[:2] == [(6, reached), (2, reached)]
    left, last = planned[2]
    assert left == 0
    assert last is not None
    assert last > reached


_KILLED = """
import os, pkgutil, signal, sys
import instep
owner, name, when = sys.argv[1:]
place = pkgutil.resolve_name(owner)
inner = getattr(place, name)
def last(*args, **kwargs):
    if when == "after":
        inner(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, last)
instep.load(".").run()
"""


@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        ("instep.ledger.parts:Parts", "plan", "before"),
        ("instep.ledger.parts:Parts", "plan", "after"),
        ("instep.targets.lance.target:LanceTarget", "commit", "after"),
        ("instep.ledger.parts:Parts", "finish", "before"),
        ("instep.ledger.parts:Parts", "finish", "after"),
    ],
)
def test_no_message_is_lost_or_done_twice_by_a_kill(place: Followed, owner: str, name: str, when: str) -> None:
    place.put(a="one", b="two")
    place.run()
    place.put(a="changed", c="three", b=None)
    done = subprocess.run([sys.executable, "-c", _KILLED, owner, name, when], cwd=place.root, check=False)
    assert done.returncode == -signal.SIGKILL
    place.put(d="four")
    place.run()
    place.run()
    assert place.texts() == ["changed", "four", "three"]
    assert place.idle()


def test_a_watched_topic_is_followed(place: Followed) -> None:
    place.put(a="one")
    place.run()
    watching = subprocess.Popen(
        [sys.executable, "-m", "instep", "run", "--watch", "--project", str(place.root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        place.put(b="first")
        until(lambda: "first" in place.texts(), seconds=_SLOW)
        place.put(c="second")
        until(lambda: "second" in place.texts(), seconds=_SLOW)
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(_SLOW)


def test_a_broker_that_is_away_is_one_sentence_and_an_outage(place: Followed) -> None:
    place.put(a="one")
    place.run()
    (place.root / "instep.yaml").write_text(
        (place.root / "instep.yaml").read_text().replace(place.kafka.address, "127.0.0.1:9")
    )
    with pytest.raises(Away, match="no broker of Kafka answers"):
        place.run()


def test_a_wrong_password_is_said_and_not_repeated(tmp_path: Path) -> None:
    server = running_kafka(login=True)
    place = Followed(tmp_path / "project", server)
    login = ", security: sasl_plaintext, mechanism: PLAIN, user: instep, password: "
    place.put(a="one")
    place.declare(f"{login}{server.password}")
    place.run()
    place.declare(f"{login}wr0ng-s3cret")
    with pytest.raises(UserError, match="refuses the login") as told:
        place.run()
    assert "s3cret" not in str(told.value)


def _compacted(root: Path, kafka: KafkaServer, *, tombstones_for: str) -> Followed:
    return Followed(
        root / "project",
        kafka,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="100",
        max_compaction_lag_ms="500",
        delete_retention_ms=tombstones_for,
    )


def test_a_topic_that_is_compacted_is_read_from_where_the_last_run_was(tmp_path: Path, kafka: KafkaServer) -> None:
    place = _compacted(tmp_path, kafka, tombstones_for="600000")
    place.put(a="one", b="two")
    place.run()
    for number in range(40):
        place.put(a=f"{number}", c=f"{number}")
    place.put(b=None)
    until(lambda: len(place.rolled()) < 20, seconds=_SLOW)
    (done,) = place.run()
    assert place.texts() == ["39", "39", "last"]
    assert not any("tombstones" in each for each in done.notes)
    assert place.idle()


def test_tombstones_that_are_gone_before_they_were_read_are_warned_of(tmp_path: Path, kafka: KafkaServer) -> None:
    place = _compacted(tmp_path, kafka, tombstones_for="0")
    place.put(a="one", b="two")
    place.run()
    place.put(b=None)
    until(lambda: "b" not in place.rolled(), seconds=_SLOW)
    (done,) = place.run()
    assert any("keeps tombstones for 0" in each for each in done.notes)
    place.run(full_refresh=True, allow_deletes=True)
    assert place.texts() == ["last", "one"]
