"""Entities whose documents are rows of a table."""

from __future__ import annotations

import pytest

from instep.project import DocumentEntity, RowDocument, TableEntity

from .conftest import Load, Reject

PROJECT = """\
name: desk
engine: auto
targets:
  index: {type: lance, uri: index}
entities:
  Ticket:
    source: {type: spark, path: tickets}
    document: {key: id, text: body}
    chunk: {size: 400}
"""


def test_a_table_makes_documents_if_they_are_declared_and_a_graph_if_not(load: Load) -> None:
    ticket = load(PROJECT).entities["Ticket"]
    assert isinstance(ticket, DocumentEntity)
    assert ticket.document == RowDocument(key="id", text="body")  # type: ignore[arg-type]  # one key is a list of one
    assert not ticket.needs_spark
    graph = load(PROJECT.replace("    document: {key: id, text: body}\n    chunk: {size: 400}", "    key: id"))
    assert isinstance(graph.entities["Ticket"], TableEntity)


@pytest.mark.parametrize(
    "source",
    [
        "{type: spark, format: delta, path: tickets}",
        "{type: spark, path: 'tickets/*.parquet'}",
        "{type: spark, path: tickets, sql: SELECT * FROM source}",
        "{type: spark, table: catalog.tickets}",
        "{type: spark, format: jdbc, table: tickets, options: {url: 'jdbc:postgresql://h/db'}}",
    ],
)
def test_sources_that_only_spark_reads_need_the_spark_engine(load: Load, reject: Reject, source: str) -> None:
    project = PROJECT.replace("{type: spark, path: tickets}", source)
    entity = load(project).entities["Ticket"]
    assert isinstance(entity, DocumentEntity)
    assert entity.needs_spark
    inline = reject(project.replace("engine: auto", "engine: inline"))
    assert "only unchanged Parquet files can be read without Spark, and `engine` is inline" in str(inline)
    alone = reject(project.replace("type: lance", "type: qdrant"))
    assert "the source needs Spark, and the target index is one in this process" in str(alone)


def test_rows_that_only_spark_reads_need_it_beside_a_table_that_does_not(load: Load) -> None:
    joined = "text: body, with: {comments: {source: {type: spark, path: c, format: delta}, key: a, text: t}}"
    entity = load(PROJECT.replace("text: body", joined)).entities["Ticket"]
    assert isinstance(entity, DocumentEntity)
    assert entity.needs_spark


@pytest.mark.parametrize(
    "source",
    [
        "type: delta, path: tickets",
        "type: iceberg, table: desk.tickets, catalog: {uri: 'https://h'}",
        "type: kafka, servers: ['h:1'], topic: tickets, format: debezium",
        "type: feed, path: tickets, format: debezium",
    ],
)
def test_rows_are_not_joined_to_sources_whose_own_changes_are_followed(reject: Reject, source: str) -> None:
    joined = "text: body, with: {comments: {source: {type: spark, path: c}, key: a, text: t}}"
    project = PROJECT.replace("text: body", joined).replace("type: spark, path: tickets", source)
    kind = source.removeprefix("type: ").partition(",")[0]
    said = f"document.with: is for tables of the types spark and clickhouse, and the source is {kind}"
    assert said in str(reject(project))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("type: spark, path: tickets", "type: files, path: docs", "document: is for rows of a table"),
        ("text: body", "text: body, title: body", "document.title: is the column of `text` already"),
        ("key: id, ", "", "document.key: "),
        (" {key: id, text: body}", "", "document: is missing: name the columns of the key and the text"),
        (
            "text: body",
            "text: body, with: {comments: {source: {type: spark, path: c}, key: [a, b], text: t}}",
            "document.with.comments.key: has 2 columns, and the key of the document has 1",
        ),
        (
            "text: body",
            "text: body, with: {comments: {source: {type: spark, path: c}, key: a, order: a, text: t}}",
            "document.with.comments.order: is a column of `key`",
        ),
        (
            "text: body",
            "text: body, with: {comments: {source: {type: files, path: c}, key: a, text: t}}",
            "document.with.comments.source",
        ),
        (
            "text: body",
            "text: body, with: {comments: {source: {type: delta, path: c}, key: a, text: t}}",
            "document.with.comments.source.type: is not one of the allowed values; found 'delta'",
        ),
        ("key: id", "key: [id, id]", "document.key[1]: is named twice"),
        ("text: body", "text: body, verison: at", "unknown key (did you mean version?)"),
        ("chunk: {size: 400}", "watermark: at", "is for tables, and this is an entity of documents"),
    ],
)
def test_invalid_declarations_are_refused(reject: Reject, old: str, new: str, says: str) -> None:
    assert says in str(reject(PROJECT.replace(old, new)))
