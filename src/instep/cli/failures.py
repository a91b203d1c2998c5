"""`instep failures`: documents and rows that could not be indexed."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.options import EntitiesArgument, JsonOption, ProjectOption
from instep.cli.output import Output
from instep.cli.status import time_text
from instep.domain.refs import generation_text


def failures(
    entities: EntitiesArgument = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most failures to list.")] = 100,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List documents that could not be indexed, newest first, with stage and reason.

    They are tried again when they change, or by `instep run --retry-failures`.

    \b
    Examples:
      instep failures
      instep failures Document --limit 10 --json
    """
    from instep.app import load

    found = load(project).failures(entities, limit=limit)
    out = Output(as_json=as_json)

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
