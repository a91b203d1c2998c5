"""`instep rebalance`."""

from __future__ import annotations

from typing import Annotated

import typer

from instep.cli.options import (
    AllowDeletesOption,
    AllowEmptyOption,
    GenerationOption,
    JsonOption,
    ProjectOption,
    QuietOption,
)
from instep.cli.output import Output
from instep.cli.run import finish
from instep.cli.signals import terminate_like_ctrl_c


def rebalance(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="An entity of documents, by its name.")],
    buckets: Annotated[int, typer.Option("--buckets", metavar="N", help="How many there are to be, 1 to 1024.")],
    allow_deletes: AllowDeletesOption = False,
    allow_empty: AllowEmptyOption = False,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Route documents over another number of buckets: build them anew, beside what is served.

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
    if any(opened.declared_buckets(each.plan.ref.entity) != buckets for each in results):
        out.note(f"write `buckets: {buckets}` into instep.yaml: until then, runs of {entity} are refused")
    finish(out, results)
