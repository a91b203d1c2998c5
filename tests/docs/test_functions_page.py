"""The functions of the page about them work, are typed, and pass the suites, as they are written there."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .blocks import DOCS, blocks, run
from .help_desk import help_desk

ROOT = Path(__file__).parents[2]
PROJECT = """\
name: mine
engine: inline
targets:
  index: {type: python, class: "mine.index:Index", uri: index, options: {log: served.log}}
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
  Request:
    source: {type: python, class: "mine.help:HelpDesk", options: {url: "${HELP_URL}", token: "${HELP_TOKEN}"}}
"""
MAIL = "From: a@b.c\nSubject: Tides\nContent-Type: text/plain\n\nThe tide comes twice a day.\n\nSo does the ferry.\n"
PROTOCOLS = """\
import instep
from mine.help import HelpDesk
from mine.index import Index
from mine.order import scores
from mine.texts import cut, embed, parse
from mine.tickets import listed, ticket

parses: instep.ParseFunction = parse
cuts: instep.ChunkFunction = cut
embeds: instep.EmbedFunction = embed
lists: instep.ListFunction = listed
reads: instep.ReadFunction = ticket
lists = HelpDesk("https://help", "token").list
reads = HelpDesk("https://help", "token").read
reranks: instep.RerankFunction = scores
target: instep.DocumentTarget = Index("index", log="served.log")
"""
#: Each of them as it might be written by mistake.
WRONG = """\
from collections.abc import Iterator

import instep


def parse(data: str, uri: str) -> str: return data
def cut(text: str) -> list[str]: return [text]
def embed(text: str) -> list[float]: return [0.5]
def listed() -> Iterator[str]: yield "an id without a version"
def read(id: int) -> str: return "text"
def scores(query: str, texts: list[str]) -> float: return 0.5


class Forgetful:
    def check(self) -> None: ...


parses: instep.ParseFunction = parse
cuts: instep.ChunkFunction = cut
embeds: instep.EmbedFunction = embed
lists: instep.ListFunction = listed
reads: instep.ReadFunction = read
reranks: instep.RerankFunction = scores
target: instep.DocumentTarget = Forgetful()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for block in blocks((DOCS / "functions.md").read_text(encoding="utf-8"), "python"):
        name = block.splitlines()[0].removeprefix("# ")
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


@pytest.fixture
def url() -> Iterator[str]:
    with help_desk("for-tests", {"a/1": "The door is open."}) as url:
        yield url


def test_functions_of_the_page_read_parse_cut_embed_write_and_rerank(place: Path, url: str) -> None:
    variables = {"HELP_URL": url, "HELP_TOKEN": "for-tests"}
    (documents, requests, tickets) = sorted(
        json.loads(run("instep run --json", place, variables=variables)), key=lambda each: str(each["ref"])
    )
    assert [each["counts"]["failed"] for each in (documents, requests, tickets)] == [0, 0, 0]
    assert documents["counts"]["written"] == 2
    found = json.loads(run("instep search 'the ferry' --entity Document --json", place, variables=variables))
    assert {each["title"] for each in found} == {"Tides", "Note"}
    assert {each["score_kind"] for each in found} == {"rerank"}
    assert "So does the ferry." in {each["text"].strip() for each in found}
    (ticket,) = json.loads(run("instep search fire --entity Ticket --json", place, variables=variables))
    assert (ticket["title"], ticket["columns"]) == ("Printer", {"team": "ops"})
    (request,) = json.loads(run("instep search door --entity Request --json", place, variables=variables))
    assert request["text"] == "The door is open."
    served = (place / "served.log").read_text().splitlines()
    assert sorted(each.split()[0] for each in served) == ["Document", "Request", "Ticket"]
    assert all(each.endswith(", and was None") for each in served)


def test_mypy_takes_functions_of_the_page_for_the_exported_types_and_refuses_others(place: Path) -> None:
    (place / "right.py").write_text(PROTOCOLS)
    (place / "wrong.py").write_text(WRONG)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")),
            *("--cache-dir", str(ROOT / ".mypy_cache" / "page"), "-p", "mine", "-m", "right", "-m", "wrong"),
        ],
        cwd=place,
        env={**os.environ, "MYPYPATH": f"{place}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line.partition(": error: ")[0] for line in done.stdout.splitlines() if ": error: " in line]
    wrong = [at for at, line in enumerate(WRONG.splitlines(), 1) if ": instep." in line]
    assert len(wrong) == 7
    assert errors == [f"wrong.py:{at}" for at in wrong], done.stdout + done.stderr


def suites(place: Path, url: str, file: str) -> int:
    """How many tests of a file of the page pass, if all do."""
    done = run(
        f"python -m pytest -q -p no:cacheprovider -m 'not proof' tests/{file}",
        place,
        variables={"HELP_URL": url, "PYTHONPATH": str(place)},
        seconds=600,
    )
    return int(done.splitlines()[-1].split()[0])


def test_the_source_and_the_embedder_of_the_page_pass_their_suites(place: Path, url: str) -> None:
    assert suites(place, url, "test_help.py") > 10


@pytest.mark.proof
def test_the_target_of_the_page_passes_its_suite(place: Path, url: str) -> None:
    assert suites(place, url, "test_index.py") > 100
