"""MySQL itself, where the environment variable `INSTEP_TEST_MYSQLD` names its `mysqld`.

No operating system that the tests run on brings it; MariaDB, which stands in for it, differs in places.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.servers.mariadb import MariadbServer
from tests.servers.process import is_root

PROGRAM: Final = "INSTEP_TEST_MYSQLD"


class MysqlServer(MariadbServer):
    kind = "mysql"

    def _install(self) -> None:
        (self.folder / "tmp").mkdir()
        self.run(*self._program(), "--initialize-insecure")
        self._write_init()

    def _command(self) -> Sequence[str | Path]:
        return [
            *self._program(),
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--mysqlx=OFF",
            "--skip-name-resolve",
            f"--init-file={self.folder / 'init.sql'}",
            # As with MariaDB: no disk is waited for.
            "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--innodb-buffer-pool-size=64M",
            "--performance-schema=off",
        ]

    def _program(self) -> list[str | Path]:
        return [
            os.environ[PROGRAM],
            "--no-defaults",
            *(["--user=root"] if is_root() else []),
            f"--datadir={self.folder / 'data'}",
            f"--tmpdir={self.folder / 'tmp'}",
            "--secure-file-priv=NULL",
        ]

    def url(self, database: str = "ledger", *, user: str | None = None, password: str | None = None) -> str:
        return super().url(database, user=user, password=password).replace("mariadb://", "mysql://", 1)


@functools.cache
def running_mysql() -> MysqlServer:
    """The one of this process."""
    server = MysqlServer()
    atexit.register(server.stop)
    server.start()
    return server
