"""`instep status`: state of partitions and namespaces, now or at an earlier time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.options import (
    EntitiesArgument,
    EntityOption,
    GenerationOption,
    JsonOption,
    NamespaceOption,
    ProjectOption,
    time_value,
)
from instep.cli.output import Output
from instep.domain.refs import PartitionRef, generation_text
from instep.domain.status import IndexState
from instep.errors import UserError
from instep.telemetry.texts import id_text, moment_text, ref_text

if TYPE_CHECKING:
    from rich.text import Text

    from instep.answers.lineage import Moment
    from instep.answers.status import Matrix, Partition
    from instep.app import Instep


def status(
    entities: EntitiesArgument = None,
    only: EntityOption = None,
    namespaces: NamespaceOption = None,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=time_value,
            help=(
                "Show the canonical instances at this time, and their state (ISO 8601; in the local zone if it names "
                "none)."
            ),
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Show the canonical instances at the end of this job.", show_default=False),
    ] = None,
    generation: GenerationOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the served indexes: state, size, age, failures. With --at or --job: what was served.

    For entities that have namespaces it shows the state in each namespace, as workers and runs reported it to the bus.
    The states are Indexed, Indexing, Error, Backfilling, NotIndexed and Unknown (it cannot be read); of several, the
    worst is shown.

    \b
    Examples:
      instep status
      instep status Document --json
      instep status --namespace 42/9970 --entity MergeRequest
      instep status --at 2026-01-31T12:00
      instep status --job 1f0c
    """
    from instep.app import load

    names = [*(entities or ()), *(only or ())]
    out = Output(as_json=as_json)
    if at is not None or job is not None:
        if generation is not None:
            raise UserError("--at and --job show all generations", hint="Leave --generation out.")
        if namespaces:
            raise UserError("--at and --job show all namespaces", hint="Leave --namespace out.")
        time = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
        _show_past(load(project).status_at(names, at=time, job=job), out)
        return
    _show_now(load(project), names, namespaces or (), generation, out)


def _show_now(
    project: Instep, names: Sequence[str], namespaces: Sequence[str], generation: str | None, out: Output
) -> None:
    """Global entities by the ledger, entities with namespaces by their status keys."""
    apart = set(project.namespaced) & set(names or project.namespaced)
    if not apart and not namespaces:
        with out.answering():
            every = project.status(names, generation=generation)
        out.result(every, lambda: _show(out, every))
        return
    whole = [] if namespaces else [name for name in names or project.project.entities if name not in apart]
    with out.answering():
        matrix = project.matrix(namespaces, names)
        found = project.status(whole, generation=generation) if whole else []

    def show() -> None:
        if found:
            _show(out, found)
        show_matrix(out, matrix)

    out.result({"entities": found, "matrix": matrix}, show)


def _show(out: Output, found: Sequence[Partition]) -> None:
    rows = [
        [
            ref_text(each.ref, each.generation),
            str(each.state),
            each.documents,
            each.rows,
            each.failures,
            time_text(each.watermark),
            str(each.job.state).lower().replace("_", " ") if each.job else None,
        ]
        for each in found
    ]
    out.table(None, ["entity", "state", "documents", "rows", "failed", "as of", "last job"], rows)
    for each in found:
        for note in each.notes:
            out.line(f"{generation_text(each.ref, each.generation)}: {note}")


def _show_past(found: Sequence[Moment], out: Output) -> None:
    def show() -> None:
        if found:
            out.line(f"As of {moment_text(found[0].at)}:")
        rows = [_past_row(each) for each in found]
        out.table(None, ["entity", "state", "made for", "as of", "instance", "served", "wants"], rows)
        for each in found:
            if each.promoted and sum(other.ref == each.ref for other in found) > 1:
                name = ref_text(PartitionRef.parse(each.ref))
                out.line(f"{name}: generation {each.generation or repr(each.generation)} was promoted.")

    out.result(found, show)


def _past_row(each: Moment) -> list[Any]:
    name = ref_text(PartitionRef.parse(each.ref), each.generation)
    served = id_text(each.served.uuid) if each.served else None
    if each.instance is None:
        return [name, None, None, None, None, served, each.open_wants]
    instance = each.instance
    return [
        name,
        str(instance.state),
        str(instance.reason),
        time_text(instance.watermark),
        id_text(instance.uuid),
        served,
        each.open_wants,
    ]


def time_text(milliseconds: int | None) -> str | None:
    """Local time to the minute."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%m-%d %H:%M")


_STYLES = {
    IndexState.INDEXED: "green",
    IndexState.INDEXING: "cyan",
    IndexState.ERROR: "red",
    IndexState.BACKFILLING: "yellow",
    IndexState.NOT_INDEXED: "dim",
    IndexState.UNKNOWN: "magenta",
}
#: Columns as wide as the longest state, with what lies between two.
_WIDTH = max(len(each) for each in IndexState) + 2
#: So many entities are named beside a state.
_NAMED = 3


def show_matrix(out: Output, matrix: Matrix) -> None:
    """Show all of the matrix, or, where that is too wide, the worst state of each namespace and entity."""
    if not matrix.namespaces:
        out.line("No namespace is declared or known.")
        return
    width = sum(max(_WIDTH, len(entity) + 2) for entity in matrix.entities) + 2 * _WIDTH
    if width <= out.console().width:
        _show_whole(out, matrix)
    else:
        _show_worst(out, matrix)
    for note in matrix.notes:
        out.line(note)


def _show_whole(out: Output, matrix: Matrix) -> None:
    rows = [
        [_plain(str(each.namespace)), _styled(each.state), *map(_styled, each.entities.values())]
        for each in matrix.namespaces
    ]
    if len(rows) > 1:
        rows.append([_plain("all"), _styled(matrix.state), *map(_styled, matrix.entities.values())])
    out.texts(["namespace", "all", *matrix.entities], rows)


def _show_worst(out: Output, matrix: Matrix) -> None:
    rows = [
        [_plain(str(each.namespace)), _styled(each.state), _plain(_summary(each.entities))]
        for each in matrix.namespaces
    ]
    out.texts(["namespace", "worst", "entities"], rows)
    rows = []
    for entity, state in matrix.entities.items():
        states = {str(each.namespace): each.entities[entity] for each in matrix.namespaces}
        rows.append([_plain(entity), _styled(state), _plain(_summary(states))])
    out.texts(["entity", "worst", "namespaces"], [*rows, [_plain("all"), _styled(matrix.state), _plain("")]])


def _summary(states: Mapping[str, IndexState]) -> str:
    """`34 Indexed, 2 Backfilling (MergeRequest, Issue)`: names for all states but Indexed."""
    parts = []
    for state, number in sorted(Counter(states.values()).items(), key=lambda each: list(IndexState).index(each[0])):
        who = [name for name, each in states.items() if each is state]
        more = ", …" if len(who) > _NAMED else ""
        named = "" if state is IndexState.INDEXED else f" ({', '.join(who[:_NAMED])}{more})"
        parts.append(f"{number:,} {state}{named}")
    return ", ".join(parts)


def _styled(state: IndexState) -> Text:
    from rich.text import Text

    return Text(str(state), style=_STYLES[state])


def _plain(text: str) -> Text:
    from rich.text import Text

    return Text(text)
