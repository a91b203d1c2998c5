"""What the ledger keeps of the keys of pending queues: who has leased them, and how often they failed.

`domain.key_leases` has the rules. Every method is one transaction, is for at most `MAX_BATCH` keys, and repeats well:
what was done already is refused, key by key, and changes nothing. A lease lasts so many milliseconds of the ledger's
clock. Its holder is a consumer by name, or a job by id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from instep.domain.key_leases import KeyLease, KeyLeaseState, Refusal
from instep.domain.pending_queue import KeyRange


@dataclass(frozen=True, slots=True)
class Leased:
    """By key, in the order in which they were asked for: those that were leased, and what others are held as."""

    leased: Mapping[int, KeyLease]
    others: Mapping[int, KeyLease]


class KeyFailure(NamedTuple):
    """`fence` is None from a consumer that reads without leases."""

    key: int
    fence: int | None
    error: str


class KeyLeaseCount(NamedTuple):
    """How many keys are in a state, how many of them others may have now, and when the oldest came into it."""

    keys: int
    due: int
    since: int


class KeyLeases(Protocol):
    """A part of `port.Ledger`."""

    def lease_keys(
        self, queue: str, keys: Sequence[int], holder: str, *, lasting: int, retries: bool = False
    ) -> Leased:
        """Lease those that nobody has and that never failed, all under one fence. Also those whose first lease ran out:
        that is a failed attempt of theirs. With `retries`, also those whose pause is over, or whose lease ran out more
        often: the twelfth time parks its key instead.
        """

    def due_keys(self, queue: str, limit: int) -> dict[int, KeyLease]:
        """Those whose pause is over or whose lease ran out, in the order in which they were due."""

    def held_keys(self, queue: str, keys: Collection[int]) -> dict[int, KeyLease]:
        """What is held of these."""

    def extend_keys(self, queue: str, fences: Mapping[int, int], *, lasting: int) -> dict[int, Refusal]:
        """Leases last so long from now on, each under its fence. Returns those that were refused."""

    def fail_keys(self, queue: str, failures: Sequence[KeyFailure]) -> dict[int, KeyLease | Refusal]:
        """One more failed attempt of each: it waits, or is parked. Of a key that is given twice the last counts."""

    def release_keys(self, queue: str, fences: Mapping[int, int]) -> dict[int, Refusal]:
        """Others may have these at once; no attempt is spent. Returns those that were refused."""

    def forget_keys(self, queue: str, fences: Mapping[int, int]) -> dict[int, Refusal]:
        """These are covered. Returns those that were refused."""

    def parked_keys(self, queue: str, *, after: int | None = None, limit: int = 1_000) -> dict[int, KeyLease]:
        """By key, those beyond `after`."""

    def unpark_keys(self, queue: str, keys: Collection[int]) -> set[int]:
        """Those of them that were parked are due now, for as many attempts as before; they are returned."""

    def count_key_leases(self, queue: str) -> dict[KeyLeaseState, KeyLeaseCount]:
        """States that no key is in are left out."""

    def drop_key_leases(self, queue: str) -> None:
        """The queue is gone. Its fence stays: it must grow for ever."""

    # Of one holder.

    def keys_held_by(
        self, queue: str, holder: str, keys: KeyRange | None = None, *, limit: int = 50_000
    ) -> dict[int, KeyLease]:
        """Those that it has leased (they may have run out, if nobody else took them), by key."""

    def extend_held_by(self, queue: str, holder: str, *, lasting: int) -> int:
        """Extend every lease of the holder; returns how many there are."""

    def release_held_by(self, queue: str, holder: str) -> int:
        """Others may have all its keys at once; no attempt is spent. Returns how many there were."""
