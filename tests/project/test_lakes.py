"""Entities whose documents are rows of Delta and Iceberg tables."""

from __future__ import annotations

import pytest

from instep.project import DeltaSource, DocumentEntity, IcebergSource, TableEntity

from .conftest import Load, Reject

PROJECT = """\
name: desk
engine: inline
targets:
  index: {type: lance, uri: index}
entities:
  Ticket:
    source: {type: delta, path: lake/tickets, storage_options: {AWS_SECRET_ACCESS_KEY: "${SECRET}"}}
    document: {key: id, text: body}
  Page:
    source: {type: iceberg, table: wiki.pages, catalog: {uri: "https://host/x", token: "${SECRET}"}}
    document: {key: [space, slug], text: markdown}
"""


def test_tables_with_versions_are_read_without_spark_and_keep_their_secrets(load: Load) -> None:
    project = load(PROJECT, {"SECRET": "sesame"})
    ticket, page = project.resolved_source("Ticket"), project.resolved_source("Page")
    assert isinstance(ticket, DeltaSource)
    assert isinstance(page, IcebergSource)
    assert ticket.path == (str(project.root / "lake/tickets"),)
    assert ticket.storage() == {"AWS_SECRET_ACCESS_KEY": "sesame"}
    assert page.options() == {"uri": "https://host/x", "token": "sesame"}
    assert "sesame" not in repr(project)
    entities = [each for each in project.entities.values() if isinstance(each, DocumentEntity)]
    assert [each.needs_spark for each in entities] == [False, False]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("path: lake/tickets, ", "", "entities.Ticket.source.path: is missing"),
        ("path: lake/tickets", "path: [a, b]", "entities.Ticket.source.path: a Delta table has one path"),
        ("path: lake/tickets", "path: ''", "entities.Ticket.source.path: must not be empty"),
        ("    document: {key: id, text: body}\n", "", "entities.Ticket.document: is missing: name the columns"),
        ("table: wiki.pages, ", "", "entities.Page.source.table: is missing"),
        (
            ', catalog: {uri: "https://host/x", token: "${SECRET}"}',
            "",
            "entities.Page.source.catalog: is missing",
        ),
        ("table: wiki.pages", "table: wiki.pages, path: x", "entities.Page.source.path: "),
    ],
)
def test_what_is_wrong_is_named(reject: Reject, old: str, new: str, says: str) -> None:
    assert old in PROJECT
    error = reject(PROJECT.replace(old, new), {"SECRET": "sesame"})
    assert says in str(error)
    assert "sesame" not in str(error)


TABLES = """\
name: desk
engine: inline
targets:
  index: {type: lance, uri: index}
entities:
  Person:
    source: {type: delta, path: lake/people}
    key: id
  Team:
    source: {type: iceberg, table: desk.teams, catalog: {uri: "sqlite:///catalog.db"}}
    key: id
"""


def test_without_a_document_rows_are_nodes_that_need_no_spark(load: Load) -> None:
    entities = load(TABLES).entities
    tables = [each for each in entities.values() if isinstance(each, TableEntity)]
    assert [each.needs_spark for each in tables] == [False, False]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("watermark: at", "entities.Person.watermark: is not needed: the versions of delta say what has changed"),
        ("changes: {queue: people}", "entities.Person.changes: is not needed"),
        ("transform: people:clean", "entities.Person.transform: needs a source that Spark reads"),
    ],
)
def test_what_versions_leave_nothing_to_is_refused(reject: Reject, more: str, says: str) -> None:
    error = reject(TABLES.replace("path: lake/people}\n", f"path: lake/people}}\n    {more}\n"))
    assert says in str(error)
