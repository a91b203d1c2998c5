"""`instep diff`: compare targets with source and ledger, and repair them."""

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
from instep.domain.discrepancies import Discrepancy
from instep.domain.texts import amount
from instep.telemetry.texts import ref_text

if TYPE_CHECKING:
    from instep.answers.differences import Comparison
    from instep.entities.documents.differences import Differences, Example

#: So many documents are named for people; JSON names more.
_NAMED = 20


def diff(
    entities: EntitiesArgument = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair the differences by a job, and do nothing else.", show_default=False)
    ] = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Also compare texts, titles, vectors and columns with the source as it is now.",
            show_default=False,
        ),
    ] = False,
    allow_deletes: AllowDeletesOption = False,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare what targets really hold with source and ledger.

    Exits with 2 when they differ.

    Missing: an indexed chunk is not there. Stale: its id or hash is another one. Orphan: there are more chunks than
    were indexed, or rows of a document that was never indexed. Duplicate: a chunk is there twice. Changes of the source
    since the last run, and known failures, are listed apart. All rows are read, but neither texts nor vectors.

    With --deep these are compared too: all documents are read, cut and embedded again (vectors come from the cache, if
    they are there). Altered: the hash is right, but text, title or vector differ. It takes as long as a first build.

    With --repair it exits as `instep run` does. A repair reads the documents that differ again, and leaves changes of
    the source to the next run.

    \b
    Examples:
      instep diff
      instep diff Document --json
      instep diff Document --repair
      instep diff Document --deep
    """
    from instep.app import load

    if repair and deep:
        raise typer.BadParameter("--repair cannot repair what only --deep finds: use one of them", param_hint="--deep")
    out = Output(as_json=as_json, quiet=quiet)
    opened = load(project)
    if repair:
        from instep.cli.run import finish

        with terminate_like_ctrl_c(), out.progress() as progress:
            results = opened.repair(entities, allow_deletes=allow_deletes, generation=generation, progress=progress)
        for each in results:
            if why := each.plan.found.why:  # There is none of what could not be compared.
                out.line(f"{ref_text(each.ref, each.generation)}: {', '.join(why)}")
        finish(out, results)
        return
    with out.progress() as progress:
        found = opened.diff(entities, generation=generation, deep=deep, progress=progress)
    out.result(found, lambda: _show(out, found))
    codes = [report(each.error, as_json=False) for each in found if each.error]
    if codes:
        raise typer.Exit(min(codes))
    if any(each.differs for each in found):
        raise typer.Exit(ExitCode.CHANGES)


def _show(out: Output, found: Sequence[Comparison]) -> None:
    seen = [each.differences for each in found if each.differences]
    kinds = list(dict.fromkeys(kind for each in seen for kind in each.found)) or list(Discrepancy)[:4]
    rows = [
        [ref_text(each.ref, each.generation), each.rows, *(each.counts[kind] for kind in kinds), each.changes]
        for each in seen
    ]
    out.table(None, ["entity", "rows", *kinds, "pending"], rows)
    for each in seen:
        _show_documents(out, each)
    if any(each.mendable for each in seen):
        out.line("Numbers are documents. Repair them with: instep diff --repair")
    if any(each.counts.get(Discrepancy.ALTERED) for each in seen):
        out.line("A repair compares hashes. To replace altered rows that kept theirs: instep run --full-refresh")


def _show_documents(out: Output, seen: Differences) -> None:
    name = ref_text(seen.ref, seen.generation)
    for each in seen.examples[:_NAMED]:
        document, failed = each.document, "; it failed at the last try" if each.failed else ""
        what = f"{document.uri or document.document_id}{failed}{_in_what(each)}"
        out.line(f"  {document.kind:<10}{amount(document.rows, 'row'):<10} {what}")
    if (more := sum(seen.counts.values()) - _NAMED) > 0:
        out.line(f"  … and {more:,} more; --json names up to 10,000")
    if not seen.served:
        out.line(f"{name}: the alias in target {seen.target!r} does not point to the built index ({seen.physical})")
    if seen.changes:
        out.line(f"{name}: {amount(seen.changes, 'change')} of the source not indexed yet: instep run")
    if known := seen.pending["known_failures"]:
        out.line(f"{name}: {amount(known, 'known failure')}: instep failures")
    if seen.unread:
        out.line(f"{name}: {amount(seen.unread, 'document')} could not be read, so their text was not compared")
    for problem in seen.problems:
        out.line(f"{name}: the listing is not complete: {problem}")


def _in_what(seen: Example) -> str:
    if seen.unlike is None:
        return ""
    found = seen.unlike._asdict()
    del found["rows"]
    return f" ({', '.join(amount(number, name.removesuffix('s')) for name, number in found.items() if number)})"
