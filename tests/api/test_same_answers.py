"""The command line with `--json`, HTTP and the Python API give the same answer to the same question."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.answers.answer import as_json
from instep.api.application import create_app
from instep.app import Instep, load
from instep.cli import main
from instep.ledger.open import open_ledger
from instep.system import SystemClock
from tests.api.conftest import PROJECT, TIMEOUT_SECONDS, TOKEN, bearer, served, write
from tests.api.test_contract import MORE
from tests.cli import ledgers

#: When an answer was made, by the ledger's clock.
MOMENTS = ("seen_at", "now")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Instep:
    """A project with an answer to everything: a job, a failure, a want, a tainted instance, a worker, a queue."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "docs").mkdir()
    (folder / "instep.yaml").write_text(PROJECT + MORE)
    pq.write_table(pa.table({"id": [1], "path": ["1/2/"]}), folder / "tickets.parquet")
    with closing(sqlite3.connect(folder / "salts.db")) as database:
        database.executescript(
            "CREATE TABLE source (k INTEGER PRIMARY KEY); CREATE TABLE cover (k INTEGER PRIMARY KEY);"
            "INSERT INTO source VALUES (1), (2), (3); INSERT INTO cover VALUES (2)"
        )
    write(folder, 3)
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 this is none")
    found = load(folder)
    found.want(["Document"], by="ann")
    found.run(["Document"], engine="inline")
    found.taint("Document", why="for a test")
    with found.queue("salts") as queue:
        queue.create()
        queue.backfill()
        queue.verify()
    with closing(open_ledger(found.project.ledger_url, clock=SystemClock())) as ledger:
        ledgers.register(ledger, ledgers.ANN)
    return found


@pytest.fixture(scope="module")
def client(project: Instep) -> Iterator[httpx.Client]:
    app = create_app(project, token=TOKEN, loopback=True)
    with (
        served(app) as address,
        httpx.Client(base_url=address, headers=bearer(), timeout=TIMEOUT_SECONDS, verify=False) as found,
    ):
        yield found


def text(value: Any) -> str:
    """As JSON, without the moment at which it was asked for."""
    return json.dumps(_without_moments(value), indent=1)


def _without_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_moments(each) for name, each in value.items() if name not in MOMENTS}
    return [_without_moments(each) for each in value] if isinstance(value, list) else value


def job_of(project: Instep) -> str:
    return project.jobs()[0].id


def chunk_of(project: Instep) -> str:
    return project.search("word1x1", mode="text")[0].chunk_id


def status_of_queue(project: Instep) -> Any:
    with project.queue("salts") as queue:
        return queue.status()


Ask = Callable[[Instep], Any]

#: A command, the path that answers the same, and the method.
ANSWERS: list[tuple[str, str, Ask]] = [
    ("jobs", "/jobs", lambda project: project.jobs()),
    ("job show {job}", "/jobs/{job}", lambda project: project.job(job_of(project))),
    ("workers", "/workers", lambda project: project.workers()),
    ("failures", "/failures", lambda project: project.failures()),
    ("buckets Document", "/buckets/Document", lambda project: project.buckets(["Document"])),
    ("history Document", "/partitions/Document/history", lambda project: project.history("Document")),
    ("lineage Document", "/partitions/Document/lineage", lambda project: project.lineage("Document")),
    ("status Document", "/partitions?entity=Document", lambda project: project.status(["Document"])),
    ("status", "/status/matrix", lambda project: project.matrix()),
    ("wants --all", "/wants?ended=true", lambda project: project.wants(ended=True)),
    (
        "search word1x1 --mode text -n 10",
        "/search?q=word1x1&mode=text",
        lambda project: project.search("word1x1", mode="text"),
    ),
    (
        "why Document {chunk}",
        "/why?ref=Document&id={chunk}",
        lambda project: project.why("Document", chunk_of(project)),
    ),
    ("queue status salts", "/queues/salts", status_of_queue),
]


@pytest.mark.parametrize(("command", "path", "ask"), ANSWERS, ids=[each[0].partition(" ")[0] for each in ANSWERS])
def test_command_line_http_and_python_answer_alike(
    project: Instep, client: httpx.Client, capsys: pytest.CaptureFixture[str], command: str, path: str, ask: Ask
) -> None:
    names = {"job": job_of(project), "chunk": chunk_of(project)}
    response = client.get(f"/api{path.format(**names)}")
    assert response.status_code == 200, response.text
    answered = response.json()
    capsys.readouterr()
    assert main([*command.format(**names).split(), "--json", "--project", str(project.project.root)]) == 0
    printed = json.loads(capsys.readouterr().out)
    if command == "status":
        printed = printed["matrix"]
    answered = answered.get("items", answered)
    assert answered, "there is something to compare"
    assert text(printed) == text(answered) == text(as_json(ask(project)))
