"""`instep why`: origin of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import AsOption, GenerationOption, JsonOption, ProjectOption
from instep.cli.output import Output
from instep.domain.texts import duration_text
from instep.telemetry.texts import id_text, moment_text, state_text

if TYPE_CHECKING:
    from instep.answers.instances import Instance
    from instep.answers.why import Provenance, WrittenBy


#: More of them are only in the JSON.
_MOST_WANTS = 5


def why(
    place: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] ROW-ID",
            help="Name of a target or an entity (left out: any document). A chunk_id, a document_id or a source URI, "
            "as `instep search` shows them, or the path of a file. Of a table: the key of the row, its columns joined "
            "by commas.",
            show_default=False,
        ),
    ],
    as_: AsOption = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the origin of a row: instance, job, wants, source.

    Of the source it shows the version of the file, or the slice of the table.

    Where there is no row it says whether it failed, is left out, or was never seen.

    \b
    Examples:
      instep why docs/guide.md
      instep why index CHUNK-ID --json
      instep why MergeRequest 17
    """
    from instep.app import load

    app = load(project)
    *named, row_id = place
    if len(named) > 1:
        raise typer.BadParameter("takes a target and a row, or a row alone")
    if not named and row_id in (*app.project.targets, *app.project.own_names):
        raise typer.BadParameter(f"names no row of {row_id}")
    found = app.why(named[0] if named else None, row_id, principals=as_ or (), generation=generation)
    kept = _days(app.project.retention)
    out = Output(as_json=as_json)

    def show() -> None:
        for name, text in _facts(found, kept):
            out.line(f"{name:<12}{text}")

    out.result(found, show)


def _facts(found: Provenance, kept: str) -> Iterator[tuple[str, str]]:
    row = found.row
    yield from _row(found) if "key" in row else _document(found)
    yield "target", f"{found.target}, index {found.physical}"
    yield "instance", f"{row['instance']} of {row['ref']}"
    if found.instance is None:
        yield "", "no longer known: it was collected"
    else:
        yield "", instance_text(found.instance)
    yield "job", _job(found.job) if found.job else _unknown(found.forgotten, kept)
    if not row.get("certain", True):
        yield "", "or a later one: rows came late, or in files with rows of any watermark"
    if found.window is not None:
        since = moment_text(found.window.floor) if found.window.floor else None
        yield "window", f"{f'after {since}, ' if since else ''}up to {moment_text(found.window.target)}"
    elif found.job is not None and found.instance is not None and "chunk_id" in row:
        yield "window", f"forgotten (retention: {kept})"
    if found.version is not None:
        yield "source", f"as of version {found.version} of its table"
    if found.job is not None:
        parts = ", ".join(f"{name} {value}" for name, value in sorted(found.job.fingerprint.items()))
        yield "fingerprint", parts or "none"
        yield "revision", found.job.revision or "none: the project is not under version control"
    for want in found.wants[:_MOST_WANTS]:
        yield "wanted", f"{id_text(want.id)}{f' by {want.by}' if want.by else ''}, {moment_text(want.created_at)}"
    if len(found.wants) > _MOST_WANTS:
        yield "", f"and {len(found.wants) - _MOST_WANTS:,} more; --json lists them"
    for each in found.inputs:
        known = f"{each.instance.ref}, {instance_text(each.instance)}" if each.instance else "collected"
        yield "made from", f"{each.uuid}: {known}"


def _document(found: Provenance) -> Iterator[tuple[str, str]]:
    row, document = found.row, found.document
    yield "row", f"chunk {row['chunk_index']} of {row['source_uri']}"
    yield "", f"chunk_id {row['chunk_id']}"
    yield "file", f"version {row['source_version']}, SHA-256 {row['document_hash']}"
    if document is not None and not document["document_hash"]:
        yield "", "an older version is indexed, and the newer one is not: see instep failures"
    elif document is not None and document["document_hash"] != row["document_hash"]:
        yield "", "changed since, but not in this chunk:"
        yield "", f"version {document['version']}, SHA-256 {document['document_hash']}"
    if found.job is None:
        yield "", f"written under epoch {row['version']}"


def _row(found: Provenance) -> Iterator[tuple[str, str]]:
    yield "row", ", ".join(f"{name} {value}" for name, value in found.row["key"].items())
    if found.row["watermark"]:
        yield "changed", moment_text(found.row["watermark"] // 1_000)
    if versions := found.row.get("versions"):
        since = "all rows of" if versions["since"] is None else f"changed after {versions['since']}, up to"
        yield "versions", f"{since} {versions['until']}"
    rows = found.slice
    if rows is not None and rows["count"] > 1:
        bounds = [f"from {_key(rows['from'])} on"] if rows["from"] else []
        bounds += [f"below {_key(rows['below'])}"] if rows["below"] else []
        place = f"{rows['index'] + 1:,} of {rows['count']:,}"
        yield "slice", f"{place}: {', '.join(rows['columns'])} {' and '.join(bounds)}"


def _key(values: Sequence[object]) -> str:
    return f"({', '.join(map(repr, values))})"


def _days(retention: int) -> str:
    """A retention as it is mostly written: 30d, and not 4w 2d."""
    days, rest = divmod(retention, 24 * 3_600_000)
    return duration_text(retention) if rest else f"{days}d"


def _unknown(forgotten: int | None, kept: str) -> str:
    if forgotten is None:
        return "not known any more"
    return f"before {moment_text(forgotten + 1)}: forgotten (retention: {kept})"


def _job(job: WrittenBy) -> str:
    return f"{job.id}, {state_text(job.state)}, {moment_text(job.finished_at or job.created_at)}"


def instance_text(instance: Instance) -> str:
    """State, reason and age of an instance, in a few words."""
    generation = f", generation {instance.generation}" if instance.generation else ""
    fresh = f", complete up to {moment_text(instance.watermark)}" if instance.watermark is not None else ""
    state = f"{instance.state}, left" if instance.left and instance.usable else str(instance.state)
    return f"{state}, made for: {instance.reason}{generation}{fresh}"
