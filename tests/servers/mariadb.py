"""MariaDB as the operating system brings it (Debian: `apt install mariadb-server`)."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pymysql
import pytest

from tests.servers.process import Server, is_root


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


class MariadbServer(Server):
    kind = "mariadb"
    farewell = signal.SIGKILL

    def _install(self) -> None:
        installer = _program("mariadb-install-db")
        assert installer is not None, "comes with mariadbd"
        self.run(
            installer,
            "--no-defaults",
            *(["--user=root"] if is_root() else []),
            f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            "--innodb-log-file-size=16M",
        )
        (self.folder / "tmp").mkdir()
        self._write_init()

    def _write_init(self) -> None:
        (self.folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )

    def _command(self) -> Sequence[str | Path]:
        server = _program("mariadbd")
        assert server is not None
        return [
            server,
            "--no-defaults",
            *(["--user=root"] if is_root() else []),
            f"--datadir={self.folder / 'data'}",
            f"--socket={self.folder / 'socket'}",
            # Not the system's: a server that starts removes what it takes for leftovers there, of others too.
            f"--tmpdir={self.folder / 'tmp'}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking=0",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--skip-name-resolve",
            f"--init-file={self.folder / 'init.sql'}",
            # A commit is with the operating system when it returns: `kill` loses nothing, and no disk is waited for.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--innodb-file-per-table=0",
            "--sync-frm=0",
            "--innodb-log-file-size=16M",
            "--innodb-buffer-pool-size=64M",
            "--performance-schema=off",
        ]

    def _greet(self) -> None:
        self.execute("SELECT 1")

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            connect_timeout=10,
            autocommit=True,
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def url(self, database: str = "ledger", *, user: str | None = None, password: str | None = None) -> str:
        return f"mariadb://{user or self.user}:{password or self.password}@127.0.0.1:{self.port}/{database}"


@functools.cache
def running_mariadb() -> MariadbServer:
    """The one of this process; a machine without MariaDB skips the test, unless it is the one that must not."""
    if _program("mariadbd") is None:
        missing = "MariaDB is not installed here (Debian, Ubuntu: apt install mariadb-server)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    server = MariadbServer()
    atexit.register(server.stop)
    server.start()
    return server


def main() -> None:
    """`python -m tests.servers.mariadb`: how long it takes to have one."""
    started = time.perf_counter()
    server = running_mariadb()
    print(f"{server.execute('SELECT version()')[0][0]}: up after {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
