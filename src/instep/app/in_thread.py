"""Make methods awaitable: they work in a thread, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def in_thread(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method, to be awaited. Who is cancelled does not wait for it any more; it ends by itself."""

    @functools.wraps(method)
    async def awaited(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self, *args, **kwargs)

    return awaited


def stopped_when_cancelled(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method, to be awaited. When who awaits it is cancelled, its event `stopping` is set, and its end waited for:
    after that nothing of it is in work.
    """

    @functools.wraps(method)
    async def awaited(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        stopping = cast("threading.Event | None", kwargs.get("stopping")) or threading.Event()
        call = functools.partial(cast("Callable[..., T]", method), self, *args, **{**kwargs, "stopping": stopping})
        work = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stopping.set()
            await asyncio.wait([work])
            work.exception()  # It is that it was stopped.
            raise

    return awaited
