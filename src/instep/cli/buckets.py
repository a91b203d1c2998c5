"""`instep buckets|rebalance`: buckets of documents, and their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.completion import entity_names
from instep.cli.options import (
    AllowDeletesOption,
    AllowEmptyOption,
    EntitiesArgument,
    GenerationOption,
    JsonOption,
    ProjectOption,
    QuietOption,
)
from instep.cli.output import Output
from instep.cli.run import finish
from instep.cli.signals import terminate_like_ctrl_c
from instep.telemetry.texts import bytes_text, ref_text, seconds_text, span_text

if TYPE_CHECKING:
    from rich.text import Text

    from instep.answers.buckets import Bucket, Buckets


#: Columns of a full bar, and what fills it.
_BAR = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def buckets(
    entities: EntitiesArgument = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List buckets of documents: content, latency, pending changes.

    The latency is from when changes were planned until they were durable in target and ledger: the mean of what the
    ledger knows of this instance, and the longest. A bucket with more than 3 times the mean number of rows, and more
    than 1,000, is pointed out: one writer keeps all of it up to date.

    \b
    Examples:
      instep buckets
      instep buckets Document --json
    """
    from instep.app import load

    found = load(project).buckets(entities, generation=generation)
    out = Output(as_json=as_json)
    out.result(found, lambda: _show(out, found))


def _show(out: Output, found: Sequence[Buckets]) -> None:
    columns = ["bucket", "", "documents", "rows", "bytes", "latency", "longest", "pending", "oldest"]
    for view in found:
        most = max((each.rows for each in view.buckets), default=0)
        rows = [_row(each, most, view.seen_at) for each in view.buckets]
        right = [number != 1 for number in range(len(columns))]
        out.texts(columns, rows, title=ref_text(view.ref, view.generation), right=right)
        for warning in view.warnings:
            out.line(f"{ref_text(view.ref, view.generation)}: {warning}")


def _row(load: Bucket, most: int, now: int) -> list[Text]:
    from rich.text import Text

    return [
        Text(f"{load.bucket}"),
        Text(bar(load.rows, most), style="cyan"),
        Text(f"{load.documents:,}"),
        Text(f"{load.rows:,}"),
        Text(bytes_text(load.bytes)),
        Text(_time(load.latency)),
        Text(_time(load.longest)),
        Text(f"{load.pending:,}" if load.pending else "-"),
        Text("-" if load.pending_since is None else span_text(now - load.pending_since)),
    ]


def bar(value: int, most: int) -> str:
    """A bar as long as its share of the most, in eighths of a column; never empty for a value above 0."""
    eighths = max(round(8 * _BAR * value / most), 1) if value else 0
    whole, rest = divmod(eighths, 8)
    return (_EIGHTHS[8] * whole + _EIGHTHS[rest] * bool(rest)).ljust(_BAR)


def _time(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else seconds_text(milliseconds / 1000)


def rebalance(
    entity: Annotated[
        str, typer.Argument(metavar="ENTITY", help="An entity of documents, by its name.", autocompletion=entity_names)
    ],
    buckets: Annotated[int, typer.Option("--buckets", metavar="N", help="The new number of buckets, 1 to 1024.")],
    allow_deletes: AllowDeletesOption = False,
    allow_empty: AllowEmptyOption = False,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Route documents over another number of buckets.

    They are rebuilt, beside the served index.

    The number of buckets is fixed when a build is planned, and a run that finds another one in instep.yaml is refused.
    This builds a new index with the new number, and has it read in place of the old one when it is verified; embeddings
    come from the cache. Write the number into instep.yaml as well. Interrupted, the same command resumes.

    \b
    Examples:
      instep rebalance Document --buckets 32
      instep rebalance Document --buckets 32 --json
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=quiet)
    opened = load(project)
    with terminate_like_ctrl_c(), out.progress() as progress:
        results = opened.rebalance(
            entity,
            buckets,
            allow_deletes=allow_deletes,
            allow_empty=allow_empty,
            generation=generation,
            progress=progress,
        )
    if any(opened.declared_buckets(each.ref.entity) != buckets for each in results):
        out.note(f"write `buckets: {buckets}` into instep.yaml: until then, runs of {entity} are refused")
    finish(out, results)
