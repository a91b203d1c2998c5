"""The WebSocket `/ws`: progress of jobs, every two seconds while they run, and at once when a job changes.

A client subscribes with its first message, `{"subscribe": "searchIndexJobStatus", "job": null, "after": null}`,
and sends nothing after that. Access is checked before (`guard`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import FastAPI
from starlette.websockets import WebSocket, WebSocketDisconnect

from instep.answers.job_feed import JobWatch
from instep.api.connections import MAX_MESSAGE_BYTES
from instep.api.dependencies import Server
from instep.api.progress_feed import AWAY, Feed, Listener, Message, Poller, message_text, now_ms

#: Clients at once; more are told to come back later.
MAX_CLIENTS: Final = 500
#: How long a client has to say what it wants.
SUBSCRIBE_SECONDS: Final = 10.0
#: How long a message may wait for a client that does not read, and then for it to be told that this was too long.
SEND_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 5.0

#: Jobs that are read at once because a client asks for one that is not polled.
READERS: Final = 2

#: What a browser offers beside the token, and is answered: one that is answered with none gives up.
PROTOCOL: Final = "instep"

# Codes that a WebSocket is closed with.
_GONE, _REFUSED, _TOO_LONG, _BROKEN, _LATER = 1006, 1008, 1009, 1011, 1013

_log = logging.getLogger("instep.api")


class _Subscription(msgspec.Struct, forbid_unknown_fields=True):
    subscribe: Literal["searchIndexJobStatus"]
    job: Annotated[str, msgspec.Meta(pattern="^[!-~]{1,80}$")] | None = None
    after: int | None = None


class _Closed(Exception):
    """The connection is to end, and why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def mount(app: FastAPI, server: Server) -> None:
    """Serve the channel. Must come before what takes all paths that are left."""
    app.add_api_websocket_route("/ws", Progress(server.instep.watch_jobs()).serve)


class Progress:
    def __init__(self, watch: JobWatch) -> None:
        self._watch = watch
        self._feed = Feed(begin=now_ms())
        self._poller = Poller(watch, self._feed)
        self._clients = 0
        self._readers = asyncio.Semaphore(READERS)
        self._reading: dict[str, asyncio.Task[Message | None]] = {}

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one client, from its first message to the last."""
        offered = websocket.scope.get("subprotocols", ())
        await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        self._clients += 1
        try:
            await self._converse(websocket)
        except _Closed as end:
            await _close(websocket, end)
        except WebSocketDisconnect:
            pass
        finally:
            self._clients -= 1

    async def _converse(self, websocket: WebSocket) -> None:
        if self._clients > MAX_CLIENTS:
            raise _Closed(_LATER, "too many clients")
        wanted = await _subscription(websocket)
        async with self._poller.listening():
            listener = self._feed.join(wanted.job, wanted.after)
            try:
                await _first(self._send_all(websocket, listener), _nothing_more(websocket), _too_slow(listener))
            finally:
                self._feed.leave(listener)

    async def _send_all(self, websocket: WebSocket, listener: Listener) -> None:
        if listener.newest is not None:
            await _send(websocket, listener.newest or [await self._stands(listener.job)])
        while messages := await self._feed.after(listener.position):
            for message in messages:
                if listener.wants(message):
                    await _send(websocket, [message])
                listener.position = message.seq
        raise _slow()

    async def _stands(self, job_id: str | None) -> Message:
        """The first message when no job is under way."""
        if job_id is None:
            return Message(self._feed.last, None, message_text(self._feed.last, now_ms(), None, None, error=None))
        # Many may come back at once and ask for the same.
        if job_id not in self._reading:
            reading = self._reading[job_id] = asyncio.create_task(self._read(job_id))
            # All waiting clients may have left before it failed.
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        found = await asyncio.shield(self._reading[job_id])
        if found is None:
            raise _Closed(_REFUSED, "there is no such job")
        return found

    async def _read(self, job_id: str) -> Message | None:
        try:
            async with self._readers:
                view = await asyncio.to_thread(self._watch.one, job_id)
        except Exception as error:
            _log.warning("a job cannot be read: %s", type(error).__name__)
            raise _Closed(_BROKEN, AWAY) from error
        finally:
            del self._reading[job_id]
        return self._feed.about(view) if view else None


async def _subscription(websocket: WebSocket) -> _Subscription:
    try:
        async with asyncio.timeout(SUBSCRIBE_SECONDS):
            text = await _received(websocket)
    except TimeoutError:
        raise _Closed(_REFUSED, "nothing was subscribed to") from None
    if len(text) > MAX_MESSAGE_BYTES:
        raise _Closed(_TOO_LONG, "the message is too long")
    try:
        return msgspec.json.decode(text, type=_Subscription)
    except msgspec.MsgspecError:
        raise _Closed(_REFUSED, 'send {"subscribe": "searchIndexJobStatus", "job": null, "after": null}') from None


async def _received(websocket: WebSocket) -> str:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _GONE))
    text = message.get("text")
    if text is None:
        raise _Closed(_REFUSED, "messages are text")
    return str(text)


async def _send(websocket: WebSocket, messages: Iterable[Message]) -> None:
    for message in messages:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await websocket.send_text(message.text)
        except TimeoutError:
            raise _slow() from None
        except RuntimeError:
            # The client answered no ping: uvicorn has given it up, and refuses to send.
            raise WebSocketDisconnect(_GONE) from None


async def _nothing_more(websocket: WebSocket) -> None:
    """Waits for the client to leave."""
    await _received(websocket)
    raise _Closed(_REFUSED, "one subscription for each connection")


async def _too_slow(listener: Listener) -> None:
    await listener.slow.wait()
    raise _slow()


def _slow() -> _Closed:
    return _Closed(_LATER, "too slow")


async def _first(*work: Coroutine[Any, Any, None]) -> None:
    """Wait until the first of these ends, and end as it does; the others are cancelled."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for each in ended:
        if isinstance(each, Exception):
            raise each


async def _close(websocket: WebSocket, end: _Closed) -> None:
    """Say why, to a client that reads within bounded time. The connection itself ends in any case."""
    # It may be closed already: starlette and uvicorn say so by a RuntimeError.
    with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
        async with asyncio.timeout(CLOSE_SECONDS):
            await websocket.close(end.code, end.reason)
