"""`instep expire`."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.invalidation_output import show_left
from instep.cli.options import GenerationOption, JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.user import user_text
from instep.errors import UserError


def expire(
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REF]...",
            help="Partitions such as Document; by default those past their time to live.",
            show_default=False,
        ),
    ] = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """End what is past its time to live (`ttl` of an entity), or what is named.

    Runs look for that too: this is for those who want it now, or before its time. The next `instep run` builds it
    anew, beside what is served.

    \b
    Examples:
      instep expire
      instep expire Document --json
    """
    from instep.app import load

    if generation is not None and not refs:
        raise UserError("which partition's generation?", hint="Name it: instep expire Document --generation v2")
    done = load(project).expire(refs, generation=generation, by=user_text())
    out = Output(as_json=as_json)

    def show() -> None:
        if not done:
            out.line("Nothing is past its time to live.")
        for left in done:
            show_left(out, left, "has expired")

    out.result([left.as_dict() for left in done], show)
