"""`instep cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output, id_text
from instep.cli.user import user_text


def cancel(
    want_id: Annotated[
        str,
        typer.Argument(metavar="WANT", help="The want's id, or its beginning; see `instep wants`.", show_default=False),
    ],
    why: Annotated[str, typer.Option(metavar="TEXT", help="Kept with the want.", show_default=False)] = "",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a want back.

    Nobody builds for it any more. A job that is at it already goes on: `instep job stop` stops that.

    \b
    Examples:
      instep cancel 1f0c
      instep cancel 1f0c --why "asked twice" --json
    """
    from instep.app import load

    found = load(project).cancel_want(want_id, by=user_text(), why=why)
    out = Output(as_json=as_json)
    jobs = dict.fromkeys(each.worked_on_by for each in found.current if each is not None and each.worked_on_by)

    def show() -> None:
        out.line(f"Want {id_text(found.want.id)} is canceled.")
        for job in jobs:
            out.line(f"Job {id_text(str(job))} goes on. Stop it: instep job stop {id_text(str(job))}")

    out.result(found.as_dict(), show)
