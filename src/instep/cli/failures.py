"""`instep failures`: documents and rows that could not be indexed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import EntitiesArgument, JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.status import time_text
from instep.domain.refs import generation_text
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.answers.overview import Failure


def failures(
    entities: EntitiesArgument = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of failures to list.")] = 100,
    dismiss: Annotated[
        list[str] | None,
        typer.Option(
            "--dismiss",
            metavar="DOCUMENT",
            help="Forget the failure of this document, or of all with this prefix (PREFIX*). May be repeated.",
            show_default=False,
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List documents that could not be indexed, and why.

    Newest first, with the stage at which each failed.

    They are tried again when they change, or by `instep run --retry-failures`. --dismiss forgets failures that nobody
    is going to mend, such as a message that names no document: it is not tried again before it changes, or all is read
    again (--full-refresh). If it fails again, it is listed again.

    \b
    Examples:
      instep failures
      instep failures Document --limit 10 --json
      instep failures Ticket --dismiss kafka:/tickets/0/4711
      instep failures Ticket --dismiss 'kafka:/tickets/*'
    """
    from instep.app import load

    opened, out = load(project), Output(as_json=as_json)
    if dismiss:
        _dismissed(out, opened.dismiss_failures(dismiss, entities), dismiss)
        return
    found = opened.failures(entities, limit=limit)

    def show() -> None:
        if not found:
            out.line("No failures.")
            return
        rows = [
            [
                generation_text(each.ref, each.generation),
                each.uri,
                each.stage,
                each.reason,
                each.attempts,
                time_text(each.failed_at),
            ]
            for each in found
        ]
        out.table(None, ["entity", "document", "stage", "reason", "tries", "last"], rows)

    out.result(found, show)


def _dismissed(out: Output, found: Sequence[Failure], asked: Sequence[str]) -> None:
    if not found:
        raise UserError(
            f"there is no failure of {', '.join(asked)}",
            hint="Name documents as `instep failures` lists them; a * at the end stands for any ending.",
        )

    def show() -> None:
        for each in found:
            out.line(f"{generation_text(each.ref, each.generation)}: {each.uri} is dismissed.")

    out.result(found, show)
