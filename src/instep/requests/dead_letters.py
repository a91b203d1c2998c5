"""Dead letters: what other programs asked for, and failed for good. They are wants; a requeued one is a new want."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instep.answers.wants import Letter
from instep.domain.clock import Ids
from instep.domain.events import Collected, Event, WantCreated
from instep.domain.refs import PartitionRef
from instep.domain.wants import Retries, Want
from instep.entities.generations import generation_of
from instep.errors import Conflict
from instep.ledger.ledger import Ledger
from instep.telemetry.context import current_context


def letters(ledger: Ledger) -> list[Letter]:
    """The newest of each partition, unless the partition has become as fresh since as that asked for."""
    newest: dict[str, Want] = {}
    for want in ledger.wants.given_up():
        for ref in want.refs:
            newest.setdefault(ref, want)
    found = sorted((PartitionRef.parse(ref), want) for ref, want in newest.items())
    return [
        Letter(
            ref=ref,
            want=want.id,
            watermark=want.needed,
            attempts=want.attempts,
            reason=want.error or "",
            at=want.ended_at or 0,
        )
        for ref, want in found
        if not want.satisfied_by(ledger.instances.canonical(ref, want.generation))
    ]


def requeue(
    ledger: Ledger, ids: Ids, refs: Sequence[PartitionRef], retries: Callable[[PartitionRef], Retries], *, by: str = ""
) -> list[PartitionRef]:
    """Want these letters again, with all attempts. Returns those that no other process has answered before."""

    def again(ref: PartitionRef, letter: Want) -> Event:
        return WantCreated(
            want=ids.new(),
            refs=(str(ref),),
            generation=generation_of(ledger, ref, None),
            as_of=letter.needed,
            by=by,
            traceparent=current_context().traceparent,
            retries=retries(ref),
        )

    return [ref for ref in refs if _answer(ledger, ref, again)]


def drop(ledger: Ledger, refs: Sequence[PartitionRef]) -> list[PartitionRef]:
    """Forget these letters. Returns those that no other process has answered before."""
    return [ref for ref in refs if _answer(ledger, ref, None)]


def _answer(ledger: Ledger, ref: PartitionRef, again: Callable[[PartitionRef, Want], Event] | None) -> bool:
    """With all older letters of the partition: none of them is to come up again."""
    found = [want for want in ledger.wants.given_up() if str(ref) in want.refs]
    if not found:
        return False
    wanted = [again(ref, found[0])] if again is not None else []
    try:
        ledger.events.append([*wanted, Collected(wants=tuple(each.id for each in found))])
    except Conflict:
        return False
    return True
