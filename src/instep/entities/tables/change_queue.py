"""The pending queue of an entity's changes: leases of keys, cuts into slices, and the rows that a wave reads.

A job leases keys under its id, and acknowledges them when their rows are durable. The keys to acknowledge are read from
the ledger each time: complete slices, failures, and the job's leases. So any worker may acknowledge for a job, any
number of times, and the next one repairs a crash in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa

from instep.domain.jobs import Job, JobPart, JobState, SliceState
from instep.domain.pending_queue import KeyKind, QueueKey, at_most
from instep.domain.planning import MAX_SLICES_PER_ENTITY
from instep.domain.rows import decode_row_slice
from instep.errors import UserError
from instep.ledger.key_leases import KeyFailure
from instep.ledger.ledger import Ledger
from instep.pipeline.tables.values import row_ids
from instep.queues.consumers import Ack, Given, Wanted, acknowledge, fail, next_keys
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.open import demand_readable
from instep.queues.queue_state import recall

#: The most keys of one job: the source can be queried for this many, key by key.
MOST_KEYS = 30_000

#: And the most letters of texts: their slices are rows of the ledger, which have to fit into a packet of MariaDB.
MOST_LETTERS = 2_000_000

#: How long a key stays leased to a job that sends nothing.
LEASE = timedelta(minutes=15)
_MILLISECOND = timedelta(milliseconds=1)
_LEASE = LEASE // _MILLISECOND


class Pending(NamedTuple):
    """The keys that a job would take now. `left`: roughly how many more are offered. `until`: later changes (ms) may
    not be offered yet.
    """

    keys: Sequence[QueueKey]
    retries: int
    left: int
    until: int


@dataclass(frozen=True, slots=True)
class EntityQueue:
    """The pending queue of one entity."""

    name: str
    kind: KeyKind
    open: Callable[[], PendingStore]

    def pending(self, ledger: Ledger) -> Pending:
        """Pending keys without a lease. Takes nothing."""
        with self._opened() as store:
            until = ledger.now() - store.spec.settle // _MILLISECOND
            found = next_keys(store, ledger, Wanted(MOST_KEYS + 1), draw=0)
            taken = _fitting(found[:MOST_KEYS])
            left = max(1, store.counts().offered - len(taken)) if len(found) > len(taken) else 0
        return Pending(sorted(each.key for each in taken), sum(each.attempts > 0 for each in taken), left, until)

    def take(self, ledger: Ledger, job_id: str) -> list[QueueKey]:
        """Lease keys for the job."""
        with self._opened() as store:
            given = next_keys(store, ledger, Wanted(MOST_KEYS, job_id, LEASE), draw=0)
        taken = {each.key for each in _fitting(given)}
        if rest := {each.key: each.fence or 0 for each in given if each.key not in taken}:
            ledger.key_leases.release(self.name, rest)
        return sorted(taken)

    @contextmanager
    def _opened(self) -> Iterator[PendingStore]:
        """Open the queue to read from it."""
        with closing(self.open()) as store:
            demand_readable(store)
            if not recall(store).switched:
                raise UserError(
                    f"the queue {self.name} is not read from yet: it may not have all that is pending",
                    hint=f"Compare it with its anti-join: instep queue verify {self.name}, then instep queue switch",
                )
            yield store

    def keep(self, ledger: Ledger, keys: Collection[QueueKey], job_id: str) -> list[QueueKey]:
        """Keep those of the job's keys that are still leased to it, or are again."""
        ledger.key_leases.extend_held_by(self.name, job_id, lasting=_LEASE)
        held = ledger.key_leases.held_by(self.name, job_id).keys() & set(keys)
        if len(held) < len(keys):
            with closing(self.open()) as store:
                held |= self._leased(store, ledger, store.confirm(set(keys) - held), job_id)
        return sorted(held)

    def _leased(self, store: PendingStore, ledger: Ledger, keys: Collection[QueueKey], job_id: str) -> set[QueueKey]:
        found = ledger.key_leases.lease(self.name, list(keys), job_id, lasting=_LEASE, retries=True).leased
        pending = store.confirm(found)
        covered = {key: hold.fence for key, hold in found.items() if key not in pending}
        if covered:
            ledger.key_leases.forget(self.name, covered)
        return pending

    def release(self, ledger: Ledger, job_id: str) -> None:
        """Give back the keys of a job that is not stored."""
        ledger.key_leases.release_held_by(self.name, job_id)

    def acknowledge(self, ledger: Ledger, part: JobPart, job_id: str) -> None:
        """Acknowledge durable keys, and return failed ones with their error; when no worker is in the job any more,
        return the rest too. Keys of a new index count when it is served.
        """
        held = ledger.key_leases.held_by(self.name, job_id)
        if not held:
            return
        job = ledger.jobs.get(job_id)
        ended, stopped = _end(job, part)
        checkpoint = ledger.checkpoints.get(part.ref, part.generation)
        served = not part.fresh or (checkpoint is not None and checkpoint.instance == part.instance)
        done = {key: held[key].fence for key in _complete(ledger, part, job_id) if key in held}
        if done and (served or ended):
            reasons = _failures(ledger, part, job_id, list(done))
            failed = [KeyFailure(key, done[key], reason) for key, reason in reasons.items()]
            good = [Ack(key, fence) for key, fence in done.items() if served and key not in reasons]
            with closing(self.open()) as store:
                acknowledge(store, ledger, good)
                fail(store, ledger, failed)
        if ended:
            ledger.key_leases.release_held_by(self.name, job_id)
        elif stopped:
            ledger.key_leases.release(self.name, {key: hold.fence for key, hold in held.items() if key not in done})


def _fitting(found: Sequence[Given]) -> list[Given]:
    """Take as many keys as a job may have by their letters, a tenth of which are for retries."""
    fresh, retries = ([each for each in found if (each.attempts > 0) is again] for again in (False, True))
    some = retries[: at_most([each.key for each in retries], MOST_LETTERS // 10)]
    room = MOST_LETTERS - sum(len(str(each.key)) for each in some)
    return [*fresh[: at_most([each.key for each in fresh], room)], *some]


def _end(job: Job | None, part: JobPart) -> tuple[bool, bool]:
    """Whether the part has ended, and whether its job was stopped."""
    status = next((each for each in job.parts if each.part.ref == part.ref), None) if job else None
    return status is None or status.state is not None, job is not None and job.state is JobState.STOPPED


def _complete(ledger: Ledger, part: JobPart, job_id: str) -> Iterator[QueueKey]:
    """Keys of complete slices."""
    for each in ledger.slices.of_part(job_id, part.ref, limit=MAX_SLICES_PER_ENTITY):
        rows = decode_row_slice(each.payload) if each.state is SliceState.COMPLETED else None
        yield from rows.keys if rows else ()


def _failures(ledger: Ledger, part: JobPart, job_id: str, keys: Sequence[QueueKey]) -> dict[QueueKey, str]:
    """Errors of the rows of these keys that failed in this job. They are the newest, and may have the same time as
    those of the job before.
    """
    found = ledger.failures.newest(part.ref, limit=2 * MOST_KEYS)
    reasons = {each.document_id: each.reason for each in found if each.job_id == job_id}
    if not reasons:
        return {}
    ids = row_ids([pa.array(keys)]).to_pylist()
    return {key: reasons[each] for key, each in zip(keys, ids, strict=True) if each in reasons}
