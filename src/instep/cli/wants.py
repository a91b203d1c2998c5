"""`instep wants`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output, ago_text, id_text, refs_text
from instep.cli.times import when_text
from instep.domain.refs import PartitionRef

if TYPE_CHECKING:
    from instep.requests.wants import WantView


def wants(
    ref: Annotated[
        str | None, typer.Argument(metavar="[REF]", help="Of this partition only.", show_default=False)
    ] = None,
    ended: Annotated[bool, typer.Option("--all", help="Those that have ended, too.", show_default=False)] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most wants to list.")] = 100,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who waits for which partitions, newest first.

    Idle: nobody works on it yet. Building: a job does. UpstreamBuilding: it waits for what it is made from.

    \b
    Examples:
      instep wants
      instep wants Document --all
      instep wants --json
    """
    from instep.app import load

    found = load(project).wants(ref, ended=ended, limit=limit)
    out = Output(as_json=as_json)
    out.result([each.as_dict() for each in found], lambda: _show(out, found, ended=ended))


def _show(out: Output, found: Sequence[WantView], *, ended: bool) -> None:
    if not found:
        out.line("No wants." if ended else "Nothing is waited for. Those that have ended: instep wants --all")
        return
    rows = [
        [
            id_text(each.want.id),
            str(each.want.state),
            refs_text([PartitionRef.parse(ref) for ref in each.want.refs], each.want.generation),
            "any" if each.want.needed is None else when_text(each.want.needed, each.seen_at),
            ago_text(each.want.created_at, each.seen_at),
            each.want.by.partition(" ")[0] or None,
        ]
        for each in found
    ]
    # Six narrow columns: they fit in a terminal of 80.
    out.table(None, ["want", "state", "entities", "as of", "asked", "by"], rows)
    for each in found:
        if each.want.error:
            out.line(f"{id_text(each.want.id)}: {each.want.error}")
    if any(each.startable for each in found):
        out.line("What is Idle is built by the next `instep run` or worker.")
