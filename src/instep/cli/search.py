"""`instep search`: search the indexes that are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import unquote

import typer

from instep.cli.completion import entity_names
from instep.cli.options import AsOption, GenerationOption, JsonOption, ProjectOption
from instep.cli.output import Output
from instep.telemetry.texts import visible

if TYPE_CHECKING:
    from rich.text import Text

    from instep.answers.search import FacetCount, Hit
    from instep.project import Project
    from instep.targets.document_target import SearchMode


def search(
    query: Annotated[str, typer.Argument(help="Text to search for.")],
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="text (by words), vector (by meaning) or hybrid (both, fused by rank); by default hybrid, or text "
            "with the embedder hashing, which does not know meanings.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of results, 1 to 1000.")] = 5,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            "-w",
            metavar="FILTER",
            help="Only documents whose columns meet this condition, a small subset of SQL's WHERE.",
            show_default=False,
        ),
    ] = None,
    offset: Annotated[int, typer.Option("--offset", help="Skip this many results.")] = 0,
    group: Annotated[bool, typer.Option("--group", help="Show only the best chunk of each document.")] = False,
    facet: Annotated[
        list[str] | None,
        typer.Option(
            "--facet", metavar="COLUMN", help="Count the values of this column in the results; may be repeated."
        ),
    ] = None,
    entity: Annotated[
        list[str] | None,
        typer.Option("--entity", "-e", help="Only this entity; may be repeated.", autocompletion=entity_names),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="Search this one of several targets; by default the first that the entity names.",
            show_default=False,
        ),
    ] = None,
    as_: AsOption = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search what is indexed, best first.

    Matching words are marked; chunks of one document stand together.

    Several entities are fused by rank: the best of each come first.

    \b
    Examples:
      instep search "how do I configure it"
      instep search "fence of a slice" --mode text --limit 3
      instep search lease --entity Document --json
      instep search "printer on fire" --where "team = 'ops' AND year >= 2024 AND tags CONTAINS 'urgent'"
      instep search "printer on fire" --as alice --as group:ops
      instep search '"printer is on fire"' --mode text
      instep search "printer on fire" --facet team --facet tags
      instep search lease --generation v2
      instep search lease --target pg
    """
    from instep.app import load

    out = Output(as_json=as_json)
    with out.progress() as progress:
        opened = load(project)
        among = partial(
            opened.search,
            query,
            mode=cast("SearchMode | None", mode),
            where=where,
            entities=entity,
            principals=as_ or (),
            generation=generation,
            target=target,
        )
        found = among(limit=limit, offset=offset, group=group, progress=progress)
        facets = opened.facets(query, facet, **among.keywords) if facet else None
    if facets is None:
        out.result(found, lambda: _show(out, opened.project, found))
        return

    def show() -> None:
        _show(out, opened.project, found)
        _show_facets(out, facets)

    out.result({"items": found, "facets": facets}, show)


def _show_facets(out: Output, facets: Mapping[str, Sequence[FacetCount]]) -> None:
    from rich.text import Text

    console = out.console()
    for name, counts in facets.items():
        line = Text(f"{name}: ", style="bold")
        line.append(", ".join(f"{visible(str(each.value))} ({each.count:,})" for each in counts) or "none")
        console.print(line)


def _show(out: Output, project: Project, found: Sequence[Hit]) -> None:
    from rich.text import Text

    console = out.console()
    if not found:
        out.line("Nothing found.")
    else:
        ways = {(each.entity, each.mode): _way(project, each) for each in found}
        console.print(Text(f"found by {' and '.join(sorted(set(ways.values())))}", style="dim"))
    documents: dict[tuple[str, str], list[Hit]] = {}
    for each in found:
        documents.setdefault((each.entity, each.document_id), []).append(each)
    for number, (best, *others) in enumerate(documents.values(), 1):
        head = Text(f"{number}. ", style="dim")
        head.append(visible(_title(best)), style="bold")
        head.append(_score(best), style="dim")
        console.print(head)
        console.print(Text(f"   {visible(_name(best.source_uri))}", style="cyan"))
        if told := _columns(best):
            console.print(Text(f"   {visible(told)}", style="dim"))
        console.print(_body(best))
        for each in others:
            own = _columns(each, but=best.columns)
            console.print(Text(f"   also{_score(each)}  {visible(own)}".rstrip(), style="dim"))
            console.print(_body(each))


def _columns(hit: Hit, but: Mapping[str, object] = MappingProxyType({})) -> str:
    """Its columns that have a value, and another one than in `but`."""
    told = ((name, value) for name, value in hit.columns.items() if value is not None and value != but.get(name))
    return ", ".join(f"{name} {_value_text(value)}" for name, value in told)


def _score(hit: Hit) -> str:
    return f"  {hit.score:.3f}{'  weak' if hit.weak else ''}"


def _body(hit: Hit) -> Text:
    from rich.text import Text

    body = Text(visible(hit.snippet))
    for start, end in hit.marks:
        body.stylize("bold yellow", start, end)
    return body


def _way(project: Project, hit: Hit) -> str:
    """The way in which its entity was searched, in words that promise no more than its vectors know."""
    from instep.project import DocumentEntity

    declared = project.entities.get(hit.entity)
    known = not isinstance(declared, DocumentEntity) or declared.embed.meaning
    vectors = "meaning" if known else "hashed words"
    return {"text": "words", "vector": vectors, "hybrid": f"words and {vectors}"}[hit.mode]


def _value_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _title(hit: Hit) -> str:
    """The document's title; without one, the end of its path says more than the name alone."""
    name = _name(hit.source_uri)
    if hit.title and hit.title != name.rpartition("/")[2]:
        return hit.title
    return "/".join(name.split("/")[-2:])


def _name(uri: str) -> str:
    """A local file as its path, from the project's folder if it is named so; anything else as its address."""
    for start in ("file://", "project:///"):
        if uri.startswith(start):
            return unquote(uri.removeprefix(start))
    return uri
