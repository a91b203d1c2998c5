"""`instep status`."""

from __future__ import annotations

from datetime import UTC, datetime

from instep.cli.options import EntitiesArgument, JsonOption, ProjectOption
from instep.cli.output import Output, ref_text


def status(entities: EntitiesArgument = None, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """What is served: state, size, age, failures, and what stands in the way.

    \b
    Examples:
      instep status
      instep status Document --json
    """
    from instep.app import load

    found = load(project).status(entities)
    out = Output(as_json=as_json)

    def show() -> None:
        rows = [
            [
                ref_text(each.ref),
                str(each.state),
                each.documents,
                each.rows,
                each.failures,
                time_text(each.watermark),
                str(each.job.state).lower().replace("_", " ") if each.job else None,
            ]
            for each in found
        ]
        out.table(None, ["entity", "state", "documents", "chunks", "failed", "as of", "last job"], rows)
        for each in found:
            for note in each.notes:
                out.line(f"{each.ref}: {note}")

    out.result([each.as_dict() for each in found], show)


def time_text(milliseconds: int | None) -> str | None:
    """Local time to the minute."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%m-%d %H:%M")
