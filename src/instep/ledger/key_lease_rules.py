"""`holds.KeyLeases` over rows, however a ledger keeps them: the rules of `domain.key_leases`, key by key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from instep.domain import key_leases
from instep.domain.key_leases import MAX_BATCH, KeyLease, KeyLeaseState, Refusal, Terms
from instep.domain.pending_queue import KeyRange
from instep.domain.storable import storable_key
from instep.ledger.key_leases import KeyFailure, KeyLeaseCount, Leased

T = TypeVar("T")

_LONGEST_HOLDER: Final = 128

#: What is to become of a key, by what it is held as.
Rule = Callable[[int, KeyLease | None], KeyLease | Refusal | None]


class KeyLeaseRows(Protocol):
    """The rows, within one transaction. What is read to be changed is locked; who makes rows locks the queue first."""

    def now(self) -> int: ...

    def lock(self, queue: str) -> int:
        """Nobody else makes rows of the queue, or takes a fence; returns the last fence."""

    def advance(self, queue: str, fence: int) -> None: ...

    def of(self, queue: str, keys: Iterable[int], *, lock: bool) -> dict[int, KeyLease]: ...

    def due(self, queue: str, limit: int) -> dict[int, KeyLease]:
        """In the order in which they were due."""

    def parked(self, queue: str, after: int | None, limit: int) -> dict[int, KeyLease]:
        """By key."""

    def held_by(self, queue: str, holder: str, keys: KeyRange | None, limit: int | None) -> dict[int, KeyLease]:
        """By key."""

    def extend_held_by(self, queue: str, holder: str, until: int) -> int: ...

    def put(self, queue: str, before: Mapping[int, KeyLease], after: Mapping[int, KeyLease | None]) -> None:
        """Make rows of `after`: new where there was none before, gone where there is none after."""

    def count(self, queue: str) -> dict[KeyLeaseState, KeyLeaseCount]: ...

    def drop(self, queue: str) -> None: ...


class KeyLeaseLedger(ABC):
    """Implements `holds.KeyLeases`."""

    @abstractmethod
    def _look_at_holds(self, work: Callable[[KeyLeaseRows], T]) -> T: ...

    @abstractmethod
    def _change_holds(self, work: Callable[[KeyLeaseRows], T]) -> T: ...

    # Leasing.

    def lease_keys(
        self, queue: str, keys: Sequence[int], holder: str, *, lasting: int, retries: bool = False
    ) -> Leased:
        _demand_bounded(len(keys))

        def work(rows: KeyLeaseRows) -> Leased:
            fence = rows.lock(queue) + 1
            now = rows.now()  # not before the lock, which may have taken long to get
            terms = Terms(fence, _name(holder), now, now + lasting)
            return _lease(rows, queue, keys, terms, retries=retries)

        return self._change_holds(work) if keys else Leased({}, {})

    def due_keys(self, queue: str, limit: int) -> dict[int, KeyLease]:
        return self._look_at_holds(lambda rows: rows.due(queue, limit))

    def held_keys(self, queue: str, keys: Collection[int]) -> dict[int, KeyLease]:
        return self._look_at_holds(lambda rows: rows.of(queue, keys, lock=False))

    # What becomes of leases.

    def extend_keys(self, queue: str, fences: Mapping[int, int], *, lasting: int) -> dict[int, Refusal]:
        return self._under_fences(queue, fences, lambda hold, fence, now: key_leases.extend(hold, fence, now + lasting))

    def release_keys(self, queue: str, fences: Mapping[int, int]) -> dict[int, Refusal]:
        return self._under_fences(queue, fences, key_leases.release)

    def forget_keys(self, queue: str, fences: Mapping[int, int]) -> dict[int, Refusal]:
        return self._under_fences(queue, fences, lambda hold, fence, _: key_leases.forget(hold, fence))

    def fail_keys(self, queue: str, failures: Sequence[KeyFailure]) -> dict[int, KeyLease | Refusal]:
        _demand_bounded(len(failures))
        last = {each.key: each for each in failures}

        def work(rows: KeyLeaseRows) -> dict[int, KeyLease | Refusal]:
            rows.lock(queue)  # one who reads without leases makes a row
            now = rows.now()
            found = _change(
                rows, queue, last, lambda key, hold: key_leases.fail(hold, last[key].fence, last[key].error, now)
            )
            return {key: each for key, each in found.items() if each is not None}

        return self._change_holds(work) if failures else {}

    def _under_fences(
        self,
        queue: str,
        fences: Mapping[int, int],
        rule: Callable[[KeyLease | None, int, int], KeyLease | Refusal | None],
    ) -> dict[int, Refusal]:
        _demand_bounded(len(fences))

        def work(rows: KeyLeaseRows) -> dict[int, Refusal]:
            now = rows.now()
            found = _change(rows, queue, fences, lambda key, hold: rule(hold, fences[key], now))
            return {key: each for key, each in found.items() if isinstance(each, Refusal)}

        return self._change_holds(work) if fences else {}

    # Parked keys, and all of them.

    def parked_keys(self, queue: str, *, after: int | None = None, limit: int = 1_000) -> dict[int, KeyLease]:
        return self._look_at_holds(lambda rows: rows.parked(queue, after, limit))

    def unpark_keys(self, queue: str, keys: Collection[int]) -> set[int]:
        _demand_bounded(len(keys))

        def work(rows: KeyLeaseRows) -> set[int]:
            now = rows.now()
            parked = {
                key: each for key, each in rows.of(queue, keys, lock=True).items() if each.state is KeyLeaseState.PARKED
            }
            rows.put(queue, parked, {key: key_leases.unpark(each, now) for key, each in parked.items()})
            return set(parked)

        return self._change_holds(work) if keys else set()

    def count_key_leases(self, queue: str) -> dict[KeyLeaseState, KeyLeaseCount]:
        return self._look_at_holds(lambda rows: rows.count(queue))

    def drop_key_leases(self, queue: str) -> None:
        self._change_holds(lambda rows: rows.drop(queue))

    # Of one holder.

    def keys_held_by(
        self, queue: str, holder: str, keys: KeyRange | None = None, *, limit: int = MAX_BATCH
    ) -> dict[int, KeyLease]:
        return self._look_at_holds(lambda rows: rows.held_by(queue, _name(holder), keys, limit))

    def extend_held_by(self, queue: str, holder: str, *, lasting: int) -> int:
        return self._change_holds(lambda rows: rows.extend_held_by(queue, _name(holder), rows.now() + lasting))

    def release_held_by(self, queue: str, holder: str) -> int:
        def work(rows: KeyLeaseRows) -> int:
            now = rows.now()
            held = rows.held_by(queue, _name(holder), None, None)
            _change(rows, queue, held, lambda key, hold: key_leases.release(hold, held[key].fence, now))
            return len(held)

        return self._change_holds(work)


def _lease(rows: KeyLeaseRows, queue: str, keys: Iterable[int], terms: Terms, *, retries: bool) -> Leased:
    before = rows.of(queue, keys, lock=True)
    after = {key: key_leases.lease(before.get(key), terms, retries=retries) for key in keys}
    changed = {key: each for key, each in after.items() if each is not None}
    leased = {key: each for key, each in changed.items() if each.fence == terms.fence}
    if changed:
        rows.put(queue, before, changed)
        rows.advance(queue, terms.fence)
    return Leased(leased, {key: changed.get(key) or before[key] for key in after if key not in leased})


def _change(rows: KeyLeaseRows, queue: str, keys: Collection[int], rule: Rule) -> dict[int, KeyLease | Refusal | None]:
    """What became of each key; a refusal changes nothing."""
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
