"""A folder of documents in PostgreSQL, as a user has it: declared, run, searched, changed, and rebuilt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg
import pytest

import instep
from instep.domain.jobs import JobState
from instep.errors import UserError
from tests.cli.saying import said
from tests.e2e import corpus, truth
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

ALIAS = "Document"


def declare(root: Path, docs: Path, uri: str) -> instep.Instep:
    corpus.project(root, docs)
    file = root / "instep.yaml"
    text = file.read_text().replace("type: lance, uri: .instep/index", f"type: postgres, uri: '{uri}', schema: runs")
    file.write_text(text.replace("name: test", "name: test\nengine: inline"))
    return instep.load(root)


def test_a_folder_of_documents_is_kept_in_step(server: PostgresServer, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    corpus.write(docs, range(30))
    project = declare(tmp_path / "project", docs, server.url(DATABASE))

    def stored() -> truth.Truth:
        with psycopg.connect(server.url(DATABASE)) as client:
            return Counter(client.execute(f'SELECT document_id, text FROM runs."{ALIAS}"').fetchall())

    (built,) = project.run()
    assert (built.notes, built.counts.written) == ([], 30)
    assert truth.difference(truth.expected(docs), stored()) == ""
    text = corpus.text(7)
    for mode in ("text", "vector", "hybrid"):
        assert "of 7" in project.search(text[:800], mode=mode)[0].text
    for number in (1, 2):
        corpus.path(docs, number).write_text(f"{text}\n\nAnd zebras.\n")
    corpus.path(docs, 3).unlink()
    (changed,) = project.run()
    assert (changed.counts.written, changed.counts.deleted, changed.notes) == (2, 1, [])
    assert truth.difference(truth.expected(docs), stored()) == ""
    assert "zebras" in project.search("zebra", mode="text")[0].text
    (nothing,) = project.run()
    assert nothing.counts.read == 0
    (anew,) = project.run(full_refresh=True)
    assert (anew.counts.written, anew.notes) == (29, [])
    assert truth.difference(truth.expected(docs), stored()) == ""
    server.execute("DROP SCHEMA runs CASCADE", database=DATABASE)


def test_no_error_of_a_run_has_the_password(server: PostgresServer, tmp_path: Path) -> None:
    corpus.write(tmp_path / "docs", range(1))
    for wrong in (server.url("missing"), server.url(DATABASE, password="s3same")):
        project = declare(tmp_path / "project", tmp_path / "docs", wrong)
        with pytest.raises(UserError) as found:
            project.run()
        assert "postgresql://127.0.0.1" in str(found.value)
        assert "s3same" not in str(found.value)
        assert server.password not in str(found.value)


@pytest.mark.parametrize("command", ["plan", "check"])
def test_a_wrong_password_is_told_by_plan_and_check_with_the_address(
    server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    corpus.write(tmp_path / "docs", range(1))
    declare(tmp_path / "project", tmp_path / "docs", server.url(DATABASE, password="s3same"))
    monkeypatch.chdir(tmp_path / "project")
    told = " ".join(said(capsys, command, code=1).split())
    assert "postgresql://127.0.0.1" in told
    assert "PostgreSQL refused the user or the password" in told
    assert "s3same" not in told


def test_the_next_run_tells_that_the_index_was_dropped_and_searches_tell_what_builds_it_again(
    server: PostgresServer, tmp_path: Path
) -> None:
    corpus.write(tmp_path / "docs", range(2))
    project = declare(tmp_path / "project", tmp_path / "docs", server.url(DATABASE))
    project.run()
    (nothing,) = project.run()
    assert nothing.notes == []
    with psycopg.connect(server.url(DATABASE)) as client:
        ((table,),) = client.execute(
            "SELECT quote_ident(table_name) FROM information_schema.columns "
            "WHERE table_schema = 'runs' AND column_name = '_row'"
        ).fetchall()
        client.execute(f"DROP TABLE runs.{table} CASCADE".encode())
    for look in (
        project.run,
        project.plan,
        lambda: project.search("tide"),
        lambda: project.search("tide", mode="text"),
    ):
        with pytest.raises(UserError, match=r"index of Document@global \(\w+\) is gone from target") as told:
            look()
        assert "--full-refresh" in str(told.value)
    project.run(full_refresh=True)
    assert "of 1" in project.search(corpus.text(1)[:800])[0].text
    server.execute("DROP SCHEMA runs CASCADE", database=DATABASE)


def test_a_view_that_was_dropped_is_made_again_though_nothing_has_changed(
    server: PostgresServer, tmp_path: Path
) -> None:
    corpus.write(tmp_path / "docs", range(2))
    project = declare(tmp_path / "project", tmp_path / "docs", server.url(DATABASE))
    project.run()
    with psycopg.connect(server.url(DATABASE)) as client:
        client.execute(f'DROP VIEW runs."{ALIAS}"'.encode())
    (done,) = project.run()
    assert (done.state, done.counts.read, done.notes) == (JobState.COMPLETED, 0, [])
    with psycopg.connect(server.url(DATABASE)) as client:
        assert client.execute(f'SELECT count(DISTINCT document_id) FROM runs."{ALIAS}"'.encode()).fetchone() == (2,)
    assert [each.job_id for each in project.run()] == [None]
    server.execute("DROP SCHEMA runs CASCADE", database=DATABASE)
