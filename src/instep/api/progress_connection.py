"""WebSocket settings for uvicorn: bounded memory and time, whatever a client sends or does not read."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

#: Bytes of a message that a client may send.
MAX_MESSAGE_BYTES: Final = 4_096
#: How long what was sent last, and why it is closed, may take to be read.
_LINGER_SECONDS: Final = 10.0


class Connection(WebSocketsSansIOProtocol):
    """Ends in bounded time. uvicorn's own waits for ever for a client that is connected and reads nothing."""

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            # Of a connection that is closed by then, nothing is left to abort.
            self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def websocket_options() -> dict[str, Any]:
    """Settings for uvicorn. Messages are small, and compressing them would be done for each client anew."""
    return {"ws": Connection, "ws_max_size": MAX_MESSAGE_BYTES, "ws_per_message_deflate": False}
