"""A queue of SQS tells what changes in S3: forms of messages, and a real queue."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import instep
from instep.errors import Away, UserError
from instep.sources.files import FilesSource
from instep.sources.sqs_events import SqsEvents, SqsQueue, objects
from tests.servers.s3 import S3Server, running_s3
from tests.servers.sqs import SqsServer, running_sqs
from tests.waiting import until

pytestmark = [pytest.mark.server, pytest.mark.proof]

S3 = {"s3": {"bucket": {"name": "b"}, "object": {"key": "docs/a+b%C3%A9.md", "size": 3}}, "eventName": "x"}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"Records": [S3, S3 | {"s3": {"bucket": {"name": "c"}, "object": {"key": "x"}}}]}, ["b/docs/a bé.md", "c/x"]),
        ({"Type": "Notification", "Message": json.dumps({"Records": [S3]})}, ["b/docs/a bé.md"]),
        (
            {"detail-type": "Object Deleted", "detail": {"bucket": {"name": "b"}, "object": {"key": "a+b%C3.md"}}},
            ["b/a+b%C3.md"],
        ),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}, []),
        ({"Records": [{"eventSource": "aws:sns"}]}, []),
        (
            {"Records": [{"eventSource": "aws:sns"}, None, S3, {"s3": {}}, S3 | {"eventName": "y"}]},
            ["b/docs/a bé.md"] * 2,
        ),
        ({"Records": 3}, []),
        ({"Message": "plain text"}, []),
        ([1, 2], []),
        ("text", []),
    ],
)
def test_messages_name_objects(message: Any, found: list[str]) -> None:
    assert list(objects(json.dumps(message))) == [f"s3://{each}" for each in found]


def test_what_is_no_json_names_nothing() -> None:
    assert list(objects("{broken")) == []


@pytest.fixture
def sqs() -> SqsServer:
    return running_sqs()


@pytest.fixture
def events(request: pytest.FixtureRequest, sqs: SqsServer) -> Iterator[tuple[str, SqsEvents]]:
    url = sqs.queue(request.node.name[:60].replace("[", "_").replace("]", ""), visibility=2)
    made = SqsEvents(SqsQueue(url, sqs.options))
    yield url, made
    made.close()


def taken(events: SqsEvents, *paths: str) -> None:
    found: set[str] = set()

    def all_of_them() -> bool:
        found.update(events.take())
        return found >= set(paths)

    until(all_of_them, found)


def finish(sqs: SqsServer, url: str, events: SqsEvents, *paths: str) -> None:
    """Have the queue empty: a message that comes again before it is deleted is done again."""

    def is_empty() -> bool:
        events.take()
        events.done(paths)
        return sqs.left(url) == 0

    until(is_empty)


def test_a_message_is_deleted_when_all_that_it_tells_is_done(sqs: SqsServer, events: tuple[str, SqsEvents]) -> None:
    url, listening = events
    sqs.tell(url, "b", "one.md", "two.md")
    taken(listening, "s3://b/one.md", "s3://b/two.md")
    listening.done(["s3://b/one.md"])
    taken(listening, "s3://b/one.md", "s3://b/two.md")  # Again, after its visibility timeout: it is not done.
    assert sqs.left(url) == 1
    finish(sqs, url, listening, "s3://b/two.md", "s3://b/one.md")


def test_a_message_that_comes_after_the_look_is_not_deleted(sqs: SqsServer, events: tuple[str, SqsEvents]) -> None:
    url, listening = events
    sqs.tell(url, "b", "one.md")
    until(lambda: "s3://b/one.md" in listening._new)
    listening.done(["s3://b/one.md"])  # Of an earlier message, say.
    taken(listening, "s3://b/one.md")
    assert sqs.left(url) == 1
    finish(sqs, url, listening, "s3://b/one.md")


def test_messages_that_name_no_object_are_deleted(sqs: SqsServer, events: tuple[str, SqsEvents]) -> None:
    url, _ = events
    sqs.client().send_message(QueueUrl=url, MessageBody=json.dumps({"Event": "s3:TestEvent"}))
    until(lambda: sqs.left(url) == 0)


def test_a_queue_that_cannot_be_read_is_said(sqs: SqsServer) -> None:
    queue = SqsQueue(sqs.url("nowhere"), sqs.options)
    with pytest.raises(UserError, match=r"cannot be read.*([Nn]on.?[Ee]xist|does not exist)"):
        queue.check()
    events = SqsEvents(queue)
    until(lambda: bool(events.failure))
    assert sqs.password not in events.failure
    events.close()
    with pytest.raises(Away, match="cannot be read"):
        SqsQueue("http://127.0.0.1:9/0/docs", sqs.options).check()
    assert SqsQueue(sqs.queue("there"), sqs.options).check().startswith("0 messages in http://")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    server = running_s3()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.port}")
    return server


def test_single_objects_say_what_a_listing_says(store: S3Server, tmp_path: Path) -> None:
    prefix = f"{store.bucket}/{tmp_path.name}"
    for key in ("a.md", "sub/ä %25#+.md", "other.txt", "left/b.md"):
        store.files().pipe(f"{prefix}/{key}", key.encode())
    options = {"key": store.user, "secret": store.password, "endpoint_url": f"http://127.0.0.1:{store.port}"}
    source = FilesSource((f"s3://{prefix}",), ("*.md",), ("left/",), options)
    everything = source.list().documents
    looked = source.look(
        f"s3://{prefix}/{key}" for key in ("a.md", "sub/ä %25#+.md", "other.txt", "left/b.md", "gone.md")
    )
    assert looked is not None
    assert sorted(looked.documents) == sorted(everything)
    assert [each.rpartition("/")[2] for each in looked.missing] == ["gone.md"]
    assert source.look([f"s3://{store.bucket}/elsewhere/a.md", "s3://another/a.md"]) == ([], [])
    assert source.look([f"s3://{prefix}"]) is None


def test_a_changed_object_is_found_though_no_listing_is_due(store: S3Server, sqs: SqsServer, tmp_path: Path) -> None:
    prefix, url = f"{store.bucket}/{tmp_path.name}", sqs.queue("watched", visibility=2)
    store.files().pipe(f"{prefix}/first.md", b"# first")
    options = {"key": store.user, "secret": store.password, "endpoint_url": f"http://127.0.0.1:{store.port}"}
    source = {
        "type": "files",
        "path": f"s3://{prefix}",
        "storage_options": options | {"client_kwargs": {"region_name": "us-east-1"}},
        "events": {"type": "sqs", "url": url},
    }
    targets = {"index": {"type": "lance", "uri": ".instep/index"}}
    declared = {"name": "p", "targets": targets, "entities": {"Page": {"source": source}}, "engine": "inline"}
    (tmp_path / "instep.yaml").write_text(yaml.safe_dump(declared))
    project = instep.load(tmp_path)
    project.run()
    command = [sys.executable, "-m", "instep", "run", "--watch", "--every", "3600"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            # Told before the watch begins or later: it stays in the queue until it is indexed.
            store.files().pipe(f"{prefix}/okapi.md", b"All about the okapi.")
            sqs.tell(url, store.bucket, f"{tmp_path.name}/okapi.md")
            until(lambda: len(project.search("okapi", mode="text")) == 1)
            store.files().rm_file(f"{prefix}/okapi.md")
            sqs.tell(url, store.bucket, f"{tmp_path.name}/okapi.md", event="ObjectRemoved:Delete")
            until(lambda: len(project.search("okapi", mode="text")) == 0)
            until(lambda: sqs.left(url) == 0)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_events_are_for_s3_alone(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(
        "name: p\ntargets: {i: {type: lance, uri: i}}\nentities:\n  Page:\n"
        "    source: {type: files, path: docs, events: {type: sqs, url: 'https://sqs/1/x'}}\n"
    )
    with pytest.raises(instep.InstepError, match="is for paths that begin with s3://"):
        instep.load(tmp_path)
