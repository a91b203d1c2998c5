"""Clients that do not read: they are closed in bounded time, and no other client waits for them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from instep.api import connections, progress, progress_feed
from tests.api.progress_server import TIMEOUT_SECONDS, Channel, Ear, served_channel
from tests.cli import ledgers
from tests.waiting import until

_KEPT = 16


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long messages, many of them, and little room for what is not read."""
    monkeypatch.setattr(progress_feed, "KEPT", _KEPT)
    monkeypatch.setattr(progress_feed, "CHANGE_SECONDS", 0.01)
    monkeypatch.setattr(progress_feed, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(connections, "_LINGER_SECONDS", 0.05)


@contextmanager
def _busy_channel(**options: Any) -> Iterator[Channel]:
    with served_channel(send_buffer=4_096, **options) as channel:
        ledgers.begin(channel.ledger, entities=[f"Entity{number}_{'x' * 80}" for number in range(100)], slices=1)
        yield channel


def _deaf() -> socket.socket:
    """Of a client that has little room itself."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    return made


def _connected(channel: Channel, made: socket.socket) -> socket.socket:
    made.connect(("127.0.0.1", channel.port))
    return made


def _hear_until(ear: Ear, seq: int) -> None:
    ear.until(lambda message: message["seq"] >= seq)


@pytest.mark.usefixtures("room")
def test_a_slow_client_is_dropped_with_a_reason_while_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SEND_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(progress, "CLOSE_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(connections, "_LINGER_SECONDS", TIMEOUT_SECONDS)
    with _busy_channel() as channel, channel.listening() as quick, _connected(channel, _deaf()) as deaf:
        first = quick.message()["seq"]
        with channel.listening(sock=deaf, max_queue=1) as slow:
            # Three times as many messages as are kept, and as there is room for.
            _hear_until(quick, first + 3 * _KEPT + 30)
            with pytest.raises(ConnectionClosed, match=r"1013.*too slow"):
                slow.until(lambda _message: False)
        _hear_until(quick, quick.message()["seq"] + 3)


@pytest.mark.usefixtures("room")
def test_a_connection_whose_client_never_reads_again_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(progress, "CLOSE_SECONDS", 0.05)
    with _busy_channel() as channel:
        with _connected(channel, _deaf()) as deaf:
            _subscribe(channel, deaf)
            until(lambda: not channel.server.server_state.connections)
        # The next client may take its time: on a busy machine every client is slow now and then.
        monkeypatch.setattr(progress, "SEND_SECONDS", TIMEOUT_SECONDS)
        with channel.listening() as quick:
            _hear_until(quick, quick.message()["seq"] + 3)


@pytest.mark.usefixtures("room")
def test_a_client_that_answers_no_ping_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """uvicorn gives it up between two messages, and does not say so to who sends the second."""
    monkeypatch.setattr(progress_feed, "PROGRESS_SECONDS", 0.3)
    monkeypatch.setattr(progress, "CLOSE_SECONDS", 0.05)
    options = {"ws_ping_interval": 0.05, "ws_ping_timeout": 0.05}
    with _busy_channel(**options) as channel, _connected(channel, _deaf()) as deaf:
        _subscribe(channel, deaf)
        until(lambda: not channel.server.server_state.connections)
        until(lambda: not channel.server.server_state.tasks)
    assert not caplog.records


def _subscribe(channel: Channel, deaf: socket.socket) -> None:
    deaf.sendall(_handshake(channel.port))
    assert deaf.recv(1_024).startswith(b"HTTP/1.1 101")
    # Pings may have been in vain already, before it came to say something.
    with suppress(ConnectionError):
        deaf.sendall(_subscription())


def _handshake(port: int) -> bytes:
    lines = [
        "GET /ws HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ]
    return "".join(f"{each}\r\n" for each in [*lines, ""]).encode()


def _subscription() -> bytes:
    """A text frame under a mask of zeros."""
    text = b'{"subscribe": "searchIndexJobStatus"}'
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text
