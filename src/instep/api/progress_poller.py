"""The one poller of the ledger for all clients of the channel. Without clients it reads nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from instep.answers.job_feed import JobWatch
from instep.api.progress_feed import Feed
from instep.errors import InstepError

#: How often it is said how far jobs are that run.
PROGRESS_SECONDS: Final = 2.0
#: How often is looked whether something happened to a job. It costs the ledger a fraction of a millisecond.
CHANGE_SECONDS: Final = 0.25
#: Reading may take this part of the time: where it takes longer, it is done less often.
_READING: Final = 0.5

#: A ledger that does not answer for so long is said to be away, as one is that says so.
LATE_SECONDS: Final = 10.0
#: What is said of it. The error itself is not shown: it may name hosts and paths.
AWAY: Final = "the ledger cannot be read"

_log = logging.getLogger("instep.api")


class Poller:
    def __init__(self, watch: JobWatch, feed: Feed) -> None:
        self._watch = watch
        self._feed = feed
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Keep the feed up to date during the context; it is up to date when the context begins."""
        self._listeners += 1
        try:
            if self._task is None:
                self._looked.clear()
                self._task = asyncio.create_task(self._poll())
            await self._looked.wait()
            yield
        finally:
            self._listeners -= 1

    async def _poll(self) -> None:
        due = 0.0
        try:
            while self._listeners:
                began = time.monotonic()
                progress = began >= due
                seen = await self._look(progress=progress)
                if progress:
                    due = began + max(PROGRESS_SECONDS, (time.monotonic() - began) / _READING)
                again = min(began + CHANGE_SECONDS, due) if seen else began + PROGRESS_SECONDS
                await asyncio.sleep(max(0.0, again - time.monotonic()))
                if not self._listeners:
                    await asyncio.to_thread(self._watch.close)
        finally:
            self._looked.set()
            self._task = None

    async def _look(self, *, progress: bool) -> bool:
        looking = asyncio.create_task(asyncio.to_thread(self._watch.look, progress=progress))
        try:
            await asyncio.wait([looking], timeout=LATE_SECONDS)
            if not looking.done():
                self._fail("no answer")
            self._feed.show(await looking)
        except Exception as error:
            # Clients are told of any error, and the poll is tried again: a dead poller would look like a job without
            # progress.
            self._fail(type(error).__name__, trace=not isinstance(error, InstepError))
            return False
        self._looked.set()
        return True

    def _fail(self, why: str, *, trace: bool = False) -> None:
        if self._feed.fail(AWAY, now_ms()):
            _log.warning("jobs cannot be read: %s", why, exc_info=trace)
        self._looked.set()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
