"""`state` as users meet it: what `check` says of a URL, and a state folder that is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instep.cli import main
from tests.e2e import corpus
from tests.servers.ledgers import postgres_ledger
from tests.servers.s3 import S3Server, running_s3


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    for name, value in running_s3().environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.chdir(tmp_path)
    return running_s3()


def declare(root: Path, state: str, ledger: str | None = None) -> int:
    """The line on which it stands."""
    database = postgres_ledger()
    database.empty()
    corpus.write(root / "docs", range(1))
    corpus.project(root, root / "docs", extra=f"ledger: {ledger or database.url}\nstate: {state}")
    lines = (root / "instep.yaml").read_text().splitlines()
    return 1 + next(number for number, each in enumerate(lines) if each.startswith("state:"))


def finding(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, str]:
    assert main(["check", "--json"]) == code
    (found,) = (each for each in json.loads(capsys.readouterr().out) if each["subject"] == "state")
    return dict(found)


def test_check_uses_the_store_and_leaves_nothing(
    store: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(tmp_path, store.url("checked"))
    found = finding(capsys, 0)
    assert found["health"] == "ok"
    assert "can be written, read, listed and removed from" in found["detail"]
    assert store.files().find(f"{store.bucket}/checked") == []


def test_check_names_the_line_of_a_store_that_is_away(
    store: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = declare(tmp_path, store.url("away"))
    store.kill()
    try:
        found = finding(capsys, 75)
    finally:
        store.revive()
    assert found["health"] == "problem"
    assert found["away"]
    assert found["detail"].startswith(f"instep.yaml:{line}: the state files at {store.url('away')}/")
    assert "cannot be reached" in found["detail"]
    assert "credentials" in found["hint"]


def test_check_names_the_line_of_a_library_that_is_missing(
    store: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = declare(tmp_path, "gs://bucket/x")
    found = finding(capsys, 1)
    assert found["detail"] == f"instep.yaml:{line}: the library for gs:// is not installed"
    assert "gcsfs" in found["hint"]


def test_a_url_beside_sqlite_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = declare(tmp_path, "s3://bucket/x", "sqlite:///l.db")
    assert main(["plan"]) == 1
    assert f"instep.yaml:{line}: state: must be a folder: a SQLite ledger" in capsys.readouterr().err
