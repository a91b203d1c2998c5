"""The functions of the page about them work as they are written there."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from .blocks import DOCS, blocks, run

PROJECT = """\
name: mine
engine: inline
targets: {index: {type: lance, uri: index}}
entities:
  Document:
    source: {type: files, path: docs, include: ["*.eml", "*.md"]}
    parse: {type: python, function: "mine.texts:parse"}
    chunk: {type: python, function: "mine.texts:cut"}
    embed: {type: python, function: "mine.texts:embed", dimensions: 256}
    search:
      rerank: {type: python, function: "mine.order:scores", top: 20}
  Ticket:
    source: {type: python, list: "mine.tickets:listed", read: "mine.tickets:ticket"}
    columns: {team: string}
"""
MAIL = "From: a@b.c\nSubject: Tides\nContent-Type: text/plain\n\nThe tide comes twice a day.\n\nSo does the ferry.\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for block in blocks((DOCS / "functions.md").read_text(encoding="utf-8"), "python"):
        name = block.splitlines()[0].removeprefix("# ")
        if name.startswith("mine/"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(block)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mail.eml").write_text(MAIL)
    (tmp_path / "docs" / "note.md").write_text("# Note\n\nThe ferry waits for the tide.\n")
    (tmp_path / "instep.yaml").write_text(PROJECT)
    with sqlite3.connect(tmp_path / "tickets.db") as database:
        database.execute("CREATE TABLE tickets (id INTEGER PRIMARY KEY, title, body, team, changed)")
        database.execute("INSERT INTO tickets VALUES (7, 'Printer', 'It is on fire.', 'ops', 1)")
    return tmp_path


def test_functions_of_the_page_read_parse_cut_embed_and_rerank(place: Path) -> None:
    (documents, tickets) = json.loads(run("instep run --json", place))
    assert (documents["counts"]["failed"], tickets["counts"]["failed"]) == (0, 0)
    assert documents["counts"]["written"] == 2
    found = json.loads(run("instep search 'the ferry' --entity Document --json", place))
    assert {each["title"] for each in found} == {"Tides", "Note"}
    assert {each["score_kind"] for each in found} == {"rerank"}
    assert "So does the ferry." in {each["text"].strip() for each in found}
    (ticket,) = json.loads(run("instep search fire --entity Ticket --json", place))
    assert (ticket["title"], ticket["columns"]) == ("Printer", {"team": "ops"})
