"""A real server of the channel on a free port, its ledger, and what was asked of that."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from websockets.sync.client import ClientConnection, connect

from instep.answers.job_feed import JobWatch
from instep.api.connections import websocket_options
from instep.api.progress import Progress
from instep.domain.jobs import Job
from instep.errors import Transient
from instep.ledger.jobs import JobMark, Jobs
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.waiting import until

TIMEOUT_SECONDS = 60.0


class CountingLedger(MemoryLedger):
    """Counts what it is asked of jobs, and can be away. `opened` and `closed` are by those who watch jobs."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(self.clock)
        self.asked: Counter[str] = Counter()
        self.away = False
        self.answers = threading.Event()
        self.answers.set()
        self.jobs = _CountingJobs(self)

    def open(self) -> CountingLedger:
        self.asked["open"] += 1
        return self

    def close(self) -> None:
        self.asked["close"] += 1


class _CountingJobs(Jobs):
    def __init__(self, ledger: CountingLedger) -> None:
        super().__init__(ledger.database)
        self._ledger = ledger

    def marks(self, newest: int) -> list[JobMark]:
        self._ledger.asked["marks"] += 1
        assert self._ledger.answers.wait(TIMEOUT_SECONDS)
        if self._ledger.away:
            raise Transient("db.example.org: the server is away")
        return super().marks(newest)

    def get(self, job_id: str) -> Job | None:
        self._ledger.asked["get"] += 1
        return super().get(job_id)


@dataclass(frozen=True)
class Channel:
    """`server` is uvicorn's: it knows who is connected."""

    port: int
    ledger: CountingLedger
    server: uvicorn.Server

    @contextmanager
    def client(self, **options: Any) -> Iterator[ClientConnection]:
        """A client that has said nothing yet. It takes all that comes, unless told otherwise."""
        options = {"open_timeout": TIMEOUT_SECONDS, "ping_interval": None, "max_queue": None, **options}
        with connect(f"ws://127.0.0.1:{self.port}/ws", **options) as client:
            yield client

    @contextmanager
    def listening(self, *, job: str | None = None, after: int | None = None, **options: Any) -> Iterator[Ear]:
        with self.client(**options) as client:
            client.send(json.dumps({"subscribe": "searchIndexJobStatus", "job": job, "after": after}))
            yield Ear(client)


@dataclass(frozen=True)
class Ear:
    client: ClientConnection

    def text(self) -> str:
        text = self.client.recv(timeout=TIMEOUT_SECONDS)
        assert isinstance(text, str)
        return text

    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text())
        return found

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message that is so."""
        while not wanted(message := self.message()):
            pass
        return message


@contextmanager
def served_channel(*, send_buffer: int | None = None, **options: Any) -> Iterator[Channel]:
    """`send_buffer`: bytes that the system keeps for a client that does not read; `options` are uvicorn's."""
    ledger = CountingLedger()
    app = FastAPI()
    app.add_api_websocket_route("/ws", Progress(JobWatch(ledger.open)).serve)
    with served(app, send_buffer=send_buffer, **options) as (port, server):
        yield Channel(port, ledger, server)


@contextmanager
def served(app: ASGIApp, *, send_buffer: int | None = None, **options: Any) -> Iterator[tuple[int, uvicorn.Server]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if send_buffer:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        options = {
            "log_level": "warning",
            "log_config": None,
            "timeout_graceful_shutdown": 1,
            **websocket_options(),
            **options,
        }
        config = uvicorn.Config(app, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started)
            yield listening.getsockname()[1], server
        finally:
            server.should_exit = True
            thread.join(TIMEOUT_SECONDS)
    assert not thread.is_alive(), "the server does not end"
