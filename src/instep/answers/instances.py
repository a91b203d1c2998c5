"""Instances of partitions: their history, and what changed when one was tainted, expired or is to be rebuilt."""

from __future__ import annotations

from instep.answers.answer import HIDDEN, Answer, Ref
from instep.answers.jobs import Counts
from instep.domain import instances
from instep.domain.instances import InstanceState, Reason
from instep.entities.instances import Left, ending


class Window(Answer):
    """Changes after `floor` (0: everything) up to `target`, in ms."""

    floor: int
    target: int


class Instance(Answer):
    """One build of a partition."""

    uuid: str
    ref: str
    generation: str
    sequence: int
    previous: str | None
    reason: Reason
    state: InstanceState
    canonical: bool
    by: str
    job: str | None
    refreshed_by: str | None
    refreshes: int
    window: Window | None
    watermark: int | None
    fingerprint: dict[str, str] | None
    revision: str
    inputs: tuple[str, ...]
    physical: str | None
    counts: Counts | None
    created_at: int
    started_at: int | None
    live_at: int | None
    ended_at: int | None
    ended: str | None
    error: str | None
    #: Whether it is complete up to its watermark.
    usable: bool = HIDDEN
    #: The job that builds or refreshes it now.
    worked_on_by: str | None = HIDDEN

    @property
    def left(self) -> bool:
        """Whether it is no longer canonical."""
        return not self.canonical


class Change(Answer):
    """A change of the canonical instance: `old` was left, `new` is to be built. `wanted`: a worker builds it too."""

    ref: Ref
    generation: str
    changed: bool
    old: Instance | None
    new: Instance | None
    wanted: bool


def instance_answer(each: instances.Instance) -> Instance:
    return Instance(
        uuid=each.uuid,
        ref=each.ref,
        generation=each.generation,
        sequence=each.sequence,
        previous=each.previous,
        reason=each.reason,
        state=each.state,
        canonical=not each.left,
        by=each.by,
        job=each.job,
        refreshed_by=each.refreshed_by,
        refreshes=each.refreshes,
        window=None if each.target is None else Window(floor=each.floor, target=each.target),
        watermark=each.watermark,
        fingerprint=None if each.fingerprint is None else dict(each.fingerprint),
        revision=each.revision,
        inputs=each.inputs,
        physical=each.physical,
        counts=Counts.model_validate(each.counts) if each.counts else None,
        created_at=each.created_at,
        started_at=each.started_at,
        live_at=each.live_at,
        ended_at=each.ended_at,
        ended=ending(each),
        error=each.error,
        usable=each.usable,
        worked_on_by=each.worked_on_by,
    )


def change_answer(left: Left) -> Change:
    return Change(
        ref=left.ref,
        generation=left.generation,
        changed=left.changed,
        old=instance_answer(left.old) if left.old else None,
        new=instance_answer(left.new) if left.new else None,
        wanted=left.wanted,
    )
