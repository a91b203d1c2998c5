"""`instep gc`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.times import duration_value
from instep.domain.amounts import amount


def gc(
    keep: Annotated[
        int,
        typer.Option("--keep", metavar="DURATION", parser=duration_value, help="Keep what is younger, such as `30d`."),
    ] = "30d",  # type: ignore[assignment]  # Typer parses defaults too, and shows them as they are written.
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget instances that were left, and wants that have ended, long ago.

    What is canonical or served stays, and what a job or an open want uses, and what any of those that stay was made
    from. Events stay in the log. Indexes are not touched: runs drop those that are not served any more by themselves.

    \b
    Examples:
      instep gc --dry-run
      instep gc --keep 7d
    """
    from instep.app import load

    found = load(project).gc(keep=timedelta(milliseconds=keep), dry_run=dry_run)
    out = Output(as_json=as_json)

    def show() -> None:
        if found.empty:
            out.line("Nothing is old enough.")
            return
        for ref, number in found.by_ref.items():
            out.line(f"{ref}: {amount(number, 'instance')}")
        done = "Forgotten" if found.collected else "To be forgotten"
        out.line(f"{done}: {amount(len(found.instances), 'instance')}, {amount(len(found.wants), 'want')}.")

    out.result(found.as_dict(), show)
