"""Dead letters: what messages and schedules asked for, and failed for good. They are wants; a requeued one is a new
want.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instep.answers.wants import Letter
from instep.domain.clock import Ids
from instep.domain.events import Event, WantCanceled
from instep.domain.refs import PartitionRef
from instep.domain.wants import Retries, Want
from instep.errors import Conflict
from instep.ledger.ledger import Ledger
from instep.requests.wants import want_of_program


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
        return want_of_program(ledger, ids.new(), ref, as_of=letter.needed, by=by, retries=retries(ref))

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
    why = "it was dropped" if again is None else "it is asked for again"
    try:
        # Canceled, not forgotten: a message that comes again, or a schedule, knows by the want that it was answered.
        ledger.events.append([*wanted, *(WantCanceled(want=each.id, why=why) for each in found)])
    except Conflict:
        return False
    return True
