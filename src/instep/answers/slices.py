"""Slices of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instep.answers.answer import Answer, Ref
from instep.domain.jobs import Job, SliceState
from instep.domain.refs import PartitionRef, own_name
from instep.errors import Missing
from instep.ledger.ledger import Ledger
from instep.ledger.slices import SlicePlace, SliceView

_LETTERS: Final = {
    SliceState.PENDING: ".",
    SliceState.PROCESSING: "P",
    SliceState.COMPLETED: "C",
    SliceState.FAILED: "F",
    SliceState.CANCELLED: "X",
}


class Slice(Answer):
    """One slice of a job. `units` is the number of documents or rows planned for it (0: not counted), `work` its
    weight. `attempts` is the number of tries that ended badly, `error` the error of the last; `worker` has it, or had
    it last.
    """

    ref: Ref
    index: int
    id: str
    bucket: int
    state: SliceState
    units: int
    work: int
    attempts: int
    worker: str | None
    claimed_at: int | None
    finished_at: int | None
    error: str | None

    @property
    def place(self) -> SlicePlace:
        """Its place among the slices of its job."""
        return SlicePlace(str(self.ref), self.index, self.id)


class GridPart(Answer):
    """The slices of one partition by number: a letter for each."""

    ref: Ref
    generation: str
    states: str


class Grid(Answer):
    """All slices of a job, one letter each; `states` maps letters to states."""

    states: dict[str, SliceState]
    parts: tuple[GridPart, ...]


def slice_page(
    ledger: Ledger,
    job: Job,
    entity: str | None,
    *,
    state: SliceState | None,
    after: SlicePlace | None,
    limit: int,
) -> list[Slice]:
    """A page of slices by partition and number: of one entity (or partition), in one state, or all."""
    refs = None if entity is None else _named_in(job, entity)
    return list(map(_answer, ledger.slices.page(job.id, refs=refs, state=state, after=after, limit=limit)))


def slice_grid(ledger: Ledger, job: Job) -> Grid:
    """The states of all slices, however many they are."""
    generations = {each.part.ref: each.part.generation for each in job.parts}
    letters: dict[PartitionRef, list[str]] = {ref: [] for ref in generations}
    for ref, _, state in ledger.slices.states(job.id):
        letters.setdefault(ref, []).append(_LETTERS[state])
    return Grid(
        states={letter: state for state, letter in _LETTERS.items()},
        parts=tuple(
            GridPart(ref=ref, generation=generations.get(ref, ""), states="".join(each))
            for ref, each in letters.items()
        ),
    )


def _named_in(job: Job, entity: str) -> Sequence[PartitionRef]:
    """Partitions of a job by the name of an entity; some may not be declared any more."""
    refs = [each.part.ref for each in job.parts]
    found = [ref for ref in refs if entity in (str(ref), ref.entity, own_name(ref.entity))]
    if not found:
        raise Missing(f"job {job.id} is not on {entity!r}", hint=f"It is on: {', '.join(map(str, refs)) or 'nothing'}.")
    return found


def _answer(each: SliceView) -> Slice:
    return Slice(
        ref=each.ref,
        index=each.number,
        id=each.id,
        bucket=each.bucket,
        state=each.state,
        units=each.units,
        work=each.work,
        attempts=each.attempts,
        worker=each.worker_id,
        claimed_at=each.claimed_at,
        finished_at=each.finished_at,
        error=each.error,
    )
