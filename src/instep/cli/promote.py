"""`instep promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption, RefArgument
from instep.cli.output import Output, id_text, ref_text
from instep.cli.user import user_text


def promote(
    ref: RefArgument,
    generation: Annotated[
        str,
        typer.Option(
            "--generation", metavar="NAME", help="Which one; '' is the one without a name.", show_default=False
        ),
    ],
    allow_deletes: Annotated[
        bool, typer.Option("--allow-deletes", help="However much less is in it.", show_default=False)
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Though nothing is in it.", show_default=False)
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have everybody read another generation, from one moment to the next.

    `instep run --generation NAME` builds it first, beside what is read now. It is looked at as at the end of every
    build, some documents being read back: what is empty, tainted, lacks too many documents or is not what was recorded
    is refused. The generation that was read before stays, so that this can be taken back. Exits with 75 while a job
    works on the entity.

    \b
    Examples:
      instep promote Document --generation v2
      instep promote Document --generation ''        back to the one without a name
    """
    from instep.app import load

    done = load(project).promote(ref, generation, allow_deletes=allow_deletes, allow_empty=allow_empty, by=user_text())
    out = Output(as_json=as_json)

    def show() -> None:
        name = ref_text(done.ref, done.generation)
        if not done.changed:
            out.line(f"{name} is what is read already: instance {id_text(done.instance)}.")
            return
        out.line(
            f"{name} is read from now on: instance {id_text(done.instance)}. Before: {ref_text(done.ref, done.before)}."
        )

    out.result(done.as_dict(), show)
