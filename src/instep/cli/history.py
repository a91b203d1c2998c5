"""`instep history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption, RefArgument
from instep.cli.output import Output, id_text
from instep.cli.times import moment_text, when_text
from instep.domain.fingerprint import changed_parts, digest

if TYPE_CHECKING:
    from instep.domain.instances import Instance


def history(
    ref: RefArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most instances to list.")] = 20,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every instance of a partition, newest first: how it was made, and how it ended.

    An instance is one build; the window is what its last job looked at. Whole ids, and all that is known
    of each, are in the JSON.

    \b
    Examples:
      instep history Document
      instep history Document@global --limit 5 --json
    """
    from instep.app import load
    from instep.entities.instances import instance_dict

    found = load(project).history(ref, limit=limit)
    out = Output(as_json=as_json)
    out.result([instance_dict(each) for each in found], lambda: _show(out, found))


def _show(out: Output, found: Sequence[Instance]) -> None:
    if not found:
        out.line("No instances: it has not been built yet. `instep run` builds it.")
        return
    rows = [
        [
            id_text(each.uuid),
            f"{each.state} (left)" if each.left and each.usable else str(each.state),
            f"{each.reason} ({each.generation})" if each.generation else str(each.reason),
            id_text(each.job) if each.job else None,
            None if each.watermark is None else when_text(each.watermark, found[0].created_at),
            id_text(each.previous) if each.previous else None,
        ]
        for each in found
    ]
    # Six narrow columns: they fit in a terminal of 80.
    out.table(None, ["instance", "state", "made for", "job", "as of", "previous"], rows)
    known = {each.uuid: each for each in found}
    for each in found:
        for line in _details(each, known.get(each.previous or "")):
            out.line(line)


def _details(each: Instance, previous: Instance | None) -> list[str]:
    from instep.entities.instances import ending

    how = ending(each)
    ended = f"ended {moment_text(each.ended_at)}: {how}" if how and each.ended_at is not None else None
    parts = [_window(each), _code(each, previous), ended]
    texts = [text for text in parts if text]
    name = id_text(each.uuid)
    return [f"{name if place == 0 else ' ' * len(name)}  {text}" for place, text in enumerate(texts)]


def _window(each: Instance) -> str | None:
    if each.target is None:
        return None
    since = f"after {moment_text(each.floor)}, " if each.floor else ""
    return f"window {since}up to {moment_text(each.target)}{_refreshes(each)}"


def _refreshes(each: Instance) -> str:
    if each.refreshed_by is None:
        return ""
    job = id_text(each.refreshed_by)
    if each.state == "Refreshing":
        return f", job {job} refreshes it"
    return f", refreshed by job {job}" if each.refreshes < 2 else f", refreshed {each.refreshes:,} times, last by {job}"


def _code(each: Instance, previous: Instance | None) -> str | None:
    """The fingerprint and the commit, and what changed in the fingerprint since the instance before."""
    if each.fingerprint is None:
        return None
    text = f"fingerprint {id_text(digest(dict(each.fingerprint)))}"
    if each.revision:
        text += f", revision {id_text(each.revision)}{'+' if each.revision.endswith('+') else ''}"
    if previous is None or previous.fingerprint is None:
        return text
    changed = changed_parts(each.fingerprint, previous.fingerprint)
    return f"{text}, {', '.join(changed)} changed" if changed else text
