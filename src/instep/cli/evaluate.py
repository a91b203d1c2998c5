"""`instep evaluate`: how well judged queries are answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from instep.cli.completion import entity_names
from instep.cli.options import GenerationOption, JsonOption, ProjectOption
from instep.cli.output import Output

if TYPE_CHECKING:
    from instep.answers.quality import Quality
    from instep.targets.document_target import SearchMode


def evaluate(
    queries: Annotated[
        Path,
        typer.Argument(
            metavar="QUERIES",
            help="File of judged queries: lines of JSON, or lines with an id, a tab and a query.",
            show_default=False,
        ),
    ],
    judgements: Annotated[
        Path | None,
        typer.Option(
            "--judgements",
            metavar="FILE",
            help="File of judgements in the format of TREC or BEIR, if QUERIES has none.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="MODE", help="Only text, vector or hybrid.", show_default=False),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option("--worst", help="Also list this many of the worst answered queries.", min=1, show_default=False),
    ] = None,
    entity: Annotated[
        list[str] | None,
        typer.Option("--entity", "-e", help="Only this entity; may be repeated.", autocompletion=entity_names),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="Search this one of several targets.", show_default=False),
    ] = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how well judged queries are answered.

    Shows nDCG@10, recall and MRR for each mode.

    Every query is asked of what is served, and with --generation of that one beside it. All documents are looked at,
    also those that only some may read. docs/quality.md has the form of the files.

    \b
    Examples:
      instep evaluate queries.jsonl
      instep evaluate topics.tsv --judgements qrels.txt --mode hybrid --worst 5
      instep evaluate queries.jsonl --generation v2 --json
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with out.answering():
        found = load(project).evaluate(
            queries,
            judgements,
            mode=cast("SearchMode | None", mode),
            entities=entity,
            generation=generation,
            target=target,
        )
    out.result(found, lambda: _show(out, found, worst or 0))


def _show(out: Output, found: Sequence[Quality], worst: int) -> None:
    metrics = list(found[0].scores)
    asked = len(found[0].queries)
    out.line("1 query" if asked == 1 else f"{asked:,} queries")
    columns = ["entity", "build", "mode", *metrics]
    out.table(None, columns, ([each.entity, _build(each), _mode(each), *_scores(each.scores)] for each in found))
    for each in found if worst else ():
        poorest = sorted(each.queries, key=lambda query: query.scores[metrics[0]])[:worst]
        rows: list[list[Any]] = [[query.id, query.query, *_scores(query.scores)] for query in poorest]
        out.table(f"{each.entity}, {_build(each)}, {each.mode}: answered worst", ["id", "query", *metrics], rows)


def _build(each: Quality) -> str:
    name = each.generation or ("served" if each.served else "without a name")
    return f"{name} (served)" if each.served and each.generation else name


def _mode(each: Quality) -> str:
    return f"{each.mode} (default)" if each.default else each.mode


def _scores(scores: dict[str, float]) -> list[str]:
    return [f"{value:.3f}" for value in scores.values()]
