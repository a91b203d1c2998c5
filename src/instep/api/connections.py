"""Connections to the server: how many there may be, and how long one may take to say what it wants."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

#: Seconds in which a request has to be there, with all that belongs to it. They are small.
REQUEST_SECONDS: Final = 10.0
#: So many are open at once, channels of progress among them. One more is closed without a word.
MOST: Final = 1_000


class Connection(H11Protocol):
    """Closed when it takes too long over a request, however busily: else whoever likes could hold all there are."""

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
