"""Opening ledgers on servers, as far as no server is needed for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError

from instep.errors import UserError
from instep.ledger.dialects.dialect import SqlDialect
from instep.ledger.dialects.mysql import MysqlDialect
from instep.ledger.dialects.postgres import PostgresDialect
from instep.ledger.open import open_ledger
from tests.contracts.ledger import VirtualClock


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgres://ann:s3cret@h/db", "psycopg", "postgres"),
        ("postgresql://ann:s3cret@h/db", "psycopg", "postgres"),
        ("mysql://ann:s3cret@h/db", "pymysql", "mysql"),
        ("mariadb://ann:s3cret@h/db", "pymysql", "mysql"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(
    url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(UserError, match=r"driver .* is not installed") as refused:
        open_ledger(url, clock=VirtualClock())
    assert f"pip install 'instep[{extra}]'" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://ann:s3@cret@h/db", "mariadb://ann:s3cret@h", "mysql://ann:s3/cret@h/db"])
def test_a_url_that_could_be_misread_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="the ledger's URL must look like") as refused:
        open_ledger(url, clock=VirtualClock())
    assert "cret" not in str(refused.value)


def test_a_way_to_log_in_that_needs_another_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(**_: object) -> None:
        raise RuntimeError("'cryptography' package is required for caching_sha2_password")

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(UserError, match="'cryptography' package is required"):
        open_ledger("mysql://ann:s3cret@h/db", clock=VirtualClock())


def test_a_ledger_in_a_file_imports_nothing_of_servers(tmp_path: Path) -> None:
    script = f"""
import sys
from instep.ledger.open import open_ledger
from instep.system import SystemClock
open_ledger("sqlite:///{tmp_path}/ledger.db", clock=SystemClock()).close()
servers = {{"psycopg", "pymysql", "instep.ledger.dialects.server", "sqlalchemy.dialects.postgresql"}} & set(sys.modules)
assert not servers, servers
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        (MysqlDialect("server/ledger"), pymysql.err.OperationalError(1114, "The table 'jobs' is full")),
        (MysqlDialect("server/ledger"), pymysql.err.OperationalError(1021, "Disk full (/tmp/#sql); waiting for space")),
        (PostgresDialect("server/ledger"), psycopg.errors.DiskFull("could not extend file: No space left on device")),
    ],
)
def test_a_server_whose_disk_is_full_is_for_the_user(dialect: SqlDialect, said: Exception) -> None:
    error: DBAPIError = OperationalError("INSERT INTO jobs …", {}, said)
    explained = dialect.explain(error, committing=False)
    assert isinstance(explained, UserError)
    assert (explained.where, explained.what) == ("server/ledger", "the disk of the ledger's server is full")
    assert explained.hint is not None
