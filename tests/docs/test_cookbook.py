"""The recipes of the cookbook work as they are written, on real servers where one is needed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from instep.project.load import load_project
from tests.docs.blocks import blocks, commands, sections
from tests.docs.page import Command
from tests.docs.shell import Shell
from tests.docs.world import empty_opensearch
from tests.documents.test_parse import pdf
from tests.servers.postgres import running_postgres

RECIPES = sections("cookbook.md")
#: Whatever is named in a project of the page.
VARIABLES = {
    "SEARCH_DATABASE": "postgresql://app:secret@db/search",
    "OPENSEARCH": "http://localhost:9200",
    "ACME_TOKEN": "a-token-of-acme-alone",
    "GLOBEX_TOKEN": "a-token-of-globex-alone",
}


def _cooked(recipe: str, folder: Path, project: int = 0, **variables: str) -> list[str]:
    """What each command of a recipe prints, with its first project or another."""
    text, said = RECIPES[recipe], []
    (folder / "instep.yaml").write_text(blocks(text, "yaml")[project])
    with ExitStack() as stack:
        shell = Shell(folder, stack, {}, VARIABLES | variables)
        for each in commands(text):
            shell.run(Command(each, ""))
            said.append(shell.said)
    return said


@pytest.mark.parametrize("recipe", RECIPES)
def test_all_projects_of_a_recipe_are_valid(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    declared = blocks(RECIPES[recipe], "yaml")
    assert declared
    for each in declared:
        (tmp_path / "instep.yaml").write_text(each)
        project = load_project(tmp_path / "instep.yaml")
        assert {*project.entities, *project.queues}


def test_a_search_in_code_says_where_to_look(tmp_path: Path) -> None:
    code = 'class Caller:\n    def again(self, call):\n        """Delay retries."""\n        return call()\n'
    (tmp_path / "caller.py").write_text("import time\n\n\n" + code * 40)
    (tmp_path / "ports.csv").write_text("port,level\n" + "Brest,7.1\n" * 400)
    *_, said = _cooked("A code repository", tmp_path)
    found = json.loads(said)[0]["columns"]
    assert (found["language"], found["inside"][0]) == ("py", "Caller")
    assert found["line"] > 0


def test_a_queue_gives_its_workers_what_is_missing(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (order_id INTEGER PRIMARY KEY)")
        shop.execute("CREATE TABLE bills (order_id INTEGER PRIMARY KEY)")
        shop.executemany("INSERT INTO orders VALUES (?)", [(1,), (2,), (3,)])
        shop.execute("INSERT INTO bills VALUES (2)")
        shop.commit()
    _cooked("A queue of what is missing, and its workers", tmp_path)
    given = [json.loads(line) for line in (tmp_path / "work.jsonl").read_text().splitlines()]
    assert sorted(each["key"] for each in given) == [1, 3]


def test_a_tenant_finds_what_is_its_own(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for tenant, kind in (("acme", "draft"), ("globex", "draft"), ("globex", "final")):
        front = f'---\nreaders: ["tenant:{tenant}"]\nkind: {kind}\n---\n'
        (notes / f"{tenant}-{kind}.md").write_text(f"{front}# Contract of {tenant}\n\nA contract, {kind}.\n")
    _, acme, globex = _cooked("One index for many tenants", tmp_path)
    assert _named(acme, notes) == {"acme-draft.md"}
    assert _named(globex, notes) == {"globex-draft.md"}


@pytest.mark.proof
def test_pdfs_are_found_in_postgres(tmp_path: Path) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "leaf.pdf").write_bytes(pdf("Photosynthesis happens in leaves"))
    (papers / "rock.pdf").write_bytes(pdf("Granite is an igneous rock"))
    server = running_postgres()
    server.execute("DROP DATABASE IF EXISTS cookbook WITH (FORCE)")
    server.execute("CREATE DATABASE cookbook")
    address = f"postgresql://{server.user}:{server.password}@127.0.0.1:{server.port}/cookbook"
    recipe = "PDFs into PostgreSQL with pgvector"
    _, _, found, _ = _cooked(recipe, tmp_path, SEARCH_DATABASE=address)
    assert "leaf.pdf" in found.split("rock.pdf")[0]
    with psycopg.connect(address) as connection:
        rows = connection.execute(blocks(RECIPES[recipe], "sql")[0].encode()).fetchall()
    assert [(uri, page) for uri, page, _ in rows] == [
        ("project:///papers/leaf.pdf", 1),
        ("project:///papers/rock.pdf", 1),
    ]


NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
TICKETS = pa.table(
    {
        "id": [1, 2],
        "subject": ["Printer", "Printer"],
        "body": ["The printer is on fire.", "The printer is blue."],
        "team": ["ops", "art"],
        "updated_at": [NOON, NOON],
    }
)


@pytest.mark.proof
def test_rows_of_parquet_and_of_delta_are_found_in_opensearch(tmp_path: Path) -> None:
    recipe, server = "Parquet or Delta into OpenSearch", empty_opensearch()
    (tmp_path / "data" / "tickets").mkdir(parents=True)
    pq.write_table(TICKETS, tmp_path / "data" / "tickets" / "a.parquet")
    _, found = _cooked(recipe, tmp_path, OPENSEARCH=server)
    assert "on fire" in found
    assert "blue" not in found
    smoking = pa.array(["The printer smokes.", "The printer is blue."])
    write_deltalake(tmp_path / "lake" / "tickets", TICKETS.set_column(2, "body", smoking))
    _, found = _cooked(recipe, tmp_path, 1, OPENSEARCH=server)
    assert "smokes" in found
    assert "on fire" not in found


def _named(said: str, folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name in said}
