"""`instep taint`."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.invalidation_output import show_left
from instep.cli.options import GenerationOption, JsonOption, ProjectOption, RefArgument
from instep.cli.output import Output
from instep.cli.user import user_text


def taint(
    ref: RefArgument,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Kept in its history.", show_default=False)] = "",
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that what is there is wrong, and have it built anew.

    The next `instep run` builds everything again beside what is served, which stays until that is done. Wants that
    are not satisfied yet follow the new instance.

    \b
    Examples:
      instep taint Document --why "broken export of March"
      instep taint Document@global --json
    """
    from instep.app import load

    left = load(project).taint(ref, generation=generation, why=why, by=user_text())
    out = Output(as_json=as_json)
    out.result(left.as_dict(), lambda: show_left(out, left, "is tainted"))
