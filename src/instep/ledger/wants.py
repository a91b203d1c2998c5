"""Wants: standing wishes for partitions, as they are now by the event log."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, bindparam, func, or_, select, true

from instep.domain.refs import PartitionRef
from instep.domain.wants import Want, WantState
from instep.ledger import event_log
from instep.ledger.loaded_state import KEYS, some_wants, want_of
from instep.ledger.tables import want_refs, wants
from instep.ledger.transaction import Store, Transaction, batches, reads

_SINCE = select(wants.c.id, wants.c.body).where(wants.c.sequence.in_(KEYS)).order_by(wants.c.sequence)
_STARTABLE = (
    select(func.min(want_refs.c.sequence).label("since"))
    .join(wants, wants.c.id == want_refs.c.want_id)
    .where(
        want_refs.c.ref.in_(KEYS),
        want_refs.c.open == true(),
        wants.c.state == WantState.IDLE.value,
        or_(wants.c.needed.is_(None), wants.c.needed <= bindparam("b_now")),
    )
    .group_by(want_refs.c.ref, want_refs.c.generation)
)
_OPEN_REFS = select(want_refs.c.ref).where(want_refs.c.open == true()).distinct()
_IN_HAND = _OPEN_REFS.join(wants, wants.c.id == want_refs.c.want_id).where(
    or_(
        wants.c.state != WantState.IDLE.value,
        wants.c.needed.is_(None),
        wants.c.needed <= bindparam("b_now"),
    )
)
_FAILED = (
    select(wants.c.id, wants.c.body)
    .where(wants.c.state.in_((WantState.FAILED.value, WantState.UPSTREAM_FAILED.value)))
    .order_by(wants.c.sequence.desc())
)


class Wants(Store):
    """Read only: events make and change them."""

    @reads
    def get(self, tx: Transaction, id: str) -> Want | None:
        return some_wants(tx.connection, [id]).get(id)

    @reads
    def newest(
        self,
        tx: Transaction,
        *,
        ref: PartitionRef | None = None,
        open_only: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Want]:
        """Newest first; of one partition (in any generation), if one is given. `after`: those that are older than the
        want of this id; none if there is no such one.
        """
        found: Select[Any] = select(wants.c.id, wants.c.body)
        sequence = wants.c.sequence if ref is None else want_refs.c.sequence
        if ref is not None:
            found = found.join(want_refs, want_refs.c.want_id == wants.c.id).where(want_refs.c.ref == str(ref))
        if open_only:
            found = found.where(wants.c.ended_at.is_(None) if ref is None else want_refs.c.open == true())
        if after is not None:
            known = wants.alias("known")
            found = found.where(sequence < select(known.c.sequence).where(known.c.id == after).scalar_subquery())
        return [want_of(row) for row in tx.connection.execute(found.order_by(sequence.desc()).limit(limit))]

    @reads
    def open_refs(self, tx: Transaction) -> list[PartitionRef]:
        """List the partitions that open wants name, each once."""
        return sorted(map(PartitionRef.parse, tx.connection.scalars(_OPEN_REFS)))

    @reads
    def refs_in_hand(self, tx: Transaction) -> list[PartitionRef]:
        """List the partitions of open wants that a worker has something to do for: not of those that wait until they
        are due.
        """
        return sorted(map(PartitionRef.parse, tx.connection.scalars(_IN_HAND, {"b_now": event_log.present(tx)})))

    @reads
    def given_up(self, tx: Transaction) -> list[Want]:
        """List dead letters, newest first: wants with several attempts of which the last has failed."""
        return [want for want in map(want_of, tx.connection.execute(_FAILED)) if want.given_up]

    @reads
    def startable(self, tx: Transaction, refs: Collection[PartitionRef]) -> list[Want]:
        """Find the wants that jobs are to be made for: of each generation of each of these partitions the oldest want
        that is Idle and due, the oldest first.
        """
        now, since = event_log.present(tx), set[int]()
        for some in batches(sorted(map(str, set(refs)))):
            since.update(tx.connection.scalars(_STARTABLE, {"b_keys": some, "b_now": now}))
        found: list[Want] = []
        for each in batches(sorted(since)):
            found += map(want_of, tx.connection.execute(_SINCE, {"b_keys": each}))
        return found
