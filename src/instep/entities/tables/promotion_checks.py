"""Promotion checks of a table: no row that was read may be missing, and not too many may be gone at once."""

from __future__ import annotations

from typing import Final

from instep.domain.jobs import Job, JobPart, JobState, SliceState
from instep.domain.promotion_rules import EMPTY, NEEDED, NO_LOSS, Judged, Loss, nothing_written
from instep.domain.settings import allows_empty
from instep.domain.texts import duration_text
from instep.entities.plan_request import Refusal
from instep.entities.tables.adapters import TableAdapters
from instep.entities.tables.reconciling import not_replaced
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

_ENDED: Final = (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS)


def problem(setup: TableAdapters, part: JobPart, ledger: Ledger, job: Job) -> str | None:
    """See `EntitySetup.problem`."""
    status = job.part(part.ref)
    failed = status.slices.get(SliceState.FAILED, 0) + status.slices.get(SliceState.CANCELLED, 0)
    if failed:
        return f"{failed:,} of its slices are not done, so its watermark does not advance"
    return _built(setup, part, ledger, job) if part.fresh else None


def _built(setup: TableAdapters, part: JobPart, ledger: Ledger, job: Job) -> str | None:
    """Check a build of all rows before it replaces the served ones."""
    status = job.part(part.ref)
    counts = status.counts
    if counts.read and counts.failed == counts.read:
        return "every row failed; see `instep failures`"
    checkpoint = ledger.checkpoints.get(part.ref, part.generation)
    verdict = Judged(counts.read - counts.deleted, counts.failed, "rows", setup.needed)
    if checkpoint and not verdict.enough:
        return f"{verdict}; the served index stays"
    allowed, empty = bool(job.configuration.get("allow_deletes")), allows_empty(job.configuration, str(part.ref))
    nothing = nothing_written(status.units, counts.read - counts.deleted, counts.written, setup.unit)
    if checkpoint is None and nothing and not empty:
        return nothing
    found = (_in_place if setup.in_place else _staged)(setup, part, ledger, counts.written, checkpoint)
    if isinstance(found, str) or found is None:
        return found
    served, stored = found
    before = ledger.losses.lately(part.ref, part.generation, window=setup.guard.window) if stored < served else NO_LOSS
    lost = _lost(setup, served, stored, before.units, allowed=allowed, empty=empty)
    if lost is None and stored < served:
        ledger.losses.count(part, Loss(units=served - stored), job_id=job.id)
    return lost


def _staged(
    setup: TableAdapters, part: JobPart, ledger: Ledger, written: int, checkpoint: Checkpoint | None
) -> str | tuple[int, int] | None:
    """Compare the target's rows with those written. Returns the problem, or the number of rows served now and then."""
    stored = setup.target.rows(part.physical)
    if stored > written:
        return f"the target holds {stored:,} rows where {written:,} were written: something else writes to it"
    if stored < _fewest(part, ledger, written):
        return _few_keys(written, stored)
    return (_served(setup, checkpoint), stored) if checkpoint else None


def _in_place(
    setup: TableAdapters, part: JobPart, ledger: Ledger, written: int, checkpoint: Checkpoint | None
) -> str | tuple[int, int] | None:
    """Check a build in place: compare the rows written with those to be swept, before the sweep. After a crash in
    between, the next finisher finds no difference.
    """
    path = setup.ref.scope.path
    mine, others = setup.target.held(part.physical, part.instance, prefix=path)
    lacking = written - mine if others else 0
    if lacking > 0 and _several_files(part, ledger):
        # Most of these may be earlier versions of rows. What must not be swept is what the source has.
        lacking = not_replaced(setup, ledger, part)
    if lacking > 0:
        return (
            f"{lacking:,} of {written:,} rows that were read did not replace what is stored: either the source "
            "is older than that (a restored backup?), or several rows have one `key`. Nothing was removed. If the "
            f"source is right: instep namespace delete {setup.ref.scope}, and run again"
        )
    if mine < _fewest(part, ledger, written):
        return f"{_few_keys(written, mine)} {_restored(setup)}"
    if checkpoint is None:
        return None
    served = mine + others
    if checkpoint.physical != part.physical:
        stands = setup.target.exists(checkpoint.physical)
        served = sum(setup.target.held(checkpoint.physical, part.instance, prefix=path)) if stands else 0
    return served, mine


def _fewest(part: JobPart, ledger: Ledger, written: int) -> float:
    """The number of keys that so many rows have at least, if `key` is right."""
    return 0.0 if _several_files(part, ledger) else NEEDED * written


def _few_keys(written: int, stored: int) -> str:
    return f"of {written:,} rows only {stored:,} have keys of their own: is `key` right?"


def _restored(setup: TableAdapters) -> str:
    return (
        "Or rows were deleted here that are in the source again, with earlier watermarks: then instep namespace delete "
        f"{setup.ref.scope}, and run again"
    )


def not_taken(setup: TableAdapters, part: JobPart, ledger: Ledger) -> list[str]:
    """Note, after a build, rows that were read and are not in the index, if they are too few to refuse it."""
    own = setup.tables()[0]
    job = ledger.jobs.latest(part.ref) if part.fresh and not (own.start or own.end) else None
    status = job.part(part.ref) if job else None
    if status is None or status.part.instance != part.instance or status.state not in _ENDED:
        return []
    if setup.in_place:
        stored, _ = setup.target.held(part.physical, part.instance, prefix=setup.ref.scope.path)
    else:
        stored = setup.target.rows(part.physical)
    lacking = status.counts.written - stored
    if lacking <= 0:
        return []
    rows = "1 row that was read is" if lacking == 1 else f"{lacking:,} rows that were read are"
    if files := _several_files(part, ledger):
        told = f"warning: {rows} not in the index: other rows, or later versions of them, have the same key."
        # Were each key in a file once, there would be no fewer keys.
        repeated = files * (stored + status.counts.deleted) < NEEDED * status.counts.written
        return [f"{told} Some have more rows than there are files: is `key` right?" if repeated else told]
    more = f" {_restored(setup)}" if setup.in_place else ""
    return [f"warning: {rows} not in the index: other rows have the same key.{more}"]


def _several_files(part: JobPart, ledger: Ledger) -> int:
    """The number of files, if these are several, which may each have a version of a row; else 0."""
    seen = ledger.seen.of_instance(part)
    files = len(seen.files.numbers) if seen and seen.files else 0
    return files if files > 1 else 0


def _served(setup: TableAdapters, checkpoint: Checkpoint) -> int:
    return setup.target.rows(checkpoint.physical) if setup.target.exists(checkpoint.physical) else 0


def _lost(setup: TableAdapters, served: int, stored: int, before: int, *, allowed: bool, empty: bool) -> str | None:
    """The reason why so many rows must not be lost, or None. `before`: rows lost recently."""
    lost = served - stored
    if served and not stored:
        return None if empty else EMPTY
    if allowed or not setup.guard.refuses(lost, served, before):
        return None
    lately = f", and {before:,} more in the last {duration_text(setup.guard.window)}" if before else ""
    return (
        f"{lost:,} of {served:,} rows are gone from the source{lately}; more than {setup.guard.share:.0%} at once is "
        "left out only with --allow-deletes"
    )


def too_much(setup: TableAdapters, part: JobPart, ledger: Ledger, lost: int) -> Refusal | None:
    """See `EntitySetup.too_much`. A row that moves out is a loss: a rebuild sees only that it is gone."""
    if not lost:
        return None
    served = sum(setup.target.held(part.physical, part.instance, prefix=setup.ref.scope.path))
    before = ledger.losses.lately(part.ref, part.generation, window=setup.guard.window).units
    if not setup.guard.refuses(lost, served, before):
        return None
    lately = f", and {before:,} more are gone in the last {duration_text(setup.guard.window)}" if before else ""
    gone = "have moved to a namespace that is not indexed"
    if setup.reads_here:
        gone = "are gone, or have moved to another namespace"
    return Refusal(
        f"{lost:,} of {served:,} rows {gone}{lately}: so many are not deleted without permission. "
        f"Has the column {setup.rows.scope!r} changed its meaning?"
    )


def not_better(
    setup: TableAdapters, checkpoint: Checkpoint, served: Checkpoint, *, allowed: bool, empty: bool
) -> str | None:
    """See `EntitySetup.not_better`."""
    stored = setup.target.rows(checkpoint.physical)
    return _lost(setup, _served(setup, served), stored, 0, allowed=allowed, empty=empty)
