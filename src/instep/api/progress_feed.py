"""Messages of the channel in order: each client gets all of them, from where it stopped.

There is one list of messages for all listeners, of bounded length, and each has a position in it: no message is kept or
encoded twice. One that falls out of the list behind is slow. For one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from instep.answers.job_feed import NEWEST, JobWatch, Look
from instep.answers.jobs import Job
from instep.domain.jobs import SliceState
from instep.errors import InstepError

CHANNEL: Final = "searchIndexJobStatus"
#: Messages that are kept: for clients that come back, and as far as a client may lag behind. A poll brings far fewer.
KEPT: Final = 1_024
#: Of so many jobs under way, those seen last, the newest message is kept besides. More are not seen at once.
_LIVE: Final = 2 * NEWEST


class Message(NamedTuple):
    """A message to clients; `job` is None for one to all of them."""

    seq: int
    job: str | None
    text: str


@dataclass(slots=True, eq=False)
class Listener:
    """A client that has had all messages up to `position`, of one job or (None) of all.

    `newest`: the messages it gets first; None if it goes on after `position`.
    """

    job: str | None
    position: int
    newest: list[Message] | None
    slow: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, message: Message) -> bool:
        return self.job is None or message.job in (None, self.job)


class Feed:
    def __init__(self, begin: int) -> None:
        """Sequences begin after `begin`: the time in milliseconds, so that they grow from one server to the next."""
        self.last = begin
        self._kept: deque[Message] = deque(maxlen=KEPT)
        self._live: dict[str, Message] = {}
        self._newest: Message | None = None
        self._trouble: Message | None = None
        self._more = asyncio.Event()
        self._listeners: set[Listener] = set()

    # For the poller.

    def show(self, look: Look) -> None:
        """Publish the result of a poll. The first one after an error says that the error is over."""
        before = self.last
        if self._trouble:
            self._trouble = None
            self._publish(None, look.at, None, error=None)
        for job in look.seen:
            message = self._publish(job.id, job.seen_at, status_data(job))
            self._newest = message
            self._live.pop(job.id, None)
            if not job.state.ended:
                self._live[job.id] = message
        for job_id in list(self._live)[:-_LIVE]:
            del self._live[job_id]
        for job_id in look.gone:
            self._live.pop(job_id, None)
            self._publish(job_id, look.at, None)
        if self.last > before:
            self._wake()

    def fail(self, error: str, at: int) -> bool:
        """Publish that jobs cannot be read, once. Returns whether this call did."""
        if self._trouble:
            return False
        self._trouble = self._publish(None, at, None, error=error)
        self._wake()
        return True

    def _publish(self, job_id: str | None, at: int, data: dict[str, Any] | None, **more: Any) -> Message:
        self.last += 1
        message = Message(self.last, job_id, message_text(self.last, at, job_id, data, **more))
        self._kept.append(message)
        return message

    def _wake(self) -> None:
        for listener in self._listeners:
            if listener.position < self._kept[0].seq - 1:
                listener.slow.set()
        self._more.set()
        self._more = asyncio.Event()

    # For clients.

    def join(self, job: str | None, after: int | None) -> Listener:
        """A listener for messages from now on; first those after `after`, or the newest if these are not kept."""
        if after is not None and self._has(after):
            listener = Listener(job, after, None)
        else:
            listener = Listener(job, self.last, self._newest_of(job))
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def about(self, job: Job) -> Message:
        """A message about a job that is not polled, for the one client that asked for it. It is not kept."""
        return Message(self.last, job.id, message_text(self.last, job.seen_at, job.id, status_data(job)))

    async def after(self, position: int) -> list[Message]:
        """The messages after a position; waits until there is one. Empty when more came since than is kept."""
        while position >= self.last:
            await self._more.wait()
        skip = position + 1 - self._kept[0].seq
        return [] if skip < 0 else [self._kept[place] for place in range(skip, len(self._kept))]

    def _has(self, after: int) -> bool:
        """Whether all messages after this one are kept."""
        return bool(self._kept) and self._kept[0].seq - 1 <= after <= self.last

    def _newest_of(self, job_id: str | None) -> list[Message]:
        """The newest of each job under way, or else of the last one that was, and of trouble. Of one job, if it is
        under way.
        """
        trouble = [self._trouble] if self._trouble else []
        if job_id is not None:
            return [self._live[job_id], *trouble] if job_id in self._live else []
        newest = [self._newest] if self._newest else []
        return (sorted(self._live.values()) or newest) + trouble


def message_text(seq: int, at: int, job_id: str | None, data: dict[str, Any] | None, **more: Any) -> str:
    """A message of the channel as it is sent."""
    message = {"channel": CHANNEL, "seq": seq, "at": at, "job": job_id, "data": data, **more}
    return msgspec.json.encode(message).decode()


def status_data(job: Job) -> dict[str, Any]:
    """Progress of a job. Unknown numbers are null, such as the number of records before it is planned."""
    return {
        "status": str(job.state),
        "phase": job.phase,
        "stats": {
            "jobStats": _records(job.units if job.parts else None, job.done, job.counts.failed),
            "entityStats": _entities(job),
        },
        "rate": None if job.units_per_second is None else round(job.units_per_second, 2),
        "secondsLeft": None if job.seconds_left is None else round(job.seconds_left),
        "slices": {str(state): job.slices.in_state(state) for state in SliceState},
    }


def _entities(job: Job) -> dict[str, dict[str, int | None]]:
    """An entity's partitions together."""
    totals: defaultdict[str, int | None] = defaultdict(int)
    read: defaultdict[str, int] = defaultdict(int)
    failed: defaultdict[str, int] = defaultdict(int)
    for part in job.parts:
        name = part.ref.entity
        before = totals[name]
        totals[name] = None if before is None or part.units is None else before + part.units
        read[name] += part.done
        failed[name] += part.counts.failed
    return {name: _records(total, read[name], failed[name]) for name, total in totals.items()}


def _records(total: int | None, read: int, failed: int) -> dict[str, int | None]:
    return {"totalRecords": total, "successRecords": read - failed, "failedRecords": failed}


#: Seconds between messages about the progress of running jobs.
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
