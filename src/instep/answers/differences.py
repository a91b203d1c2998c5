"""Compare targets with source and ledger. A target that cannot be reached does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from instep.answers.answer import HIDDEN, OBJECT, OPTIONAL, Answer, Ref
from instep.domain.discrepancies import Discrepancy
from instep.entities.documents import differences
from instep.entities.documents.differences import Differences, Example
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import generation_of
from instep.errors import InstepError, UserError
from instep.jobs.target_order import problem_of
from instep.ledger.ledger import Ledger
from instep.telemetry.progress import Progress


class Number(Answer):
    documents: int
    rows: int


class DifferingDocument(Answer):
    """A document that differs, and the number of its `rows` that differ in this way. `pending`: the next run indexes a
    change of it; `failed`: it failed at the last try. If it is altered, the numbers of rows with another text, title or
    vector.
    """

    document_id: str
    uri: str
    kind: Discrepancy
    rows: int
    pending: bool
    failed: bool
    texts: int | None = OPTIONAL
    titles: int | None = OPTIONAL
    vectors: int | None = OPTIONAL
    columns: int | None = OPTIONAL


class Comparison(Answer):
    """The differences of one partition between target, source and ledger, or a `problem` if they are not known (then
    the rest is left out). `found` are numbers of documents; `documents` has the first 10,000 of them.
    """

    ref: Ref
    generation: str | None = OPTIONAL
    target: str | None = OPTIONAL
    physical: str | None = OPTIONAL
    rows: int | None = OPTIONAL
    served: bool | None = OPTIONAL
    differs: bool | None
    found: dict[str, Number] | None = OPTIONAL
    pending: dict[str, int] | None = OPTIONAL
    documents: tuple[DifferingDocument, ...] | None = OPTIONAL
    problems: tuple[str, ...] | None = OPTIONAL
    unread: int | None = OPTIONAL
    problem: str | None = None
    differences: Annotated[Differences | None, OBJECT] = HIDDEN
    error: Annotated[UserError | None, OBJECT] = HIDDEN


def compare(
    setups: Sequence[DocumentSetup],
    ledger: Ledger,
    generation: str | None,
    progress: Progress,
    *,
    deep: bool = False,
) -> list[Comparison]:
    """Compare the partitions in a generation, or in the promoted one. Raises the error that prevents the comparison of
    the only partition.
    """
    found = []
    for setup in setups:
        label = setup.ref.label
        progress.say(label, f"comparing with target {setup.target_name!r}")
        try:
            seen = differences.compare(
                setup,
                ledger,
                generation_of(ledger, setup.ref, generation),
                listing=partial(progress.listing, label),
                deep=deep,
            )
        except InstepError as error:
            if len(setups) == 1:
                raise
            problem = problem_of("cannot be compared", setup.ref, error)
            found.append(Comparison(ref=setup.ref, differs=None, problem=str(problem), differences=None, error=problem))
        else:
            found.append(_answer(seen))
    return found


def _answer(seen: Differences) -> Comparison:
    return Comparison(
        ref=seen.ref,
        generation=seen.generation,
        target=seen.target,
        physical=seen.physical,
        rows=seen.rows,
        served=seen.served,
        differs=seen.differs,
        found={str(kind): Number(**number._asdict()) for kind, number in seen.found.items()},
        pending=dict(seen.pending),
        documents=tuple(map(_document, seen.examples)),
        problems=tuple(seen.problems),
        unread=seen.unread,
        differences=seen,
        error=None,
    )


def _document(seen: Example) -> DifferingDocument:
    found = DifferingDocument(**seen.document._asdict(), pending=seen.pending, failed=seen.failed)
    if seen.unlike is None:
        return found
    counted = seen.unlike._asdict()
    return found.model_copy(update={name: counted[name] for name in ("texts", "titles", "vectors", "columns")})
