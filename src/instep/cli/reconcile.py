"""`instep reconcile`: compare the keys of tables with their indexes, and repair what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.exit_codes import ExitCode, report
from instep.cli.options import (
    AllowDeletesOption,
    EntitiesArgument,
    GenerationOption,
    JsonOption,
    ProjectOption,
    QuietOption,
)
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.domain.texts import amount
from instep.telemetry.texts import ref_text

if TYPE_CHECKING:
    from instep.answers.reconciliations import Reconciliation

#: So many keys of a kind are named for people; JSON has more.
_NAMED = 5


def reconcile(
    entities: EntitiesArgument = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare only. Exits with 2 when they differ.", show_default=False)
    ] = False,
    allow_deletes: AllowDeletesOption = False,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare keys of tables with their indexes, and repair.

    What differs is repaired by a job. Exits as `instep run` does.

    It finds what watermarks cannot show. Gone: rows that were deleted for good in the source; they are deleted, unless
    they are suspiciously many. Missing, behind: rows that came too late, or that the index has lost; they are read
    again. Ahead: rows whose watermark is earlier than it was; only instep run --full-refresh replaces those.

    Keys and watermarks are read on both sides, and nothing else: as sums by ranges of hashes first, then those of the
    ranges that differ. Documents are compared by instep diff.

    \b
    Examples:
      instep reconcile
      instep reconcile Ticket --dry-run
      instep reconcile Ticket@42/9970 --allow-deletes
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=quiet)
    opened = load(project)
    if not dry_run:
        from instep.cli.run import finish

        with terminate_like_ctrl_c(), out.progress() as progress:
            results = opened.reconcile(entities, allow_deletes=allow_deletes, generation=generation, progress=progress)
        for each in results:
            out.line(f"{ref_text(each.ref, each.generation)}: {', '.join(each.plan.found.why)}")
        finish(out, results)
        return
    with out.progress() as progress:
        found = opened.reconciliations(entities, generation=generation, progress=progress)
    out.result(found, lambda: _show(out, found))
    codes = [report(each.error, as_json=False) for each in found if each.error]
    if codes:
        raise typer.Exit(min(codes))
    if any(each.differs for each in found):
        raise typer.Exit(ExitCode.CHANGES)


def _show(out: Output, found: Sequence[Reconciliation]) -> None:
    compared = [each for each in found if each.found is not None]
    kinds = list(compared[0].found or ()) if compared else []
    rows = [
        [ref_text(each.ref, each.generation or ""), each.rows, each.keys, *((each.found or {})[kind] for kind in kinds)]
        for each in compared
    ]
    out.table(None, ["entity", "rows", "keys", *kinds], rows)
    for each in compared:
        name = ref_text(each.ref, each.generation or "")
        for kind, keys in (each.examples or {}).items():
            if keys:
                more = (each.found or {})[kind] - len(keys[:_NAMED])
                out.line(f"{name}: {kind} {', '.join(keys[:_NAMED])}{f' and {more:,} more' if more else ''}")
        if each.coming:
            out.line(f"{name}: {amount(each.coming, 'row')} of these came since the last run, which reads them")
        if each.failed:
            out.line(f"{name}: {amount(each.failed, 'row')} not indexed, since they failed: instep failures")
    if any(each.differs for each in compared):
        out.line("Repair it with: instep reconcile")
