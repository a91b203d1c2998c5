"""Connections that take too long over a request, and too many of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from instep.api.connections import Connection
from instep.cli.serve import listen
from tests.waiting import until

TIMEOUT_SECONDS = 60.0
HALVES = {
    "nothing": b"",
    "half of the headers": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    "half of the body": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nhalf",
    "one whole, and half of another": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP/1.1\r\nHo",
}


class Hasty(Connection):
    seconds = 0.3
    most = 20


class Two(Connection):
    most = 2


@contextmanager
def served(protocol: type[Connection] = Hasty) -> Iterator[int]:
    """An application that answers what it was sent, at a port."""

    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse((await request.body()).decode())

    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, log_level="error", timeout_keep_alive=60))
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(TIMEOUT_SECONDS)
        listening.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)


def read_to_end(connection: socket.socket) -> bytes:
    found = b""
    try:
        while some := connection.recv(4096):
            found += some
    except ConnectionError:
        pass
    return found


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served() as found:
        yield found


@pytest.mark.parametrize("half", HALVES)
def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(port: int, half: str) -> None:
    with connect(port) as connection:
        connection.sendall(HALVES[half])
        answered = read_to_end(connection)  # It comes to an end, or this fails by its time-out.
        assert answered.count(b"200 OK") == half.startswith("one whole")


def test_a_client_that_sends_single_bytes_is_closed_too(port: int) -> None:
    with connect(port) as connection:
        connection.settimeout(0.05)
        for _ in range(round(TIMEOUT_SECONDS / 0.05)):
            try:
                connection.sendall(b"x")
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("it is still open")


def test_whole_requests_keep_their_connection(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_SECONDS) as client:
        for number in range(3):
            assert client.post("/", content=str(number)).text == str(number)


def test_connections_over_the_limit_are_closed_and_later_ones_are_served() -> None:
    with served() as port, ExitStack() as stack:
        many = [stack.enter_context(connect(port)) for _ in range(2 * Hasty.most)]
        for each in many:
            assert read_to_end(each) == b""
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=TIMEOUT_SECONDS).status_code == 200


def test_one_more_is_closed_without_a_word_while_the_others_are_open() -> None:
    asked = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with served(Two) as port, connect(port) as first, connect(port), connect(port) as third:
        with suppress(ConnectionError):
            third.sendall(asked)
        assert read_to_end(third) == b""
        first.sendall(asked)
        assert read_to_end(first).startswith(b"HTTP/1.1 200")
