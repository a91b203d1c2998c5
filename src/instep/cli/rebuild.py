"""`instep rebuild`."""

from __future__ import annotations

from instep.cli.invalidation_output import show_left
from instep.cli.options import AllowEmptyOption, GenerationOption, JsonOption, ProjectOption, RefArgument
from instep.cli.output import Output
from instep.cli.user import user_text


def rebuild(
    ref: RefArgument,
    generation: GenerationOption = None,
    allow_empty: AllowEmptyOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a partition built anew, though nothing is wrong with it.

    It only asks: the next `instep run` builds, beside what is served. `instep run --full-refresh` does both at once.

    \b
    Examples:
      instep rebuild Document
      instep rebuild Document@global --json
      instep rebuild Person@42/9970 --allow-empty        all of its rows are gone, and that is right
    """
    from instep.app import load

    left = load(project).rebuild(ref, generation=generation, allow_empty=allow_empty, by=user_text())
    out = Output(as_json=as_json)
    out.result(left.as_dict(), lambda: show_left(out, left, "is to be replaced"))
