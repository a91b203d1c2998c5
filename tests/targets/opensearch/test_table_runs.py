"""Tables in OpenSearch, as an application has them: kept in step, through crashes and trouble, for every client.

Without Spark: what it would do is done in Arrow (`tests.e2e.tables.quick`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import instep
from instep.api.application import create_app
from instep.cli import main
from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.targets.opensearch import bulk
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.tables import OpenSearchTables
from instep.testing.table_rows import SPECS, Node, put
from tests.api.conftest import served, write
from tests.doubles.clock import VirtualClock
from tests.doubles.troubled_server import TroubledServer
from tests.e2e.tables.quick import Crash, Fault, QuickShop, slice_by_slice
from tests.e2e.tables.shop import NAMESPACES, PROJECT
from tests.e2e.tables.test_faults import WRITES
from tests.targets.opensearch.conftest import forget_all


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTables]:
    target = OpenSearchTables(opensearch)
    forget_all(target)
    yield target
    forget_all(target)


@pytest.fixture
def shop(target: OpenSearchTables, tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", f"type: opensearch, uri: '{target.uri}'")
    made.declare()
    made.fill(people=12, tickets=40)
    return made


def found(target: OpenSearchTables, alias: str) -> dict[str, dict[str, Any]]:
    """What a client of one's own finds by the alias."""
    hits = target.indexes.search(alias, {"size": 10_000})
    return {
        each["_id"]: {key: value for key, value in each["_source"].items() if not key.startswith("instep_")}
        for each in hits
    }


def expected(shop: QuickShop) -> dict[str, dict[str, Any]]:
    return {str(row["id"]): {name: row[name] for name in ("id", "path", "title")} for row in shop.alive("tickets")}


def test_a_table_is_kept_in_step_for_every_client(shop: QuickShop, target: OpenSearchTables) -> None:
    shop.run("Ticket")
    assert found(target, "Ticket") == expected(shop)
    before = target.served("Ticket")
    shop.put("tickets", id=2, title="changed")
    shop.put("tickets", id=100, path="1/2/1/", title="new", author=1)
    shop.put("tickets", id=4, gone=True)
    shop.put("tickets", id=5, path="1/2/9/")  # from another namespace
    shop.put("tickets", id=6, path="7/")  # to one that is not indexed
    shop.save()
    shop.run("Ticket")
    want = expected(shop)
    del want["6"]
    assert found(target, "Ticket") == want
    assert target.served("Ticket") == before
    edges = {each["from_id"] for each in found(target, "Ticket__OPENED").values()}
    assert edges == {row["author"] for row in shop.alive("tickets") if row["author"] is not None and row["id"] != 6}
    shop.put("tickets", id=6, path="1/3/")
    shop.remove("tickets", 8)
    shop.save()
    shop.run("Ticket", full_refresh=True)
    assert found(target, "Ticket") == expected(shop)


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4))])
def test_whatever_happens_on_a_day_the_index_holds_the_table(
    shop: QuickShop, target: OpenSearchTables, seed: int
) -> None:
    chance = random.Random(seed)
    for hour in range(8):
        for _ in range(chance.randrange(1, 25)):
            number = chance.randrange(60)
            path = chance.choice(NAMESPACES) + f"{chance.randrange(3)}/"
            author = chance.choice([None, *range(12)])
            shop.put("tickets", id=number, path=path, title=f"{hour}", author=author, gone=chance.random() < 0.25)
        shop.save()
        shop.run("Ticket", "Person", full_refresh=hour == 4, allow_deletes=True)
        assert found(target, "Ticket") == expected(shop), hour
        assert shop.wrong("Ticket", "Person") == {}, hour


def crashes(shop: QuickShop, fault: Fault, ref: str, options: dict[str, Any]) -> bool:
    """Whether the run got as far as that."""
    try:
        shop.run(ref, setups=fault.target, around=lambda context: slice_by_slice(fault.context(context)), **options)
    except Crash:
        return True
    return False


#: In place and staged.
CRASHES = [("Ticket@1/2", {"full_refresh": True}), ("Person", {"full_refresh": True})]


@pytest.mark.proof
@pytest.mark.parametrize(("ref", "options"), CRASHES, ids=["in place", "staged"])
def test_a_crash_at_any_write_loses_and_doubles_nothing(
    shop: QuickShop, target: OpenSearchTables, ref: str, options: dict[str, Any]
) -> None:
    """One after the other in the same shop: each time something changes, and is rebuilt by a run that dies."""
    name = ref.partition("@")[0]
    shop.run("Person", "Ticket")
    at = 0
    while True:
        at += 1
        shop.put("people", id=1, name=f"changed {at}")
        shop.put("people", id=100 + at, name="new")
        shop.put("people", id=99 + at, gone=True, name="new")
        shop.put("tickets", id=2, title=f"changed {at}", author=at % 5)
        shop.put("tickets", id=100 + at, path="1/2/1/", title="new", author=1)
        shop.put("tickets", id=99 + at, gone=True, path="1/2/1/", title="new", author=1)
        shop.save()
        fault = Fault((at + 1) // 2, after=at % 2 == 0, counts=WRITES.__contains__)
        if not crashes(shop, fault, ref, options):
            break
        shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)
        shop.run(ref, allow_deletes=True)
        shop.run(ref, allow_deletes=True)
        assert shop.wrong(name) == {}, (at, fault.crashed_in)
        setup = shop.setup(name)
        assert setup.target.leftovers(setup.alias, idle_seconds=1e9) == []
    assert at > 10


MAPPING = """
    mapping:
      properties:
        title: {{type: text, analyzer: plain, fields: {{raw: {{type: keyword}}}}}}
        seen: {{type: date_nanos}}
        labels: {{type: nested, properties: {{name: {{type: keyword}}}}}}
      analysis: {{analyzer: {{plain: {{type: custom, tokenizer: standard, filter: [lowercase, asciifolding]}}}}}}
      settings: {{number_of_shards: 2}}
"""


@pytest.fixture
def mapped(shop: QuickShop) -> QuickShop:
    """Tickets without edges, with fields of their own."""
    text = PROJECT.replace("properties: [id, title]", "properties: [id, title, seen, labels]")
    start, end = text.index("    edges:\n      - {{kind: OPENED"), text.index("  Like:")
    shop.declare(text[:start] + MAPPING.lstrip("\n") + text[end:])
    shop.types["tickets"] |= {"seen": pa.timestamp("us", "UTC"), "labels": pa.string()}
    shop.save()
    return shop


def test_a_declared_mapping_is_searched_by_and_what_the_server_refuses_is_a_failure_of_its_row(
    mapped: QuickShop, target: OpenSearchTables
) -> None:
    moment = datetime(2026, 11, 25, 1, 2, 3, 456789, tzinfo=UTC)
    mapped.put("tickets", id=2, title="Ein Ärger", seen=moment, labels='[{"name": "a\\nb"}]')
    mapped.put("tickets", id=3, seen=datetime(1066, 1, 1, tzinfo=UTC))  # nanoseconds begin in 1677
    mapped.put("tickets", id=5, labels="no JSON")
    mapped.save()
    results = mapped.run("Ticket")
    assert results["Ticket@1/3"].state is JobState.COMPLETED_WITH_ERRORS
    counts = [each.counts for each in results.values()]
    for each in counts:
        assert each.read == each.written + each.deleted + each.failed
    assert sum(each.failed for each in counts) == 2
    container = mapped.container()
    ledger = container.ledger()
    reasons = {each.uri: each.reason for ref in results for each in ledger.failures.newest(_ref(ref), limit=9)}
    ledger.close()
    assert reasons.keys() == {"Ticket(3)", "Ticket(5)"}
    assert "the server refused it" in reasons["Ticket(3)"]
    assert "seen" in reasons["Ticket(3)"]
    assert "JSON" in reasons["Ticket(5)"]
    assert found(target, "Ticket").keys() == expected(mapped).keys() - {"3", "5"}
    nested = {"nested": {"path": "labels", "query": {"term": {"labels.name": "a\nb"}}}}
    query = {"bool": {"must": [{"match": {"title": "arger"}}, nested]}}
    (hit,) = target.indexes.search("Ticket", {"query": query})
    assert hit["_source"]["seen"] == "2026-11-25T01:02:03.456789Z"
    (row,) = [each for each in mapped.stored("Ticket") if each["id"] == 2]
    assert row["seen"] == moment


def _ref(text: str) -> Any:
    from instep.domain.refs import PartitionRef

    return PartitionRef.parse(text)


def test_a_changed_mapping_is_named_by_the_plan_and_rebuilds(mapped: QuickShop, target: OpenSearchTables) -> None:
    mapped.run("Ticket")
    before = target.served("Ticket")
    mapped.edit("asciifolding]", "asciifolding, porter_stem]")
    results = mapped.run("Ticket")
    assert all("mapping changed" in each.plan.found.why for each in results.values())
    assert target.served("Ticket") not in (None, before)
    assert found(target, "Ticket").keys() == expected(mapped).keys()
    assert target.indexes.search("Ticket", {"query": {"match": {"title": "tickets"}}}), "stemmed"


@pytest.mark.parametrize(
    "field",
    ["{copy_to: all}", "{type: text, index_prefixes: {min_chars: 1}}", '{ignore_above: "256"}'],
)
def test_a_mapping_that_the_server_writes_otherwise_is_no_other_one(
    mapped: QuickShop, target: OpenSearchTables, field: str
) -> None:
    raw = "{type: text, analyzer: plain, fields: {raw: {type: keyword}}}"
    mapped.edit(
        f"title: {raw}", f"all: {{type: text}}\n        title: {field}" if "all" in field else f"title: {field}"
    )
    if "all" in field:
        mapped.edit("properties: [id, title, seen, labels]", "properties: [id, title, seen, labels, all]")
        mapped.types["tickets"] |= {"all": pa.string()}
        mapped.save()
    assert {each.problem for each in mapped.run("Ticket").values()} == {None}
    served = target.served("Ticket")
    mapped.put("tickets", id=2, title="Another")
    mapped.save()
    results = mapped.run("Ticket")
    assert {(each.problem, each.plan.found.kind) for each in results.values()} <= {
        (None, Kind.REFRESH),
        (None, Kind.NOTHING),
    }
    assert target.served("Ticket") == served
    assert found(target, "Ticket").keys() == expected(mapped).keys()


def test_a_mapping_that_the_server_refuses_is_told_with_its_line(mapped: QuickShop) -> None:
    mapped.edit("type: nested", "type: nasted")
    for problem in (each.problem for each in mapped.run("Ticket").values()):
        assert problem is not None
        assert "nasted" in problem.what
        assert "instep.yaml:" in str(problem.where)
    check = mapped.setup("Ticket").checks()["mapping"]
    with pytest.raises(UserError, match="nasted"):
        check()


def test_a_promotion_that_dies_before_its_alias_moves_is_ended_by_the_next_run(
    shop: QuickShop, target: OpenSearchTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("Ticket", "Like")
    before, likes = target.served("Like"), found(target, "Like")
    shop.put("likes", person=1, ticket=2)
    shop.save()

    def dies(*args: object) -> None:
        raise Crash("it is decided which index is served, and no reader finds it yet")

    with monkeypatch.context() as patched:
        patched.setattr(Indexes, "point_all", dies)
        with pytest.raises(Crash):
            shop.run("Like", full_refresh=True)
    assert target.served("Like") != before
    assert found(target, "Like") == likes, "readers find what they found"
    shop.clock = VirtualClock(shop.clock.milliseconds + 60_000)
    shop.run("Like")
    assert len(found(target, "Like")) == len(found(target, "Like__LIKES")) == len(likes) + 1
    assert shop.wrong("Like") == {}


def test_a_request_holds_as_many_rows_as_the_job_says(target: OpenSearchTables, tmp_path: Path) -> None:
    target.create("Node__1", SPECS)
    with TroubledServer(target.uri) as server:
        through = replace(target, uri=server.url).bounded(None, None, 7)
        put(through, "Node__1", *(Node(number, "x", 1) for number in range(20)), epoch=1, attempt="1")
        assert max(server.items) == 7
        assert sum(server.items) == 20
    assert target.rows("Node__1") == 20


def test_the_batch_size_of_a_request_over_http_is_that_of_bulk_requests(
    target: OpenSearchTables, tmp_path: Path
) -> None:
    """Documents, which need no Spark: the bound is the same."""
    (tmp_path / "docs").mkdir()
    write(tmp_path, 10, rows=5)
    with TroubledServer(target.uri) as server:
        uri = f"{{type: opensearch, uri: '{server.url}'}}"
        documents = "{source: {type: files, path: docs}, target: far}"
        (tmp_path / "instep.yaml").write_text(
            f"name: small\nengine: inline\ntargets:\n  far: {uri}\nentities:\n  Document: {documents}\n"
        )
        project = instep.load(tmp_path)
        asked = {"useDistributedIndexing": True, "recreateIndex": True, "batchSize": 3, "payLoadSize": "2MB"}
        with (
            served(create_app(project, token="", loopback=True)) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            assert client.post("/api/jobs", json=asked).status_code == 202
            project.worker(until_idle=True, engine="inline")
            (job,) = client.get("/api/jobs?limit=1").json()["items"]
        assert job["state"] == "COMPLETED"
        said = {"batch_rows": 3, "payload_bytes": 2 << 20}
        assert job["configuration"]["settings"] == {"Document@global": said}
        assert sum(server.items) >= 10
        assert max(server.items) == 3


def test_requests_that_are_too_large_go_in_parts_and_nothing_is_lost(target: OpenSearchTables, tmp_path: Path) -> None:
    script = ["status 429", "lost", "half", "short", "fine"]
    with TroubledServer(target.uri, script, largest=20_000) as server:
        shop = QuickShop(tmp_path / "shop", f"type: opensearch, uri: '{server.url}'")
        shop.declare()
        shop.fill(people=5, tickets=300)
        shop.run("Ticket")
        assert server.quiet
    assert found(target, "Ticket") == expected(shop)


def test_a_server_that_is_away_ends_a_run_with_75_and_nothing_is_a_failure(
    shop: QuickShop, target: OpenSearchTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("Person")
    monkeypatch.setattr(bulk, "_TIMEOUT_SECONDS", 0.0)
    shop.edit(f"uri: '{target.uri}'", "uri: 'http://127.0.0.1:9'")
    assert main(["run", "Person", "--project", str(shop.root)]) == 75
