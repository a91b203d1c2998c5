"""Handlers: each entity has one, with a durable consumer and a thread of its own, so none waits for another.

A handler takes the requests of its entity, one at a time, has the partition indexed, and answers:

* Indexed: acknowledged.
* Others work on the partition, a service is down, or a user has stopped its job: postponed by the policy's pause; no
  attempt is spent.
* Any other error: tried again after the pause, until the attempts are spent; then a dead letter.
* Taken over by another handler: dropped, whatever the result.

A handler that dies sends nothing: after the ack wait its request is delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from instep.bus.bus import Bus, Consumer, Delivery
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.domain.status import IndexState
from instep.domain.texts import cleaned
from instep.errors import Away, Conflict, Fenced, InstepError, Transient, Unknown
from instep.jobs.acquisition import Busy, Stopped
from instep.jobs.idleness import Idleness
from instep.jobs.retry import backoff
from instep.planning.context import Context
from instep.telemetry.context import within

#: How many polls' time a question for the next request is held open: so long a handler takes to see that it is to stop.
_LISTEN = 2
#: A delivery is extended so many times in its ack wait.
_EXTENSIONS = 3


@dataclass(frozen=True, slots=True)
class Indexed:
    """How far a partition is after a request for it. Only `INDEXED` means that it is done."""

    state: IndexState
    notes: Sequence[str] = ()


class Indexer(Protocol):
    def index(self, ref: PartitionRef, watermark: int, demand: Callable[[], None]) -> Indexed:
        """Bring a partition up to a watermark (µs), by a job of its own or by joining or awaiting another. Called from
        many threads, for different partitions. Raises subclasses of `InstepError`. `demand` raises one when the request
        is no longer in work: call it when no other process can start a job on the partition, and before one is made.
        """


@dataclass(frozen=True, slots=True)
class Handler:
    entity: str
    kind: Kind
    policy: Policy


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a delivery. `ends`: it is done; `counts`: an attempt was spent on it."""

    reason: str
    ends: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """What the handlers of one process share. `idleness` is kept where they are to end when nothing is to be done."""

    bus: Bus
    indexer: Indexer
    context: Context
    stopping: threading.Event
    idleness: Idleness | None = None


class Loop:
    """One handler at work."""

    def __init__(self, handler: Handler, site: Site) -> None:
        self._handler = handler
        self._site = site
        self._context = site.context
        self._stopping = site.stopping
        self._pauses = backoff(site.context.random)
        self._hand: tuple[Consumer, Delivery] | None = None

    @property
    def entity(self) -> str:
        return self._handler.entity

    def run(self) -> None:
        """Until it is told to stop."""
        consumer = self._consumer()
        tried = 0
        while consumer is not None and not self._stopping.is_set():
            try:
                self._look(consumer)
                tried = 0
            except (Transient, Unknown) as error:
                tried += 1
                self._wait_for_bus(error, tried)
            except InstepError:
                raise
            except Exception as error:
                # An unexpected error, which does not tell whether the next try fails too.
                tried += 1
                self._recover(error, tried)

    def _recover(self, error: Exception, tried: int) -> None:
        self._context.progress.say(self.entity, cleaned(f"unexpected {type(error).__name__}: {error}; going on"))
        with suppress(Exception):
            self.give_back()
        self._hand = None
        self._stopping.wait(self._pauses.pause(tried))

    def _look(self, consumer: Consumer) -> None:
        idleness = self._site.idleness
        began = idleness.began() if idleness else 0
        delivery = consumer.next(_LISTEN * self._context.timing.poll / 1_000)
        if delivery is None:
            if idleness and idleness.found_nothing(self.entity, began):
                self._stopping.set()
            return
        self._hand = (consumer, delivery)
        with idleness.work(self.entity) if idleness else nullcontext(), within(delivery.trace):
            self._handle(consumer, delivery)
        self._hand = None

    def give_back(self) -> None:
        """What is in hand, for others to take at once. (The thread that works on it may go on for a while, in vain.)"""
        hand = self._hand
        if hand is not None:
            consumer, delivery = hand
            try:
                consumer.postpone(delivery)
            except InstepError:
                return  # Just answered, or it comes back after the ack wait.
            self._say(delivery, "given back")

    def _consumer(self) -> Consumer | None:
        """None when it is to stop before the bus has answered."""
        tried = 0
        while not self._stopping.is_set():
            try:
                return self._site.bus.consumer(self.entity, self._handler.kind, self._handler.policy)
            except (Transient, Unknown) as error:
                tried += 1
                self._wait_for_bus(error, tried)
        return None

    def _wait_for_bus(self, error: Exception, tried: int) -> None:
        if tried == 1:
            self._context.progress.say(self.entity, f"{error}; trying again")
        self._stopping.wait(self._pauses.pause(tried))

    # One delivery.

    def _handle(self, consumer: Consumer, delivery: Delivery) -> None:
        if self._stopping.is_set():
            self.give_back()
            return
        self._say(delivery, "in work" if delivery.attempt == 1 else f"in work, attempt {delivery.attempt}")
        end = self._context.background.every(
            self._handler.policy.ack_wait / 1_000 / _EXTENSIONS,
            partial(self._extend, consumer, delivery),
            f"extend-{delivery.id}",
        )
        try:
            verdict = self._judge(consumer, delivery)
            self._answer(consumer, delivery, verdict)
        finally:
            end()

    @staticmethod
    def _extend(consumer: Consumer, delivery: Delivery) -> bool:
        try:
            consumer.extend(delivery)
        except Fenced:
            return False  # The answer will show it.
        except InstepError:
            pass  # There is time for another try.
        return True

    def _judge(self, consumer: Consumer, delivery: Delivery) -> Verdict:
        try:
            found = self._site.indexer.index(
                delivery.ref, delivery.request.watermark, partial(consumer.extend, delivery)
            )
        except (Transient, Unknown, Conflict, Fenced, Away, Busy, Stopped) as error:
            return Verdict(cleaned(str(error)))
        except InstepError as error:
            return Verdict(cleaned(str(error)), counts=True)
        except (Exception, SystemExit) as error:
            # A transform's, say. It must not end the other handlers, nor this one without a word.
            return Verdict(cleaned(f"unexpected {type(error).__name__}: {error}"), counts=True)
        said = cleaned("; ".join([found.state.value, *found.notes]))
        under_way = found.state in (IndexState.INDEXING, IndexState.BACKFILLING)
        return Verdict(said, ends=found.state is IndexState.INDEXED, counts=not under_way)

    def _answer(self, consumer: Consumer, delivery: Delivery, verdict: Verdict) -> None:
        """Until the bus takes it: it may be away for as long as it likes."""
        tried = 0
        while True:
            try:
                self._say(delivery, self._answered(consumer, delivery, verdict))
            except Fenced as error:
                self._say(delivery, f"let go: {error}")
            except (Transient, Unknown) as error:
                if not self._stopping.is_set():
                    tried += 1
                    self._wait_for_bus(error, tried)
                    continue
                self._say(delivery, f"the bus could not be told ({error}); it is delivered again")
            return

    def _answered(self, consumer: Consumer, delivery: Delivery, verdict: Verdict) -> str:
        if verdict.ends:
            consumer.ack(delivery)
            return verdict.reason
        if self._stopping.is_set():
            consumer.postpone(delivery)  # Whatever went wrong: it may be only that.
            return f"given back: {verdict.reason}"
        if not verdict.counts:
            consumer.postpone(delivery, delay=self._handler.policy.pause(delivery.attempt))
            return f"postponed: {verdict.reason}"
        if consumer.retry(delivery, verdict.reason):
            return f"failed, and is tried again: {verdict.reason}"
        return f"failed for the last time, and is a dead letter now: {verdict.reason}"

    def _say(self, delivery: Delivery, message: str) -> None:
        self._context.progress.say(delivery.ref.label, message)
