"""What docs/targets.md shows of reading an index works on the targets themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from tests.docs.blocks import blocks, sections
from tests.docs.world import empty_opensearch, make_documents, make_tables
from tests.doubles.qdrant_server import QdrantServer
from tests.servers.clickhouse import running
from tests.servers.milvus import running_milvus
from tests.servers.postgres import running_postgres

pytestmark = pytest.mark.proof

PAGE: Final = sections("targets.md")
DOCUMENT: Final = "  Document: {source: {type: files, path: docs}, embed: {type: hashing, dimensions: 16}}\n"
ROWS: Final = "  MergeRequest: {source: {type: spark, path: data/merge_requests}, key: id}\n"
TICKETS: Final = """\
  Ticket:
    source: {type: spark, path: data/tickets}
    key: id
    mapping: {properties: {title: {type: text}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    make_documents(tmp_path)
    make_tables(tmp_path)
    (tmp_path / "data" / "merge_requests").mkdir()
    rows = pa.table({"id": [1, 2, 3], "state": ["open", "open", "merged"]})
    pq.write_table(rows, tmp_path / "data" / "merge_requests" / "rows.parquet")
    with chdir(tmp_path):
        yield tmp_path


@pytest.fixture(scope="module")
def postgres() -> str:
    server = running_postgres()
    server.execute("DROP DATABASE IF EXISTS targets_page WITH (FORCE)")
    server.execute("CREATE DATABASE targets_page")
    return server.url("targets_page")


def index(folder: Path, target: str, entities: str) -> None:
    (folder / "instep.yaml").write_text(f"name: page\nengine: auto\ntargets:\n  it: {target}\nentities:\n{entities}")
    for result in instep.load(folder).run():
        assert result.counts.written > 0, result


def execute(code: str, **names: Any) -> Any:
    """The value of its last line, if that is one."""
    *others, last = [each for each in code.strip().split("\n") if each]
    with redirect_stdout(StringIO()):
        if last.startswith((")", "#")) or " = " in last:
            exec(code, names)
            return names.get("table")
        exec("\n".join(others), names)
        return eval(last, names)


def code_of(section: str, here: dict[str, str]) -> str:
    (block,) = blocks(PAGE[section], "python")
    for told, real in here.items():
        assert told in block
        block = block.replace(told, real)
    return block


def test_lance(folder: Path) -> None:
    index(folder, "{type: lance, uri: .instep/index}", DOCUMENT)
    table = execute(code_of("lance", {}))
    assert table.num_rows >= 4
    assert table.column_names == ["source_uri", "text"]


@pytest.mark.spark
def test_lance_for_tables(folder: Path) -> None:
    import lance

    index(folder, "{type: lance, uri: .instep/index}", ROWS)
    (made,) = (folder / ".instep" / "index").glob("MergeRequest__*.lance")
    told = "MergeRequest__5e6f7a8b_1a2b3c4d.lance"
    assert execute(code_of("lance, for tables", {told: made.name}), lance=lance).num_rows == 3


@pytest.mark.spark
def test_clickhouse(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    import clickhouse_connect

    (query,) = blocks(PAGE["clickhouse"], "sql")
    with running(tmp_path_factory.mktemp("clickhouse")) as address:
        index(folder, f'{{type: clickhouse, uri: "{address}/instep", staging: staged}}', ROWS)
        with clickhouse_connect.get_client(dsn=address) as client:
            assert {*client.query(query).result_rows} == {("open", 2), ("merged", 1)}


@pytest.mark.spark
def test_postgres(folder: Path, postgres: str) -> None:
    (query,) = blocks(PAGE["postgres"], "sql")
    index(folder, f'{{type: postgres, uri: "{postgres}"}}', ROWS)
    with psycopg.connect(postgres) as connection:
        assert {*connection.execute(query.encode()).fetchall()} == {("open", 2), ("merged", 1)}


def test_postgres_for_documents(folder: Path, postgres: str) -> None:
    (query,) = blocks(PAGE["postgres, for documents"], "sql")
    index(folder, f'{{type: postgres, uri: "{postgres}"}}', DOCUMENT)
    with psycopg.connect(postgres) as connection:
        found = connection.execute(query.replace("[0.1, …]", str([0.25] * 16)).encode()).fetchall()
    assert len(found) == 4


def test_qdrant(folder: Path) -> None:
    with QdrantServer() as server:
        index(folder, f'{{type: qdrant, uri: "{server.url}"}}', DOCUMENT)
        code = code_of("qdrant", {"http://localhost:6333": server.url})
        assert execute(code, vector=[0.25] * 16) is not None
        # The client asks for the server's version beside that.
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and "_check_compatibility" in thread.name:
                thread.join()


def test_milvus(folder: Path) -> None:
    address = running_milvus().url()
    index(folder, f'{{type: milvus, uri: "{address}"}}', DOCUMENT)
    code = code_of("milvus", {"http://localhost:19530": address})
    assert execute(code, vector=[0.25] * 16) is not None


@pytest.mark.spark
def test_opensearch(folder: Path) -> None:
    """Documents, and then rows with the same client."""
    address = empty_opensearch()
    with ExitStack() as stack:
        index(folder, f'{{type: opensearch, uri: "{address}"}}', DOCUMENT + TICKETS)
        names: dict[str, Any] = {"vector": [0.25] * 16}
        exec(code_of("opensearch", {"http://localhost:9200": address}), names)
        stack.callback(names["client"].close)
        found = eval(code_of("opensearch, for tables", {}).strip(), names)
        assert [each["_source"]["id"] for each in found["hits"]["hits"]] == [1]
