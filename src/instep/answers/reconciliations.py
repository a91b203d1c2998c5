"""Compare the keys of tables with their indexes. A target that cannot be reached does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from instep.answers.answer import HIDDEN, OBJECT, OPTIONAL, Answer, Ref
from instep.entities.generations import generation_of
from instep.entities.tables.reconciling import Reconciled, reconcile
from instep.entities.tables.setup import TableSetup
from instep.errors import InstepError, UserError
from instep.jobs.target_order import problem_of
from instep.ledger.ledger import Ledger
from instep.telemetry.progress import Progress

#: Keys of each kind in an answer.
NAMED = 1_000


class Reconciliation(Answer):
    """The differences of one partition between source and index, or a `problem` if they are not known (then the rest is
    left out). `rows` are in the index, `keys` in the source. `found` are numbers by kind, `examples` some of their
    keys: `missing` in the index, `gone` from the source, `behind` or `ahead` of it by their watermark. `failed` rows
    are missing, and in the failure list; `coming` rows are newer than any that was seen: the next run reads them.
    """

    ref: Ref
    generation: str | None = OPTIONAL
    target: str | None = OPTIONAL
    physical: str | None = OPTIONAL
    rows: int | None = OPTIONAL
    keys: int | None = OPTIONAL
    differs: bool | None
    found: dict[str, int] | None = OPTIONAL
    examples: dict[str, tuple[str, ...]] | None = OPTIONAL
    failed: int | None = OPTIONAL
    coming: int | None = OPTIONAL
    problem: str | None = None
    error: Annotated[UserError | None, OBJECT] = HIDDEN


def reconciliations(
    setups: Sequence[TableSetup], ledger: Ledger, generation: str | None, progress: Progress
) -> list[Reconciliation]:
    """Compare the partitions in a generation, or in the promoted one. Raises the error that prevents the comparison of
    the only partition.
    """
    found = []
    for setup in setups:
        progress.say(setup.ref.label, f"comparing its keys with target {setup.target_name!r}")
        try:
            seen = reconcile(setup, ledger, generation_of(ledger, setup.ref, generation))
        except InstepError as error:
            if len(setups) == 1:
                raise
            problem = problem_of("cannot be compared", setup.ref, error)
            found.append(Reconciliation(ref=setup.ref, differs=None, problem=str(problem), error=problem))
        else:
            found.append(_answer(seen))
    return found


def _answer(seen: Reconciled) -> Reconciliation:
    kinds = {"missing": seen.missing, "gone": seen.gone, "behind": seen.behind, "ahead": seen.ahead}
    return Reconciliation(
        ref=seen.ref,
        generation=seen.generation,
        target=seen.target,
        physical=seen.physical,
        rows=seen.rows,
        keys=seen.keys,
        differs=seen.differs,
        found=seen.counts,
        examples={kind: tuple(keys[:NAMED]) for kind, keys in kinds.items()},
        failed=seen.failed,
        coming=seen.coming,
        error=None,
    )
