"""Events of Debezium, with and without their schema: what is listed, read, deleted and refused."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.cli import main
from instep.errors import UserError
from instep.sources.debezium import DebeziumLines
from instep.sources.document_source import Content, Unreadable
from instep.sources.feed import FeedSource, feed_source

LINES = DebeziumLines(("id",), "body", "subject")
DECIMAL = "org.apache.kafka.connect.data.Decimal"
NOT_SENT = "__debezium_unavailable_value"


def row(id: int, body: str | None = "text", **more: Any) -> dict[str, Any]:
    return {"id": id, "body": f"{body} of {id}" if body else body, "subject": f"Ticket {id}", **more}


def event(op: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"table": "ticket"}, "ts_ms": 1}


def feed(folder: Path, *lines: Any, key: tuple[str, ...] = ("id",), fields: tuple[str, ...] = ()) -> FeedSource:
    folder.mkdir(exist_ok=True)
    text = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines)
    (folder / "1.jsonl").write_text(text)
    made = feed_source(
        "Ticket", [str(folder)], {}, max_line=10_000, fields=fields, lines=DebeziumLines(key, "body", "subject")
    )
    read: FeedSource = pickle.loads(pickle.dumps(made))
    return read


def contents(source: FeedSource) -> dict[str, Any]:
    listing = source.list()
    assert listing.problems == []
    answers = source.contents(listing.documents, max_bytes=10_000)
    return {each.uri: answer for each, answer in zip(listing.documents, answers, strict=True)}


def texts(source: FeedSource) -> dict[str, tuple[str, str | None]]:
    return {
        uri.removeprefix("feed://Ticket/"): (answer.data.decode(), answer.title)
        for uri, answer in contents(source).items()
        if isinstance(answer, Content)
    }


def test_the_last_change_of_a_row_counts(tmp_path: Path) -> None:
    source = feed(
        tmp_path / "f",
        event("r", after=row(1)),
        event("c", after=row(2)),
        event("u", row(1), row(1, "other")),
        event("c", after=row(3)),
        event("d", before={"id": 3}),
        "null",
    )
    assert texts(source) == {"1": ("other of 1", "Ticket 1"), "2": ("text of 2", "Ticket 2")}
    assert list(source.list().deleted) == ["feed://Ticket/3"]
    assert not source.list().exhaustive


def test_a_row_that_comes_again_as_it_was_has_the_same_version(tmp_path: Path) -> None:
    (first,) = feed(tmp_path / "a", event("r", after=row(1))).list().documents
    again = event("u", row(1), row(1)) | {"ts_ms": 99}
    (second,) = feed(tmp_path / "b", event("c", after=row(1)), again).list().documents
    (third,) = feed(tmp_path / "c", event("c", after=row(1, "other"))).list().documents
    assert first.version == second.version != third.version


def test_a_key_of_several_columns_names_the_row(tmp_path: Path) -> None:
    source = feed(tmp_path / "f", event("c", after=row(1, tenant="a/b é")), key=("tenant", "id"))
    assert [each.uri for each in source.list().documents] == ["feed://Ticket/a%2Fb%20%C3%A9/1"]


@pytest.mark.parametrize("before", [{"id": 1, "slug": "old"}, {"slug": "old"}])
def test_a_row_whose_key_changes_leaves_no_document_behind(tmp_path: Path, before: dict[str, Any]) -> None:
    """As of a key that is not the primary one: Debezium tells that by one event."""
    moved = event("u", before, row(1, slug="new"))
    source = feed(tmp_path / "f", event("c", after=row(1, slug="old")), moved, key=("slug",))
    assert texts(source) == {"new": ("text of 1", "Ticket 1")}
    assert list(source.list().deleted) == ["feed://Ticket/old"]
    back = event("u", row(1, slug="new"), row(1, slug="old"))
    source = feed(tmp_path / "f", event("c", after=row(1, slug="old")), moved, back, key=("slug",))
    assert list(texts(source)) == ["old"]
    assert list(source.list().deleted) == ["feed://Ticket/new"]


@pytest.mark.parametrize("before", [None, {}, {"id": 1}, {"slug": None}, {"slug": NOT_SENT}, {"slug": 1.5}, [1]])
def test_of_a_row_whose_former_key_is_not_told_only_the_new_one_counts(tmp_path: Path, before: Any) -> None:
    source = feed(tmp_path / "f", event("u", before, row(1, slug="new")), key=("slug",))
    assert list(texts(source)) == ["new"]
    assert source.list().deleted == []


def test_an_emptied_table_deletes_what_no_later_line_puts(tmp_path: Path) -> None:
    source = feed(tmp_path / "f", event("c", after=row(1)), event("t"), event("c", after=row(2)))
    listing = source.list()
    assert [each.uri for each in listing.documents] == ["feed://Ticket/2"]
    assert listing.exhaustive


def test_a_malformed_line_holds_nothing_up_once_its_table_was_emptied(tmp_path: Path) -> None:
    source = feed(tmp_path / "f", event("c", after=row(1)), "{", event("t"), event("c", after=row(2)))
    listing = source.list()
    assert (listing.complete, listing.exhaustive, listing.problems) == (True, True, [])
    after = feed(tmp_path / "f", event("t"), event("c", after=row(2)), "{").list()
    assert not after.complete


@pytest.mark.parametrize(
    "line",
    [
        "null",
        {"schema": {}, "payload": None},
        {"ts_ms": 1},
        {"databaseName": "d", "ddl": "ALTER TABLE t", "tableChanges": []},
        {"status": "BEGIN", "id": "571", "event_count": None},
        event("m"),
    ],
    ids=["tombstone", "tombstone with schema", "heartbeat", "schema change", "transaction", "message"],
)
def test_lines_of_no_row_are_passed_over(tmp_path: Path, line: Any) -> None:
    assert texts(feed(tmp_path / "f", line, event("c", after=row(1)), line)) == {"1": ("text of 1", "Ticket 1")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not an event of Debezium"),
        ({"id": 1, "body": "no envelope"}, "`op` is none of c, u, r, d, t and m"),
        ({"op": 5}, "not an event of Debezium"),
        (event("x", after=row(1)), "`op` is none of"),
        (event("c"), "it has no row"),
        (event("d"), "it has no row"),
        (event("c", after={"body": "x"}), "the row has no 'id' that could name it"),
        (event("c", after={"id": True}), "the row has no 'id' that could name it"),
        (event("c", after={"id": None}), "the row has no 'id' that could name it"),
    ],
)
def test_a_line_that_names_no_row_is_told_and_deletes_nothing(tmp_path: Path, line: Any, said: str) -> None:
    listing = feed(tmp_path / "f", event("d", before={"id": 7}), line, event("c", after=row(1))).list()
    (problem,) = listing.problems
    assert problem.startswith("1.jsonl:2: ")
    assert said in problem
    assert [each.uri for each in listing.documents] == ["feed://Ticket/1"]
    assert list(listing.deleted) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"body": NOT_SENT}, "column 'body' was not sent with this change"),
        ({"subject": NOT_SENT}, "column 'subject' was not sent with this change"),
        ({"team": NOT_SENT}, "column 'team' was not sent with this change"),
        ({"team": [NOT_SENT]}, "column 'team' was not sent with this change"),
        ({"team": base64.b64encode(NOT_SENT.encode()).decode()}, "column 'team' was not sent with this change"),
        ({"body": 5}, "column 'body' is not text"),
    ],
)
def test_a_row_that_cannot_be_read_is_a_failure_of_its_document(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    source = feed(tmp_path / "f", event("u", None, row(1) | changed), fields=("team",))
    (answer,) = contents(source).values()
    assert isinstance(answer, Unreadable)
    assert str(answer).startswith(f"1.jsonl:1: {said}")


def test_an_odd_value_in_a_column_that_nobody_declared_hides_neither_row_nor_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's `infinity` is beyond all moments."""
    (tmp_path / "instep.yaml").write_text(PROJECT.replace("{team: string}", '{acl: "string[]"}\n    readers: acl'))
    monkeypatch.chdir(tmp_path)
    project = instep.load(tmp_path)
    until = {"field": "until", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [until]}]}

    def found(*lines: Any) -> list[str]:
        feed(tmp_path / "feed", *({"schema": schema, "payload": each} for each in lines))
        assert project.run(engine="inline")[0].state in ("COMPLETED", None)
        return [each.text for each in project.search("text", mode="text", principals=["alice"])]

    first = event("c", after=row(1, acl=["alice"], until=5))
    assert found(first) == ["text of 1"]
    assert found(first, event("u", None, row(1, acl=[], until=9_223_372_036_825_200_000))) == []


def test_a_text_that_is_null_is_empty(tmp_path: Path) -> None:
    assert texts(feed(tmp_path / "f", event("c", after=row(1, None)))) == {"1": ("", "Ticket 1")}


def number(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()


def test_logical_types_are_read_by_the_schema(tmp_path: Path) -> None:
    kafka, debezium = "org.apache.kafka.connect.data.", "io.debezium.time."
    types: dict[str, dict[str, Any]] = {
        "price": {"type": "bytes", "name": f"{kafka}Decimal", "parameters": {"scale": "2"}},
        "any": {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        "day": {"type": "int32", "name": f"{debezium}Date"},
        "milli": {"type": "int64", "name": f"{debezium}Timestamp"},
        "micro": {"type": "int64", "name": f"{debezium}MicroTimestamp"},
        "nano": {"type": "int64", "name": f"{debezium}NanoTimestamp"},
        "zoned": {"type": "string", "name": f"{debezium}ZonedTimestamp"},
        "none": {"type": "int32", "name": f"{debezium}Date"},
    }
    after = row(
        1,
        price=number(-12_345),
        any={"scale": 3, "value": number(5)},
        day=20_784,
        milli=1_795_773_600_123,
        micro=1_795_773_600_123_456,
        nano=1_795_773_600_123_456_789,
        zoned="2026-11-27T10:00:00Z",
        none=None,
    )
    fields = [{"field": name, **kind} for name, kind in types.items()]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    source = feed(tmp_path / "f", {"schema": schema, "payload": event("c", after=after)}, fields=tuple(types))
    (answer,) = contents(source).values()
    assert answer.fields == {
        "price": "-123.45",
        "any": "0.005",
        "day": "2026-11-27",
        "milli": "2026-11-27T10:00:00.123000+00:00",
        "micro": "2026-11-27T10:00:00.123456+00:00",
        "nano": "2026-11-27T10:00:00.123456789+00:00",
        "zoned": "2026-11-27T10:00:00Z",
        "none": None,
    }
    infinity = 9_223_372_036_825_200_000
    odd = {"schema": schema, "payload": event("c", after=after | {"price": "no base64!", "micro": infinity})}
    (answer,) = contents(feed(tmp_path / "w", odd, fields=("price", "micro"))).values()
    assert answer.fields == {"price": "no base64!", "micro": str(infinity)}, "their columns tell that it is wrong"


def test_rows_whose_decimal_keys_differ_in_their_last_digit_are_two_documents(tmp_path: Path) -> None:
    """A decimal may have 38 digits, and more."""
    fields = [{"field": "id", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    keys = [12_345_678_901_234_567_890_123_456_789_012_345_670 + last for last in (8, 9)]
    lines = []
    for key in keys:
        after = row(1) | {"id": base64.b64encode(key.to_bytes(16, "big", signed=True)).decode()}
        lines.append({"schema": schema, "payload": event("c", after=after)})
    assert list(texts(feed(tmp_path / "f", *lines))) == [*map(str, keys)]


@pytest.mark.parametrize("key", [1_795_773_600_123_456_788, 1_795_773_600_000_000_000, 1_795_773_600_000_000_998, -2])
@pytest.mark.parametrize("name", ["NanoTimestamp", "NanoTime"])
def test_rows_whose_keys_differ_by_a_nanosecond_are_two_documents(tmp_path: Path, key: int, name: str) -> None:
    """Their tombstones in a topic, whose keys have a schema of their own, are of the same two."""
    fields = [{"field": "id", "type": "int64", "name": f"io.debezium.time.{name}"}]
    after = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    rows = [event("c", after=row(key + more, subject=f"+{more}")) for more in (0, 1)]
    source = feed(tmp_path / "f", *({"schema": after, "payload": each} for each in rows))
    found = [each.uri for each in source.list().documents]
    assert len(set(found)) == 2
    assert [title for _, title in texts(source).values()] == ["+0", "+1"]
    keys = [{"schema": {"type": "struct", "fields": fields}, "payload": {"id": key + more}} for more in (0, 1)]
    assert [LINES.keyed(json.dumps(each).encode(), "Ticket") for each in keys] == found


def test_numbers_and_lists_are_made_where_columns_are_to_have_them(tmp_path: Path) -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    fields = [{"field": "price", **decimal}, {"field": "told", **decimal}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    after = row(1, price=number(1_250), told=number(1_250), tags='["a", "b"]', more='["a"]')
    lines = DebeziumLines(("id",), "body", None, frozenset({"price"}), frozenset({"tags"}))
    line = json.dumps({"schema": schema, "payload": event("c", after=after)}).encode()
    found = lines.content(line, ("price", "told", "tags", "more"))
    assert found.fields == {"price": 12.5, "told": "12.50", "tags": ["a", "b"], "more": '["a"]'}


PROJECT = """\
name: tickets
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Ticket:
    source: {type: feed, path: feed, format: debezium}
    document: {key: id, text: body, title: subject}
    columns: {team: string}
    deletes: {share: 1, floor: 100}
"""


def test_an_index_follows_a_captured_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "instep.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    log = [event("r", after=row(each, team="ops")) for each in range(3)]
    project = instep.load(tmp_path)

    def found(*, allow_deletes: bool = False) -> list[str]:
        feed(tmp_path / "feed", *log)
        project.run(engine="inline", allow_deletes=allow_deletes)
        hits = project.search("text other of ticket", where="team = 'ops'", mode="text")
        return sorted(each.text for each in hits)

    assert found() == ["text of 0", "text of 1", "text of 2"]
    log += [event("u", None, row(1, "other", team="ops")), event("d", before={"id": 0}), "null"]  # type: ignore[list-item]
    assert found() == ["other of 1", "text of 2"]
    log += [event("t"), event("c", after=row(9, team="ops"))]
    with pytest.raises(UserError, match="2 of 2 documents are gone"):
        found()
    assert found(allow_deletes=True) == ["text of 9"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("document: {key: id, text: body, title: subject}", "priority: 1", "name the columns of the key and the text"),
        ("title: subject}", "title: subject, version: v}", "the events of a feed have it"),
        ("format: debezium}", "format: json}", "is for rows of a table"),
        ("format: debezium}", "format: avro}", "allowed: json, debezium"),
    ],
)
def test_a_wrong_declaration_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    (tmp_path / "instep.yaml").write_text(PROJECT.replace(before, after))
    assert main(["plan", "--project", str(tmp_path)]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "field",
    [
        {"field": "after", "fields": 5},
        {"field": "after", "fields": [{"field": "id", "name": {}}]},
        {"field": "after", "fields": [{"field": "price", "name": DECIMAL, "parameters": [1]}]},
    ],
)
def test_a_schema_that_means_nothing_says_nothing_of_its_columns(tmp_path: Path, field: dict[str, Any]) -> None:
    line = {"schema": {"fields": [field]}, "payload": event("c", after=row(1))}
    assert texts(feed(tmp_path / "f", line)) == {"1": ("text of 1", "Ticket 1")}


def test_a_list_that_is_nested_too_deep_stays_text(tmp_path: Path) -> None:
    nested = "[" * 3_000 + "]" * 3_000
    source = feed(tmp_path / "f", event("c", after=row(1, tags=nested)), fields=("tags",))
    (answer,) = contents(source).values()
    assert isinstance(answer, Content)
