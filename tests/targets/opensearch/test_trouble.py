"""Bulk requests to a server of OpenSearch that is busy, away, or says too little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from instep.domain.retries import PROBE_SECONDS
from instep.domain.words import text_query
from instep.errors import Fenced, Transient, UserError
from instep.targets.document_target import ChunkChanges
from instep.targets.opensearch import bulk as module
from instep.targets.opensearch.bulk import Bulk, Pace, deletes, upserts
from instep.targets.opensearch.indexes import Connection, Indexes
from instep.targets.opensearch.layout import coded, decoded
from instep.targets.opensearch.target import OpenSearchTarget
from instep.targets.opensearch.writing import OpenSearchChunkWriter
from instep.testing.target_rows import BUCKETS, DIMENSIONS, NOTHING, put, rows_of
from tests.doubles.troubled_server import TroubledServer

INDEX = "Trouble__1"
PACE = Pace(20, 1_000_000, 3, (20, 1_000_000, 3))


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTarget]:
    target = OpenSearchTarget(opensearch)
    target.drop(INDEX)
    target.create(INDEX, DIMENSIONS, BUCKETS)
    yield target
    target.drop(INDEX)


class Clock:
    """Time passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def bulk(self, url: str, pace: Pace = PACE) -> Bulk:
        return Bulk(Connection(url), coded(INDEX), pace, self.sleep, lambda: self.now)


def test_after_any_trouble_every_row_is_stored_once(target: OpenSearchTarget) -> None:
    rows = rows_of({f"d{n}": ["one", "two"] for n in range(150)})
    script = ["status 429", "fine", "lost", "status 503", "half", "unheard", "short", "half", "status 500", "lost"]
    clock = Clock()
    with TroubledServer(target.uri, script) as server:
        bulk = clock.bulk(server.url)
        assert bulk.send(upserts(rows, 1)) == []
        assert server.quiet
    target.indexes.refresh(coded(INDEX))
    assert target.rows(INDEX) == 300
    assert len(clock.slept) == len(script) - 1


def test_an_outage_is_waited_out_behind_the_breaker(target: OpenSearchTarget) -> None:
    clock = Clock()
    with TroubledServer(target.uri, ["unheard"] * 12) as server:
        bulk = clock.bulk(server.url)
        assert bulk.send(upserts(rows_of({"a": ["one"]}), 1)) == []
        assert len(server.sizes) == 13
    assert clock.now >= 60
    assert clock.slept[5:] == pytest.approx([PROBE_SECONDS] * 7)
    assert (bulk.pace.rows, bulk.pace.requests) == (10, 1)


def test_an_outage_without_end_ends_the_try(target: OpenSearchTarget) -> None:
    clock = Clock()
    with TroubledServer(target.uri, ["status 503"] * 200) as server, pytest.raises(Transient, match="503"):
        clock.bulk(server.url).send(upserts(rows_of({"a": ["one"]}), 1))
    assert clock.now > module._TIMEOUT_SECONDS


def test_a_large_request_is_halved_and_a_single_large_row_refused(target: OpenSearchTarget) -> None:
    rows = rows_of({"small": ["s"] * 40, "large": ["x" * 20_000], "more": ["m"] * 20})
    with TroubledServer(target.uri, largest=6_000) as server:
        bulk = Clock().bulk(server.url)
        ((item, reason),) = bulk.send(upserts(rows, 1))
        assert (item.document_id, bulk.pace.most[1] <= 1_000_000) == ("large", True)
        assert "413" in reason or "script" in reason
        before = len(server.sizes)
        bulk.send(upserts(rows_of({"again": ["a"] * 40}), 1))
        assert all(size <= 6_000 for size in server.sizes[before:])
    target.indexes.refresh(coded(INDEX))
    assert target.rows(INDEX) == 100


def test_a_refused_document_keeps_its_indexed_chunks(target: OpenSearchTarget) -> None:
    put(target, INDEX, {"bad": ["old", "older"], "good": ["old", "older"]}, epoch=1, attempt="1")
    base = target.fence(INDEX, 1)
    writer = target.writer(INDEX, base)
    rows = rows_of({"bad": ["new"], "good": ["new"]})
    uris = ["file:///" + "x" * 40_000, "file:///good"]
    rows = rows.set_column(rows.schema.get_field_index("source_uri"), "source_uri", pa.array(uris))
    said: dict[str, str] = {}
    stale = writer.existing(["bad", "good"])
    writer.stage(iter([ChunkChanges(rows, stale, refuse=said.__setitem__)]))
    target.commit(INDEX, base=base, epoch=1, attempt="2", staged=[], marks=[])
    assert list(said) == ["bad"]
    assert "immense term" in said["bad"] or "too large" in said["bad"] or "exceed" in said["bad"]
    assert target.rows(INDEX) == 3
    with pytest.raises(UserError, match="'bad'"):
        writer.stage(iter([ChunkChanges(rows, NOTHING)]))
    assert writer.unfit(pa.Table.from_batches([rows]).drop_columns(["vector"])).keys() == {0}


def test_a_zombie_changes_nothing_of_a_newer_epoch(target: OpenSearchTarget) -> None:
    """Its requests were under way when the newer one wrote and deleted."""
    put(target, INDEX, {"kept": ["old"], "gone": ["old"]}, epoch=1, attempt="1")
    put(target, INDEX, {"kept": ["new"], "gone": []}, epoch=2, attempt="2")
    late = rows_of({"kept": ["late"], "gone": ["late"]})
    bulk = Clock().bulk(target.uri)
    for items in (upserts(late, 1), deletes([str(each) for each in late["chunk_id"].to_pylist()], 1)):
        with pytest.raises(Fenced):
            bulk.send(items)
    target.indexes.refresh(coded(INDEX))
    (hit,) = target.search(INDEX, entity="D", text=text_query("new"), vector=None, mode="text", limit=9)
    assert (hit.document_id, hit.text, target.rows(INDEX)) == ("kept", "new", 1)


def test_an_index_that_drifted_is_refused(target: OpenSearchTarget) -> None:
    with pytest.raises(UserError, match="dimension of vector is 4, not 7"):
        target.create(INDEX, 7, BUCKETS)
    target.indexes.connection.ask("PUT", f"/{coded(INDEX)}/_mapping", {"properties": {"own": {"type": "long"}}})
    with pytest.raises(UserError, match="own is not Instep's"):
        target.create(INDEX, DIMENSIONS, BUCKETS)


def test_an_index_is_built_without_replicas_and_served_with_them(target: OpenSearchTarget) -> None:
    def settings() -> tuple[object, object]:
        found = target.indexes.connection.ask("GET", f"/{coded(INDEX)}/_settings", params={"flat_settings": "true"})
        said = found[coded(INDEX)]["settings"]
        return said.get("index.refresh_interval"), said.get("index.auto_expand_replicas")

    assert settings() == ("-1", None)
    target.maintain(INDEX)
    assert settings() == (None, "0-1")


def test_an_index_that_was_dropped_in_part_is_swept(target: OpenSearchTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    put(target, INDEX, {"a": ["one"]}, epoch=1, attempt="1")
    with monkeypatch.context() as patch:
        patch.setattr(Indexes, "drop", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            target.drop(INDEX)
    assert not target.exists(INDEX)
    assert target.leftovers("Trouble", idle_seconds=3600) == [INDEX]
    target.drop(INDEX)
    assert target.leftovers("Trouble", idle_seconds=3600) == []


def test_a_pace_halves_and_recovers() -> None:
    pace = Pace.fullest(1_000_000, 4)
    slow = pace.slowed().slowed().slowed()
    assert (slow.rows, slow.bytes, slow.requests) == (62, 125_000, 1)
    for _ in range(8 * 4):
        slow = slow.calm()
    assert (slow.rows, slow.bytes, slow.requests) == (500, 1_000_000, 4)
    assert pace.within(300_000).slowed().calm().most == (500, 300_000, 4)


@pytest.mark.parametrize("name", ["Document__1", "document__1", "DOCUMENT__1", "a@v2.x=y-z", "A" * 200])
def test_names_come_back(name: str) -> None:
    assert decoded(coded(name)) == name
    assert coded(name) == coded(name).lower()
    assert len(coded(name)) <= 255


def test_secrets_stay_out_of_errors() -> None:
    target = OpenSearchTarget("http://127.0.0.1:1", "ann", "hunter2", None)
    assert "hunter2" not in repr(target)
    assert Connection("http://h", password="hunter2")._hushed("no hunter2 here") == "no *** here"


def test_the_writer_paces_itself_as_the_project_says(target: OpenSearchTarget) -> None:
    made = replace(target, max_payload_bytes=123_456, max_requests=2)
    writer = made.writer(INDEX, made.fence(INDEX, 1))
    assert isinstance(writer, OpenSearchChunkWriter)
    assert writer._bulk.pace == Pace.fullest(123_456, 2)
