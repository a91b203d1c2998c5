"""Key leases: the holders of keys of pending queues, and the failed attempts. `domain.key_leases` has the rules.

Every method is for at most `MAX_BATCH` keys, and repeats well: what was done already is refused, key by key, and
changes nothing. A lease lasts so many milliseconds of the ledger's clock. Its holder is a consumer by name, or a job by
id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from instep.domain import key_leases
from instep.domain.key_leases import MAX_BATCH, KeyLease, KeyLeaseState, Refusal, Terms
from instep.domain.pending_queue import QueueKey
from instep.domain.storable import storable_key
from instep.ledger.key_lease_rows import KeyLeaseCount, KeyLeaseRows
from instep.ledger.transaction import Store

T = TypeVar("T")

_LONGEST_HOLDER: Final = 128

#: What is to become of a key, by what it is held as.
Rule = Callable[[QueueKey, KeyLease | None], KeyLease | Refusal | None]


@dataclass(frozen=True, slots=True)
class Leased:
    """The answer to `lease`, by key in the order asked: keys that were leased, and the leases of the others."""

    leased: Mapping[QueueKey, KeyLease]
    others: Mapping[QueueKey, KeyLease]


class KeyFailure(NamedTuple):
    """The failure of a key. `fence` is None from a consumer that reads without leases."""

    key: QueueKey
    fence: int | None
    error: str


class KeyLeases(Store):
    """The key leases of all queues."""

    def _look(self, work: Callable[[KeyLeaseRows], T]) -> T:
        return self._database.read(lambda tx: work(KeyLeaseRows(tx)))

    def _change(self, work: Callable[[KeyLeaseRows], T]) -> T:
        return self._database.write(lambda tx: work(KeyLeaseRows(tx)))

    # Leasing.

    def lease(
        self, queue: str, keys: Sequence[QueueKey], holder: str, *, lasting: int, retries: bool = False
    ) -> Leased:
        """Lease those that are free and never failed, all under one fence. Also those whose first lease ran out:
        that is a failed attempt of theirs. With `retries`, also those whose pause is over, or whose lease ran out more
        often: the twelfth time parks its key instead.
        """
        _demand_bounded(len(keys))

        def work(rows: KeyLeaseRows) -> Leased:
            fence = rows.lock(queue) + 1
            now = rows.now()  # not before the lock, which may have taken long to get
            terms = Terms(fence, _name(holder), now, now + lasting)
            return _lease(rows, queue, keys, terms, retries=retries)

        return self._change(work) if keys else Leased({}, {})

    def due(self, queue: str, limit: int) -> dict[QueueKey, KeyLease]:
        """Read keys whose pause is over or whose lease ran out, in the order in which they were due."""
        return self._look(lambda rows: rows.due(queue, limit))

    def held(self, queue: str, keys: Collection[QueueKey]) -> dict[QueueKey, KeyLease]:
        """Read the leases of these keys."""
        return self._look(lambda rows: rows.of(queue, keys, lock=False))

    # What becomes of leases.

    def extend(self, queue: str, fences: Mapping[QueueKey, int], *, lasting: int) -> dict[QueueKey, Refusal]:
        """Leases last so long from now on, each under its fence. Returns those that were refused."""
        return self._under_fences(queue, fences, lambda hold, fence, now: key_leases.extend(hold, fence, now + lasting))

    def release(self, queue: str, fences: Mapping[QueueKey, int]) -> dict[QueueKey, Refusal]:
        """Release keys, so that others may have them at once; no attempt is spent. Returns those that were refused."""
        return self._under_fences(queue, fences, key_leases.release)

    def forget(self, queue: str, fences: Mapping[QueueKey, int]) -> dict[QueueKey, Refusal]:
        """Delete the leases of keys that are covered. Returns those that were refused."""
        return self._under_fences(queue, fences, lambda hold, fence, _: key_leases.forget(hold, fence))

    def fail(self, queue: str, failures: Sequence[KeyFailure]) -> dict[QueueKey, KeyLease | Refusal]:
        """Record one more failed attempt of each key: it waits, or is parked. Of a key that is given twice the last
        counts.
        """
        _demand_bounded(len(failures))
        last = {each.key: each for each in failures}

        def work(rows: KeyLeaseRows) -> dict[QueueKey, KeyLease | Refusal]:
            rows.lock(queue)  # a reader without leases makes a row
            now = rows.now()
            found = _change(
                rows, queue, last, lambda key, hold: key_leases.fail(hold, last[key].fence, last[key].error, now)
            )
            return {key: each for key, each in found.items() if each is not None}

        return self._change(work) if failures else {}

    def _under_fences(
        self,
        queue: str,
        fences: Mapping[QueueKey, int],
        rule: Callable[[KeyLease | None, int, int], KeyLease | Refusal | None],
    ) -> dict[QueueKey, Refusal]:
        _demand_bounded(len(fences))

        def work(rows: KeyLeaseRows) -> dict[QueueKey, Refusal]:
            now = rows.now()
            found = _change(rows, queue, fences, lambda key, hold: rule(hold, fences[key], now))
            return {key: each for key, each in found.items() if isinstance(each, Refusal)}

        return self._change(work) if fences else {}

    # Parked keys, and all of them.

    def parked(self, queue: str, *, after: QueueKey | None = None, limit: int = 1_000) -> dict[QueueKey, KeyLease]:
        """Read parked keys beyond `after`, in order."""
        return self._look(lambda rows: rows.parked(queue, after, limit))

    def unpark(self, queue: str, keys: Collection[QueueKey]) -> set[QueueKey]:
        """Make those of these keys that are parked due now, for as many attempts as before, and return them."""
        _demand_bounded(len(keys))

        def work(rows: KeyLeaseRows) -> set[QueueKey]:
            now = rows.now()
            parked = {
                key: each for key, each in rows.of(queue, keys, lock=True).items() if each.state is KeyLeaseState.PARKED
            }
            rows.put(queue, parked, {key: key_leases.unpark(each, now) for key, each in parked.items()})
            return set(parked)

        return self._change(work) if keys else set()

    def count(self, queue: str) -> dict[KeyLeaseState, KeyLeaseCount]:
        """States that no key is in are left out."""
        return self._look(lambda rows: rows.count(queue))

    def drop(self, queue: str) -> None:
        """Forget a queue that is dropped. Its fence stays: it must grow for ever."""
        self._change(lambda rows: rows.drop(queue))

    # Of one holder.

    def held_by(self, queue: str, holder: str, *, limit: int = MAX_BATCH) -> dict[QueueKey, KeyLease]:
        """Read the keys that a holder has leased (they may have run out, if they were not taken), in order."""
        return self._look(lambda rows: rows.held_by(queue, _name(holder), limit))

    def extend_held_by(self, queue: str, holder: str, *, lasting: int) -> int:
        """Extend every lease of the holder; returns how many there are."""
        return self._change(lambda rows: rows.extend_held_by(queue, _name(holder), rows.now() + lasting))

    def release_held_by(self, queue: str, holder: str) -> int:
        """Release all keys of a holder, so that others may have them at once; no attempt is spent. Returns the number
        of keys.
        """

        def work(rows: KeyLeaseRows) -> int:
            now = rows.now()
            held = rows.held_by(queue, _name(holder), None)
            _change(rows, queue, held, lambda key, hold: key_leases.release(hold, held[key].fence, now))
            return len(held)

        return self._change(work)


def _lease(rows: KeyLeaseRows, queue: str, keys: Iterable[QueueKey], terms: Terms, *, retries: bool) -> Leased:
    before = rows.of(queue, keys, lock=True)
    after = {key: key_leases.lease(before.get(key), terms, retries=retries) for key in keys}
    changed = {key: each for key, each in after.items() if each is not None}
    leased = {key: each for key, each in changed.items() if each.fence == terms.fence}
    if changed:
        rows.put(queue, before, changed)
        rows.advance(queue, terms.fence)
    return Leased(leased, {key: changed.get(key) or before[key] for key in after if key not in leased})


def _change(
    rows: KeyLeaseRows, queue: str, keys: Collection[QueueKey], rule: Rule
) -> dict[QueueKey, KeyLease | Refusal | None]:
    """Apply a rule to each key, and return the outcomes; a refusal changes nothing."""
    before = rows.of(queue, keys, lock=True)
    result = {key: rule(key, before.get(key)) for key in keys}
    after = {key: each for key, each in result.items() if not isinstance(each, Refusal)}
    rows.put(queue, before, after)
    return result


def _name(holder: str) -> str:
    """Consumers name themselves."""
    return storable_key(holder, _LONGEST_HOLDER)


def _demand_bounded(keys: int) -> None:
    if keys > MAX_BATCH:
        raise ValueError(f"{keys:,} keys at once; {MAX_BATCH:,} are the most")
