"""`instep checkpoints`: checkpoints of partitions and slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from instep.cli.options import EntityOption, JsonOption, NamespaceOption, ProjectOption
from instep.cli.output import Output
from instep.telemetry.texts import id_text, moment_text

if TYPE_CHECKING:
    from instep.answers.checkpoints import Checkpoint


def checkpoints(
    entities: EntityOption = None,
    namespaces: NamespaceOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List checkpoints: up to when partitions are indexed.

    Slices of builds in work are listed too.

    A checkpoint is called global.User or ns.42/9970.MergeRequest, and that of a slice ns.42/9970.MergeRequest.p3of5.

    \b
    Examples:
      instep checkpoints
      instep checkpoints --entity MergeRequest --namespace 42/9970 --json
    """
    from instep.app import load

    found = load(project).checkpoints(entities, namespaces or ())
    out = Output(as_json=as_json)
    out.result(found, lambda: _show(out, found))


def _show(out: Output, found: Sequence[Checkpoint]) -> None:
    if not found:
        out.line("No checkpoints: nothing is indexed yet.")
        return
    rows = [
        [
            each.key,
            each.state,
            None if each.watermark is None else moment_text(each.watermark // 1_000),
            id_text(each.job),
            each.generation or None,
            each.version,
            each.error,
        ]
        for each in found
    ]
    columns = ["checkpoint", "state", "as of", "job", "generation", "version", "error"]
    # What nothing is in does not take room.
    shown = [place for place in range(len(columns)) if place < 4 or any(row[place] is not None for row in rows)]
    out.table(None, [columns[place] for place in shown], [[row[place] for place in shown] for row in rows])
