"""Wants, the canonical instances of their partitions, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from instep.answers.answer import HIDDEN, Answer, Ref
from instep.answers.instances import Instance, instance_answer
from instep.domain import instances, wants
from instep.domain.wants import WantState


class Want(Answer):
    """A wish that partitions (`refs`) be there, as of a watermark (`needed`, ms) if it names one. `current` are the
    canonical instances of these now, `instances` those that satisfied it.
    """

    id: str
    state: WantState
    refs: tuple[str, ...]
    generation: str
    needed: int | None
    fresh_within: int | None
    as_of: int | None
    by: str
    derivative_of: str | None
    upstream: tuple[str, ...]
    instances: tuple[str, ...]
    current: tuple[str | None, ...]
    created_at: int
    ended_at: int | None
    error: str | None
    #: How many have failed, of how many; when the next one is made.
    attempts: int
    max_attempts: int
    not_before: int | None
    seen_at: int
    #: The canonical instances themselves, in the order of `refs`.
    found: tuple[Instance | None, ...] = HIDDEN
    #: The partitions that do not satisfy it, and their canonical instances.
    lacking: tuple[tuple[str, Instance | None], ...] = HIDDEN
    #: Whether a worker makes a job for it.
    startable: bool = HIDDEN

    @property
    def in_time(self) -> bool:
        """Whether the jobs that work on what it lacks reach far enough."""
        windows = [each.window for _, each in self.lacking if each is not None and each.worked_on_by]
        return self.needed is None or all(each is not None and each.target >= self.needed for each in windows)


def want_answer(want: wants.Want, current: Sequence[instances.Instance | None], seen_at: int) -> Want:
    """`current`: the canonical instance of each of its partitions; `seen_at`: the ledger's present."""
    found = tuple(instance_answer(each) if each else None for each in current)
    satisfied = map(want.satisfied_by, current)
    return Want(
        id=want.id,
        state=want.state,
        refs=want.refs,
        generation=want.generation,
        needed=want.needed,
        fresh_within=want.fresh_within,
        as_of=want.as_of,
        by=want.by,
        derivative_of=want.derivative_of,
        upstream=want.upstream,
        instances=want.instances,
        current=tuple(each.uuid if each else None for each in current),
        created_at=want.created_at,
        ended_at=want.ended_at,
        error=want.error,
        attempts=want.attempts,
        max_attempts=want.retries.max_attempts if want.retries else 1,
        not_before=want.not_before if want.state is WantState.IDLE else None,
        seen_at=seen_at,
        found=found,
        lacking=tuple((ref, each) for ref, each, done in zip(want.refs, found, satisfied, strict=True) if not done),
        startable=want.can_begin(seen_at),
    )


class Letter(Answer):
    """A dead letter: what another program asked for and was given up. `want` is the failed want, `watermark` (ms) as of
    when it was asked.
    """

    ref: Ref
    want: str
    watermark: int | None
    attempts: int
    reason: str
    at: int
