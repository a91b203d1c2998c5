"""Documents in PostgreSQL: the contract, and what is PostgreSQL's own."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import OneOf
from instep.domain.words import text_query
from instep.errors import UserError
from instep.postgres.connection import Session
from instep.targets.document_target import SEARCHED, ChunkChanges, DocumentTarget, row_schema
from instep.targets.ownership import NotOurs, Owner
from instep.targets.postgres import chunks, pgvector, searching
from instep.targets.postgres.documents import PostgresDocuments
from instep.targets.postgres.target import PostgresTarget
from instep.testing.ownership import OURS, DocumentOwnership
from instep.testing.table_rows import SPECS
from instep.testing.target import TargetContract
from instep.testing.target_rows import (
    BUCKETS,
    DIMENSIONS,
    NOTHING,
    Content,
    OnOneIndex,
    put,
    replaced,
    rows_of,
    vector_of,
    with_words,
)
from tests.contracts.target_in_short import ShortContract
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

_numbers = itertools.count(1)


@pytest.fixture
def target(server: PostgresServer) -> Iterator[PostgresDocuments]:
    schema = f'docs "{next(_numbers)}"%s'
    yield PostgresDocuments(server.url(DATABASE), schema)
    quoted = schema.replace('"', '""')
    server.execute(f'DROP SCHEMA IF EXISTS "{quoted}" CASCADE', database=DATABASE)


class OnPostgres(OnOneIndex):
    def content(self, target: DocumentTarget, physical: str) -> Content:
        assert isinstance(target, PostgresDocuments)
        with target.place.session() as session:
            return Counter(session.run("SELECT document_id, text FROM {table}", table=session.name(physical)))


@pytest.mark.proof
class TestPostgresDocuments(OnPostgres, TargetContract):
    #: Of the interleavings and the rounds of processes a part: the journal is the same as for tables.
    every = 3
    rounds = 4


class TestPostgresDocumentsInShort(OnPostgres, ShortContract):
    pass


class TestOwnership(DocumentOwnership):
    def test_a_schema_of_before_owners_were_known_is_taken_over(self, target: PostgresDocuments) -> None:
        target.create("Document__1", DIMENSIONS, BUCKETS)
        target.promote("Document", "Document__1", 5)
        with target.place.session() as session:
            for table in ("instep_indexes", "instep_aliases"):
                session.run("ALTER TABLE {table} DROP COLUMN owner", table=session.name(table))
        stranger = target.owned_by(OURS)
        assert (stranger.owner_of("Document__1"), stranger.mine("Document")) == ("", False)
        with pytest.raises(NotOurs):
            stranger.fence("Document__1", 6)
        before = target.owned_by(Owner(OURS.id, frozenset({"Document__1"})))
        before.fence("Document__1", 6)
        before.promote("Document", "Document__1", 6)
        assert (target.owner_of("Document__1"), target.owner_of("Document")) == (OURS.id, OURS.id)


def row_texts(server: PostgresServer, target: PostgresDocuments, alias: str = "Document") -> list[object]:
    """As a client of one's own reads them."""
    return [text for (text,) in client(server, target, "SELECT text FROM {} ORDER BY text", alias)]


def client(server: PostgresServer, target: PostgresDocuments, statement: str, *names: str) -> list[tuple[object, ...]]:
    quoted = [sql.Identifier(target.schema, name) for name in names]
    with psycopg.connect(server.url(DATABASE)) as connection:
        text = sql.SQL(statement).format(*quoted).as_string(connection)
    return server.execute(text, database=DATABASE)


@pytest.fixture
def index(target: PostgresDocuments) -> str:
    target.create("Document__1", DIMENSIONS, BUCKETS)
    put(target, "Document__1", {"a": ["old 1", "old 2", "kept"], "b": ["old 3"]}, epoch=1, attempt="1")
    target.promote("Document", "Document__1", 1)
    return "Document__1"


# -- what others see ---------------------------------------------------------------------------


def test_readers_see_documents_as_they_were_until_they_see_them_as_they_are(
    server: PostgresServer, target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = ["kept", "old 1", "old 2", "old 3"], ["kept", "new 1", "new 2"]
    base = target.fence(index, 1)
    staged = replaced(target, index, base, {"a": ["new 1", "new 2", "kept"], "b": []})
    assert row_texts(server, target) == before
    commit, met = Session._commit, list[object]()

    def watched(session: Session) -> None:
        met.append(row_texts(server, target))
        commit(session)

    query = sql.SQL("SELECT text FROM {} ORDER BY text").format(sql.Identifier(target.schema, "Document"))
    with psycopg.connect(server.url(DATABASE)) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert [text for (text,) in reader.execute(query)] == before
        with monkeypatch.context() as patch:
            patch.setattr(Session, "_commit", watched)
            target.commit(index, base=base, epoch=1, attempt="2", staged=[staged], marks=[])
        assert met[0] == before
        assert [text for (text,) in reader.execute(query)] == before
    assert row_texts(server, target) == after


def test_any_client_reads_the_written_rows(server: PostgresServer, target: PostgresDocuments) -> None:
    documents = {"a": ["one", "zwei 💡 \\ ' \x01", ""], "it's": ["x" * 20_000]}
    target.create("Document__1", DIMENSIONS, BUCKETS)
    put(target, "Document__1", documents, epoch=3, attempt="1")
    target.promote("Document", "Document__1", 3)
    found = client(server, target, "SELECT * FROM {}", "Document")
    rows = rows_of(documents, epoch=3).drop_columns([SEARCHED])
    assert [name for (name,) in client(server, target, "SELECT attname FROM pg_attribute WHERE attrelid = "
            "'{}'::regclass AND attnum > 0 ORDER BY attnum", "Document")] == rows.schema.names  # fmt: skip
    shown = [{**dict(zip(rows.schema.names, each, strict=True))} for each in found]
    for each in shown:
        each["vector"] = pytest.approx(json.loads(str(each["vector"])))
    assert sorted(shown, key=lambda row: str(row["chunk_id"])) == sorted(
        rows.to_pylist(), key=lambda row: str(row["chunk_id"])
    )


def test_a_rebuild_with_other_dimensions_moves_the_view(
    server: PostgresServer, target: PostgresDocuments, index: str
) -> None:
    target.create("Document__2", DIMENSIONS + 1, BUCKETS)
    target.promote("Document", "Document__2", 2)
    assert row_texts(server, target) == []
    with pytest.raises(UserError, match="5 dimensions, not 4"):
        target.create("Document__2", DIMENSIONS, BUCKETS)


def test_tables_and_documents_may_share_a_schema(target: PostgresDocuments, index: str) -> None:
    tables = PostgresTarget(target.uri, target.schema)
    tables.create("Node__1", SPECS)
    assert target.exists("Node__1")
    assert tables.exists(index)
    with pytest.raises(UserError, match="index of tables"):
        target.rows("Node__1")
    with pytest.raises(UserError, match="index of documents"):
        tables.rows(index)
    assert target.leftovers("Node", idle_seconds=0) == ["Node__1"]


# -- searching ---------------------------------------------------------------------------------


def plan_of(monkeypatch: pytest.MonkeyPatch, search: Callable[[], object]) -> str:
    """How the server finds neighbours, where it would rather not read all rows."""
    run, plans = Session.run, list[str]()

    def watched(self: Session, statement: str, *values: object, **parts: object) -> object:
        if statement.startswith("SELECT 1 - "):
            # Each statement is a transaction of its own.
            run(self, "SET enable_seqscan = off")
            plans.extend(line for (line,) in run(self, f"EXPLAIN {statement}", *values, **parts))  # type: ignore[arg-type]  # as it came
            run(self, "RESET enable_seqscan")
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", watched)
        search()
    return "\n".join(plans)


@pytest.mark.parametrize(("dimensions", "indexed"), [(4, True), (2_001, True), (4_001, False)])
def test_neighbours_are_found_by_an_index_once_it_is_built(
    target: PostgresDocuments, monkeypatch: pytest.MonkeyPatch, dimensions: int, indexed: bool
) -> None:
    """Above 2,000 dimensions with half of their precision, above 4,000 without one."""
    monkeypatch.setattr(chunks, "VECTOR_ROWS", 3)
    target.create("Document__1", dimensions, BUCKETS)
    vectors = np.eye(3, dimensions, dtype=np.float32) + 0.1
    rows = rows_of({"d": ["a", "b", "c"]}).to_pylist()
    named = [row | {"vector": vector} for row, vector in zip(rows, vectors.tolist(), strict=True)]
    batch = with_words(named, row_schema(dimensions))
    base = target.fence("Document__1", 1)
    staged = target.writer("Document__1", base).stage(iter([ChunkChanges(batch, NOTHING)]))

    def search() -> list[str]:
        asked: list[float] = vectors[1].tolist()
        hits = target.search("Document__1", entity="D", text=text_query(""), vector=asked, mode="vector", limit=2)
        assert hits[0].score == pytest.approx(1)
        return [hit.text for hit in hits]

    assert not target.refinable("Document__1")  # there is nothing in it yet
    target.commit("Document__1", base=base, epoch=1, attempt="1", staged=[staged], marks=[])
    assert "hnsw" not in plan_of(monkeypatch, search)
    assert search()[0] == "b"
    assert target.refinable("Document__1") == indexed
    for _ in range(2):
        target.refine("Document__1")
        assert not target.refinable("Document__1")
    assert ("Index Scan using instep_vector" in plan_of(monkeypatch, search)) == indexed
    assert search()[0] == "b"
    assert len(search()) == 2


def test_what_is_far_is_found_where_the_index_of_vectors_gives_up(
    target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By HNSW the server looks at so many rows only: if the filter leaves none of these, all that it leaves are."""
    monkeypatch.setattr(chunks, "VECTOR_ROWS", 1)
    monkeypatch.setattr(searching, "_FEW", -1)
    put(target, index, {f"d{number}": [f"text {number}"] for number in range(1_500)}, epoch=2, attempt="2")
    target.maintain(index)
    target.refine(index)
    run, asked = Session.run, list[int]()
    stubborn = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off", "hnsw.max_scan_tuples": "1"}

    def watched(self: Session, statement: str, *values: object, **parts: object) -> object:
        if not statement.startswith("SELECT 1 - "):
            return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came
        for name, value in stubborn.items():
            run(self, "SELECT set_config(%s, %s, false)", name, "on" if asked and value == "off" else value)
        found = run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came
        run(self, "RESET ALL")
        asked.append(len(found))
        return found

    monkeypatch.setattr(Session, "run", watched)
    uri = DocumentColumn("source_uri", DocumentColumnType.STRING)
    far = sorted(range(1_500), key=lambda number: vector_of(f"text {number}")[0])[:3]
    where = OneOf(uri, tuple(f"file:///d{number}" for number in far))
    hits = target.search(
        index, entity="D", text=text_query(""), vector=[1.0, 0, 0, 0], mode="vector", limit=3, where=where
    )
    assert {hit.document_id for hit in hits} == {f"d{number}" for number in far}
    assert asked[0] < 3, "the index of vectors found them all: this tests nothing"


def test_a_few_that_a_filter_leaves_are_all_compared(
    target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of vectors would look at most of its rows to find them."""
    monkeypatch.setattr(chunks, "VECTOR_ROWS", 1)
    put(target, index, {f"d{number}": [f"text {number}"] for number in range(1_500)}, epoch=2, attempt="2")
    target.maintain(index)
    target.refine(index)
    uri = DocumentColumn("source_uri", DocumentColumnType.STRING)
    far = sorted(range(1_500), key=lambda number: vector_of(f"text {number}")[0])[:3]
    where = OneOf(uri, tuple(f"file:///d{number}" for number in far))

    def search() -> list[str]:
        hits = target.search(
            index, entity="D", text=text_query(""), vector=[1.0, 0, 0, 0], mode="vector", limit=5, where=where
        )
        return [hit.document_id for hit in hits]

    assert "Index Scan using instep_vector" not in plan_of(monkeypatch, search)
    run, asked = Session.run, list[str]()

    def watched(self: Session, statement: str, *values: object, **parts: object) -> object:
        asked.append(statement.partition(" ")[0])
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Session, "run", watched)
    assert set(search()) == {f"d{number}" for number in far}
    assert asked == ["SELECT"], "what was estimated is remembered"


def test_an_index_that_was_not_finished_is_built_again(
    server: PostgresServer, target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "VECTOR_ROWS", 1)
    monkeypatch.setattr(chunks, "_FEW_ROWS", 0)
    tried: list[str] = []
    run = Session.run

    def once(self: Session, statement: str, *values: object, **parts: object) -> object:
        if statement.startswith("CREATE INDEX CONCURRENTLY"):
            tried.append(statement)
            if len(tried) == 1:
                raise UserError("could not resize shared memory segment")
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", once)
        target.refine(index)
    assert len(tried) == 2
    server.execute(
        "UPDATE pg_index SET indisvalid = false FROM pg_class "
        "WHERE pg_class.oid = indexrelid AND relname LIKE 'instep_vector%'",
        database=DATABASE,
    )
    assert target.refinable(index)
    target.refine(index)
    assert not target.refinable(index)


def test_numbers_of_rows_that_are_gone_do_not_count_for_a_graph(
    server: PostgresServer, target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(target, index, {f"d{number}": [f"text {number}"] for number in range(5)}, epoch=2, attempt="2")
    rows = target.rows(index)
    monkeypatch.setattr(chunks, "VECTOR_ROWS", rows + 1)
    assert not target.refinable(index)
    monkeypatch.setattr(chunks, "VECTOR_ROWS", rows)
    assert target.refinable(index)
    table = sql.Identifier(target.schema, index).as_string(None)
    server.execute(f"DELETE FROM {table} WHERE _row = (SELECT min(_row) + 1 FROM {table})", database=DATABASE)
    assert not target.refinable(index)


@pytest.mark.parametrize(("few", "processes"), [(0, [True, False]), (chunks._FEW_ROWS, [False])])
def test_the_graph_of_few_vectors_is_built_by_one_process_of_the_server(
    target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch, few: int, processes: list[bool]
) -> None:
    """The other cores are for the jobs beside it. Of many vectors it is built by as many as the server gives."""
    monkeypatch.setattr(chunks, "VECTOR_ROWS", 1)
    monkeypatch.setattr(chunks, "_FEW_ROWS", few)
    run, found = Session.run, list[bool]()

    def watched(self: Session, statement: str, *values: object, **parts: object) -> object:
        if statement.startswith("CREATE INDEX CONCURRENTLY"):
            found.append(run(self, "SHOW max_parallel_maintenance_workers") != [("0",)])
            if found[-1]:
                raise UserError("could not resize shared memory segment")
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Session, "run", watched)
    target.refine(index)
    assert found == processes
    assert not target.refinable(index)


@pytest.mark.parametrize("odd", [[], ['with "quotes"'], ["with \\ a backslash", 'and " one']])
def test_documents_are_looked_up_by_whatever_id_they_have(
    target: PostgresDocuments, index: str, odd: list[str]
) -> None:
    ids = ["plain", "NULL", "with, a comma", "{braces}", "", " ", "ümläut", "'single'", *odd]
    put(target, index, {each: [f"text of {each}"] for each in ids}, epoch=2, attempt="2")
    writer = target.writer(index, target.fence(index, 3))
    for asked in (ids, *([each] for each in ids)):
        assert sorted(map(str, writer.existing(asked)["document_id"].to_pylist())) == sorted(asked)


def test_an_index_is_built_by_one_process_and_no_commit_waits_for_it(
    target: PostgresDocuments, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "VECTOR_ROWS", 1)
    before, built = target.rows(index), list[str]()
    run = Session.run

    def meanwhile(self: Session, statement: str, *values: object, **parts: object) -> object:
        if statement.startswith("CREATE INDEX CONCURRENTLY"):
            built.append(statement)
            if len(built) == 1:
                target.refine(index)
                put(target, index, {"e": ["came meanwhile"]}, epoch=2, attempt="2")
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", meanwhile)
        target.refine(index)
    assert len(built) == 1
    assert not target.refinable(index)
    assert target.rows(index) == before + 1


def test_rare_words_count_for_more_than_common_ones(target: PostgresDocuments, index: str) -> None:
    documents = {f"d{n}": ["the common words"] for n in range(50)}
    longer = "peculiar among apple bridge candle desert engine forest garden hammer island"
    put(target, index, {**documents, "rare": [longer]}, epoch=2, attempt="2")
    target.maintain(index, full=True)
    hits = target.search(
        index, entity="D", text=text_query("absent COMMON words, peculiarly"), vector=None, mode="text", limit=3
    )
    assert hits[0].document_id == "rare"


def test_texts_with_more_words_than_can_be_indexed_are_kept(target: PostgresDocuments, index: str) -> None:
    text = " ".join(f"first{number}" for number in range(200_000))
    put(target, index, {"long": [text]}, epoch=2, attempt="2")
    target.maintain(index)
    (hit,) = target.search(index, entity="D", text=text_query("first77"), vector=None, mode="text", limit=3)
    assert hit.text == text


# -- what cannot be ----------------------------------------------------------------------------


def test_rows_that_cannot_be_stored_are_reported_by_their_places(target: PostgresDocuments, index: str) -> None:
    rows = pa.Table.from_batches([rows_of({"a": ["fine", "not\0fine", "fine"], "b\0": ["not"]})])
    assert dict(target.writer(index, 1).unfit(rows)) == {
        1: "text has the character U+0000, which PostgreSQL cannot hold",
        3: "source_uri has the character U+0000, which PostgreSQL cannot hold",
    }


@pytest.mark.parametrize("dimensions", [0, 16_001])
def test_dimensions_that_cannot_be_are_refused(target: PostgresDocuments, dimensions: int) -> None:
    with pytest.raises(UserError, match="1 to 16,000"):
        target.create("Document__1", dimensions, BUCKETS)
    assert not target.exists("Document__1")


def test_a_database_without_pgvector_gives_a_hint(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute("DROP DATABASE IF EXISTS plain")
    server.execute("CREATE DATABASE plain")
    server.execute("DROP ROLE IF EXISTS writer")
    server.execute("CREATE ROLE writer LOGIN PASSWORD 'wr1ter'")
    server.execute("CREATE SCHEMA docs AUTHORIZATION writer", database="plain")
    theirs = PostgresDocuments(server.url("plain", user="writer", password="wr1ter"), "docs")
    for call in (theirs.check, lambda: theirs.create("Document__1", DIMENSIONS, BUCKETS)):
        with pytest.raises(UserError, match="CREATE EXTENSION vector") as found:
            call()
        assert "wr1ter" not in str(found.value) + repr(theirs) + repr(theirs.place)
    assert not theirs.exists("Document__1")
    ours = PostgresDocuments(server.url("plain"), "docs")
    ours.check()
    with monkeypatch.context() as patch:
        patch.setattr(pgvector, "_OLDEST", (99,))
        with pytest.raises(UserError, match="too old"):
            ours.check()
    theirs.create("Document__1", DIMENSIONS, BUCKETS)  # once another ledger has made it
    put(theirs, "Document__1", {"a": ["one"]}, epoch=1, attempt="1")
    assert theirs.rows("Document__1") == 1
