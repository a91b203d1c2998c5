"""Connections to the server, of HTTP and WebSocket: bounded number, memory and time, whatever a client does."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

#: Seconds in which a request has to be there, with all that belongs to it. They are small.
REQUEST_SECONDS: Final = 10.0
#: So many are open at once, channels of progress among them. One more is closed without a word.
MOST: Final = 1_000
#: Bytes of a message that a client may send.
MAX_MESSAGE_BYTES: Final = 4_096
#: How long what was sent last, and why it is closed, may take to be read.
_LINGER_SECONDS: Final = 10.0


class Connection(H11Protocol):
    """An HTTP connection, closed when a request takes too long to arrive: else one client could hold all of them."""

    seconds = REQUEST_SECONDS
    most = MOST
    _late: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        if len(self.connections) >= self.most:
            self._refused = True
            transport.abort()
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._is_there() or self.transport.get_protocol() is not self:
            self._wait_no_more()
        elif self._late is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        begun, _ = self.conn.trailing_data
        if begun and not self._is_there():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        if not self._refused:
            super().connection_lost(exc)

    def _is_there(self) -> bool:
        """Whether there is a request that is not answered yet, and nothing is missing of it."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _wait(self) -> None:
        self._wait_no_more()
        self._late = asyncio.get_running_loop().call_later(self.seconds, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Channel(WebSocketsSansIOProtocol):
    """A WebSocket connection that ends in bounded time. That of uvicorn waits without end for a client that reads
    nothing.
    """

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            # Of a connection that is closed by then, nothing is left to abort.
            self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def websocket_options() -> dict[str, Any]:
    """Settings for uvicorn. Messages are small, and compressing them would be done for each client anew."""
    return {"ws": Channel, "ws_max_size": MAX_MESSAGE_BYTES, "ws_per_message_deflate": False}
