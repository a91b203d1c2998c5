"""Project files with tables, ways to change them, and entities by what they are made of."""

from __future__ import annotations

from instep.project import DocumentEntity, FilesSource, Project, TableEntity

from .conftest import Reject

TABLES = """\
name: git
targets:
  graph: {type: clickhouse, uri: .instep/graph}
  index: {type: lance, uri: .instep/index}
entities:
  Commit:
    source:
      type: spark
      path: data/commits
    key: [id]
    scope: path
    watermark: updated_at
    target: graph
    node: {label: Commit, properties: [sha, message]}
    edges:
      - {kind: AUTHORED, from: {label: Person, columns: author}, to: {label: Commit}}
  Author:
    source: {type: clickhouse, uri: data/store, table: people}
    key: email
    target: graph
    node: {label: Person}
  Notes:
    source: {type: files, path: docs}
    target: index
"""


def changed(old: str, new: str, text: str = TABLES) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


def said(reject: Reject, old: str, new: str) -> str:
    """What is said of the file with a change: `line path: message`, all in one line."""
    environment = {"SECRET": "hunter2"}
    error = reject(changed(old, new), environment)
    assert "hunter2" not in str(error)
    return " | ".join(f"{each.line} {each}" for each in error.problems)


def documents(project: Project, name: str = "Document") -> DocumentEntity:
    entity = project.entities[name]
    assert isinstance(entity, DocumentEntity)
    return entity


def files_as_declared(project: Project, name: str = "Document") -> FilesSource:
    source = documents(project, name).source
    assert isinstance(source, FilesSource)
    return source


def files(project: Project, name: str = "Document") -> FilesSource:
    """Its source, with absolute paths."""
    source = project.resolved_source(name)
    assert isinstance(source, FilesSource)
    return source


def table(project: Project, name: str) -> TableEntity:
    entity = project.entities[name]
    assert isinstance(entity, TableEntity)
    return entity
