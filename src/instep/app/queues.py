"""The part of the Python API for pending queues.

with instep.load().queue("salts") as queue:
    queue.create()
    queue.backfill()
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from instep.container import Container
from instep.domain.whole_numbers import demand_whole
from instep.project import Project
from instep.telemetry.progress import Progress, Silent

if TYPE_CHECKING:
    from instep.answers.queues import QueueStatus
    from instep.domain.key_leases import KeyLease
    from instep.domain.pending_queue import KeyKind, QueueKey
    from instep.ledger.key_leases import KeyFailure
    from instep.ledger.ledger import Ledger
    from instep.queues.backfill import Backfill
    from instep.queues.consumers import Ack, Answer, Given
    from instep.queues.engines.queue_engine import Observation, PendingStore
    from instep.queues.verify import Verified

#: How far `observe` looks back unless told otherwise.
WEEK = timedelta(days=7)


class Queues:
    """The methods of `app.Instep` for queues."""

    project: Project

    def queue(self, name: str) -> PendingQueue:
        """A queue of the project, open until it is closed. Raises `UserError` for one that is not declared."""
        return PendingQueue(self.project, name)


class PendingQueue:
    """A pending queue: keys of a table that nothing covers yet (docs/queues.md). Do not share it between threads."""

    def __init__(self, project: Project, name: str) -> None:
        from instep.queues.open import PARTS, declared_queue, open_queue

        self.project, self.name = project, name
        self._container = Container(project)
        self._parts = PARTS[declared_queue(project, name).engine]
        self._store: PendingStore = open_queue(project, name)
        self._readable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the queue's database and to the ledger."""
        if "_ledger" in self.__dict__:
            self._ledger.close()
        self._store.close()

    @property
    def kind(self) -> KeyKind:
        """The type of its keys."""
        return self._store.spec.kind

    # Its phases.

    def statements(self) -> tuple[str, ...]:
        """The statements of `create`."""
        return self._store.statements()

    def create(self) -> None:
        """Make the tables of the queue, and capture live writes from now on. Does nothing if the queue is there."""
        self._store.create()

    def backfill_statements(self) -> tuple[str, ...]:
        """The statements of `backfill`, for all of the keys that are left."""
        from instep.queues.backfill import backfill_statements

        return backfill_statements(self._store)

    def backfill(self, *, progress: Progress | None = None) -> Backfill:
        """Bring in the keys that were there before live capture; after an interruption, the next call goes on."""
        from instep.queues.backfill import backfill

        return backfill(self._store, self._container.clock, progress or Silent(), self._parts)

    def verify(self, *, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Compare the queue with the anti-join that it replaces. With `repair`, missing keys are offered again."""
        from instep.queues.verify import verify

        with closing(self._container.ledger(read_only=True)) as ledger:
            return verify(
                self._store,
                lambda keys: ledger.key_leases.held(self.name, keys),
                ledger.now,
                self._container.clock,
                progress or Silent(),
                parts=self._parts,
                repair=repair,
            )

    def switch(self, *, back: bool = False) -> bool:
        """Have consumers read the queue from now on (with `back`, the anti-join). Returns whether that is a change."""
        from instep.queues.open import switch, switch_back

        if back:
            return switch_back(self._store)
        with closing(self._container.ledger(read_only=True)) as ledger:
            return switch(self._store, ledger.now())

    @property
    def switched(self) -> bool:
        """Whether consumers read the queue, and not its anti-join. Read each time: another process may switch."""
        from instep.queues.queue_state import recall

        return self._store.exists() and recall(self._store).switched

    def observe(self, *, since: timedelta = WEEK) -> list[Observation]:
        """Cost of reading the queue and its anti-join, by the database's own log."""
        return self._store.observe(datetime.now(UTC) - since)

    def drop_done(self, *, dry_run: bool = False) -> int:
        """Remove from disk offers that were withdrawn, rows of covered keys, and records of keys that the source has no
        more; returns the number of rows. `dry_run`: only count them, as far as that needs no reading of every offer.
        """
        from instep.queues.open import demand_created

        demand_created(self._store)
        return self._store.cleanable() if dry_run else self._store.clean()

    def status(self) -> QueueStatus:
        """Phase of the queue, and the keys in it."""
        from instep.answers.queues import queue_status
        from instep.queues.open import open_queue

        label = self.project.queues[self.name].label
        oldest_first = open_queue(self.project, self.name, oldest_first=True)
        with closing(oldest_first), closing(self._container.ledger(read_only=True)) as ledger:
            return queue_status(self._store, oldest_first, label, ledger)

    def drop(self) -> None:
        """Remove the queue from its database, and its keys from the ledger. Source and covers stay."""
        self._store.drop()
        self._ledger.key_leases.drop(self.name)

    # Its keys.

    def next_statement(self, limit: int, *, participants: Iterable[int] = (), legacy: bool = False) -> str:
        """The statement of `next`."""
        from instep.queues.engines.queue_engine import Ask

        store = self._store
        has_times = store.spec.source.event_time is not None
        settled = datetime.now(UTC) - store.spec.settle if has_times else None
        ask = Ask(limit, settled, participants=tuple(participants))
        return store.anti_join_statement(ask) if legacy or not self.switched else store.read_statement(ask)

    def next(
        self,
        limit: int = 100,
        *,
        lease: timedelta | None = None,
        by: str = "",
        participants: Iterable[int] = (),
        legacy: bool = False,
    ) -> list[Given]:
        """Take pending keys: fresh ones first, at most a tenth that failed before. With `lease`, no other consumer
        gets them for so long. Until `switch`, or with `legacy`, they are read from the anti-join.
        """
        from instep.queues.consumers import Wanted, next_keys
        from instep.queues.queue_state import recall

        self._demand_readable()
        wanted = Wanted(
            limit,
            None if lease is None else by or f"{socket.gethostname()}/{os.getpid()}",
            lease or timedelta(0),
            tuple(participants),
            # Asked each time: another process may switch.
            legacy or not recall(self._store).switched,
        )
        return next_keys(self._store, self._ledger, wanted, random.random())  # noqa: S311 - a share, not a secret

    def ack(self, acks: Iterable[Ack]) -> list[Answer]:
        """Acknowledge keys as covered. Returns an outcome for each."""
        from instep.queues.consumers import acknowledge

        return acknowledge(self._store, self._ledger, list(acks))

    def fail(self, failures: Iterable[KeyFailure]) -> list[Answer]:
        """Record failures of keys. Returns an outcome for each."""
        from instep.queues.consumers import fail

        return fail(self._store, self._ledger, list(failures))

    def parked(self, *, after: QueueKey | None = None, limit: int = 1_000) -> dict[QueueKey, KeyLease]:
        """Parked keys, which failed too often, in the order of keys; those behind `after`."""
        demand_whole(limit=limit)
        from instep.queues.consumers import parked

        return parked(self._store, self._ledger, after=after, limit=limit)

    def unpark(self, keys: Iterable[QueueKey] | None = None) -> set[QueueKey]:
        """Retry parked keys (by default all), with all attempts again. Returns those that were parked."""
        from instep.queues.consumers import unpark

        if keys is not None:
            return unpark(self._store, self._ledger, set(keys))
        done: set[QueueKey] = set()
        while page := self.parked(after=max(done, default=None)):
            done |= unpark(self._store, self._ledger, page) | page.keys()
        return done

    def _demand_readable(self) -> None:
        """Asked once: a declaration does not change while it is loaded."""
        from instep.queues.open import demand_readable

        if not self._readable:
            demand_readable(self._store)
            self._readable = True

    @cached_property
    def _ledger(self) -> Ledger:
        """A ledger that stays open for consumers, which change it again and again."""
        return self._container.ledger()
