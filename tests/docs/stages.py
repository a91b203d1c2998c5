"""What the pages need around their blocks: other projects, servers, and what a reader would do in between."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import clickhouse_connect

import instep
from tests.docs.shell import Shell
from tests.docs.world import PROJECT, empty_opensearch, make_documents, make_tables
from tests.doubles.qdrant_server import QdrantServer
from tests.e2e.paid_endpoint import PaidEndpoint, PaidHandler, serving
from tests.servers.clickhouse import running as running_clickhouse
from tests.servers.mariadb import running_mariadb
from tests.servers.postgres import running_postgres
from tests.telemetry.collector import collecting
from tests.telemetry.receiver import receiving

_MATCHES: Final = """\
CREATE TABLE player_match_history (match_id UInt64, account UInt64, match_mode String, start_time DateTime)
  ENGINE = MergeTree ORDER BY (account, match_id);
CREATE TABLE match_salts (match_id UInt64, failed Bool, created_at DateTime)
  ENGINE = ReplacingMergeTree ORDER BY match_id;
CREATE TABLE match_player (match_id UInt64, account UInt64) ENGINE = MergeTree ORDER BY (match_id, account);
INSERT INTO player_match_history """
_ROWS: Final = "SELECT {first} + number, number, 'Ranked', now() - 86400 FROM numbers({number})"


def _nothing() -> AbstractContextManager[Mapping[str, str]]:
    return nullcontext({})


def _no_database(query: str, shell: Shell) -> None:
    raise AssertionError(f"nobody runs {query}")


@dataclass(frozen=True)
class Stage:
    """`servers` are there meanwhile, and say which texts of the page stand for what here. `saved`: blocks by language
    and place, and the files into which they are written before any is run. `before` is done before commands that begin
    so; `codes` is what such end with.
    """

    project: str = PROJECT
    make: Callable[[Path], None] = make_documents
    servers: Callable[[], AbstractContextManager[Mapping[str, str]]] = _nothing
    replaced: Mapping[str, str] = field(default_factory=dict)
    saved: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Callable[[Shell], None]] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    query: Callable[[str, Shell], None] = _no_database
    variables: Mapping[str, str] = field(default_factory=dict)
    #: Whether what is declared is indexed, too.
    is_run: bool = True


@contextmanager
def _postgres() -> Iterator[Mapping[str, str]]:
    server = running_postgres()
    server.execute("DROP DATABASE IF EXISTS search WITH (FORCE)")
    server.execute("CREATE DATABASE search")
    yield {"postgresql://app:${PGPASSWORD}@db/search": server.url("search")}


@contextmanager
def _clickhouse() -> Iterator[Mapping[str, str]]:
    """With the tables of a queue of matches."""
    with tempfile.TemporaryDirectory() as folder, running_clickhouse(Path(folder)) as address:
        with clickhouse_connect.get_client(dsn=address) as client:
            for statement in (_MATCHES + _ROWS.format(first=88123400, number=10)).split(";\n"):
                client.command(statement)
        host = address.removeprefix("http://")
        yield {
            "clickhouse://app:${CLICKHOUSE_PASSWORD}@db:8123/game": f"clickhouse://{host}/default",
            "http://db:8123/game": f"{address}/default",
        }


@contextmanager
def _stores() -> Iterator[Mapping[str, str]]:
    """All that `docs/configuration.md` names."""
    with _postgres() as postgres, _clickhouse() as clickhouse, QdrantServer() as qdrant:
        opensearch = empty_opensearch()
        named = {"https://qdrant:6333": qdrant.url, "http://localhost:9200": opensearch}
        yield {**postgres, **clickhouse, **named}


@contextmanager
def _lineage() -> Iterator[Mapping[str, str]]:
    with receiving() as server:
        yield {"http://marquez:5000/api/v1/lineage": server.url}


@contextmanager
def _traces() -> Iterator[Mapping[str, str]]:
    with collecting() as collector:
        yield {"http://127.0.0.1:4318": collector.url}


class _AsWide(PaidHandler):
    """Vectors are as wide as is asked."""

    def post(self, body: bytes) -> None:
        asked = json.loads(body)
        self.send(200, self.server.embed(asked["input"], asked.get("dimensions", 1536)))


@contextmanager
def _billed() -> Iterator[Mapping[str, str]]:
    with serving(PaidEndpoint(_AsWide)) as endpoint:
        yield {"type: openai\n": f"type: openai\n      url: {endpoint.url}\n"}


def _three_jobs(shell: Shell) -> None:
    """The second wrote a row, and is none that is needed any more."""
    for name in ("guide", "tides"):
        with (shell.folder / "docs" / f"{name}.md").open("a") as file:
            file.write("\nMore of it.\n")
        shell.ask("instep run")
    time.sleep(1)
    shell.ask("instep gc --keep 1s")


def _name_a_job(shell: Shell) -> None:
    shell.replaced["1f0c"] = json.loads(shell.ask("instep jobs --json"))[0]["id"]


def _serve(shell: Shell) -> None:
    """With two keys that are new."""
    shell.serve(shell.real("instep serve"))
    with clickhouse_connect.get_client(dsn=shell.replaced["http://db:8123/game"]) as client:
        client.command(f"INSERT INTO player_match_history {_ROWS.format(first=88123455, number=2)}")


def _learn_fence(shell: Shell) -> None:
    if (given := re.search(r'"fence":(\d+)', shell.said)) is not None:
        shell.replaced["17}"] = f"{given[1]}}}"
        shell.replaced["17,"] = f"{given[1]},"


def _lose_the_ledger(shell: Shell) -> None:
    for file in (shell.folder / ".instep").glob("ledger.db*"):
        file.unlink()


def _ask_matches(query: str, shell: Shell) -> None:
    with clickhouse_connect.get_client(dsn=shell.replaced["http://db:8123/game"]) as client:
        assert len(client.query(query).result_rows) == 10


def _make_ledgers(text: str, _: Shell) -> None:
    """On both servers, by their administrators."""
    parts = re.split(r"^-- .*$", text, flags=re.MULTILINE)[1:]
    for server, part in zip((running_postgres(), running_mariadb()), parts, strict=True):
        try:
            for statement in part.replace("instep", "of_the_page").replace("…", "s3cret").split(";")[:-1]:
                server.execute(statement.strip())
        finally:
            for statement in ("DROP DATABASE of_the_page", "DROP USER of_the_page"):
                server.execute(statement)


def _make_all(folder: Path) -> None:
    make_documents(folder)
    make_tables(folder)


def _make_fetcher(folder: Path) -> None:
    """It does nothing, and says that all is done."""
    make_documents(folder)
    (folder / "fetch").write_text('#!/bin/sh\ncat "$1"\n')
    (folder / "fetch").chmod(0o755)


_SPARK: Final = PROJECT.replace("inline", "auto")


_QUEUE: Final = "http://127.0.0.1:8321/api/queues/salts"
#: They need servers, or Spark.
DEAR: Final = tuple(
    f"docs/{each}.md" for each in ("configuration", "documents", "ledgers", "queues", "tables", "upkeep")
)
STAGES: Final[dict[str, Stage]] = {
    "docs/agents.md": Stage(PROJECT.replace("handbook", "notes")),
    "docs/bus.md": Stage(is_run=False),
    "docs/cluster.md": Stage(is_run=False),
    "docs/configuration.md": Stage(_SPARK, _make_all, servers=_stores),
    "docs/documents.md": Stage(
        _SPARK,
        _make_all,
        saved={"json 1": "feed/one.jsonl"},
        replaced={"path: feed, format: debezium": "path: debezium, format: debezium"},
    ),
    "docs/generations.md": Stage(variables={"EDITOR": "sed -i s/hashing/static/"}),
    "docs/handlers.md": Stage(
        PROJECT.replace("inline", "auto")
        + "  MergeRequest: {source: {type: spark, path: data/merge_requests}, key: id, scope: path}\n"
        + "namespaces: [42/9970]\n",
        is_run=False,
    ),
    "docs/lineage.md": Stage(
        PROJECT + "    deletes: {window: 1s}\n",
        servers=_lineage,
        before={"instep why Document docs/guide.md": _three_jobs},
    ),
    "docs/many-servers.md": Stage(before={"instep job show": _name_a_job}),
    "docs/money.md": Stage(servers=_billed),
    "docs/monitoring.md": Stage(servers=_traces),
    "docs/quality.md": Stage(PROJECT.replace("hashing", "static"), saved={"json 1": "judged.jsonl"}),
    "docs/ledgers.md": Stage(is_run=False, query=_make_ledgers),
    # This ClickHouse keeps no log of queries, and the command says so.
    "docs/queues.md": Stage(
        servers=_clickhouse,
        make=_make_fetcher,
        query=_ask_matches,
        codes={"instep queue observe": 1},
        before={f"curl -s {_QUEUE}/next": _serve, f"curl -s {_QUEUE}/ack": _learn_fence},
    ),
    "docs/tables.md": Stage(_SPARK, _make_all),
    "docs/upkeep.md": Stage(servers=_postgres, before={"instep adopt": _lose_the_ledger}),
    "docs/wants.md": Stage(
        PROJECT
        + "  Site: {source: {type: files, path: sites}}\n"
        + "  Author: {source: {type: files, path: authors}}\n"
    ),
}


def use_names(page: str, names: dict[str, Any]) -> None:
    """Functions that a page defines are called as Instep would."""
    if page == "docs/wants.md":
        assert "A page of authors" in names["parse"](b"One\n\nWords.", "pages/one.md")
    if page == "docs/python.md":
        assert isinstance(names["project"], instep.Instep)
