"""The state of each entity in each namespace, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from instep.cli.output import Output
from instep.domain.status import IndexState, Matrix, worst

if TYPE_CHECKING:
    from rich.text import Text

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
    """Whole, or, where that is too wide, what is worst of each namespace and entity."""
    if not matrix.rows:
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
        [_plain(str(scope)), _styled(matrix.of_scope(scope)), *map(_styled, states)]
        for scope, states in matrix.rows.items()
    ]
    if len(rows) > 1:
        columns = map(matrix.of_entity, matrix.entities)
        rows.append([_plain("all"), _styled(matrix.whole), *map(_styled, columns)])
    out.texts(["namespace", "all", *matrix.entities], rows)


def _show_worst(out: Output, matrix: Matrix) -> None:
    rows = [
        [_plain(str(scope)), _styled(worst(states)), _plain(_summary(states, matrix.entities))]
        for scope, states in matrix.rows.items()
    ]
    out.texts(["namespace", "worst", "entities"], rows)
    scopes = list(map(str, matrix.rows))
    rows = []
    for place, entity in enumerate(matrix.entities):
        states = [row[place] for row in matrix.rows.values()]
        rows.append([_plain(entity), _styled(worst(states)), _plain(_summary(states, scopes))])
    out.texts(["entity", "worst", "namespaces"], [*rows, [_plain("all"), _styled(matrix.whole), _plain("")]])


def _summary(states: Sequence[IndexState], names: Sequence[str]) -> str:
    """`34 Indexed, 2 Backfilling (MergeRequest, Issue)`: who is meant is said of all that is not Indexed."""
    parts = []
    for state, number in sorted(Counter(states).items(), key=lambda each: list(IndexState).index(each[0])):
        who = [name for name, each in zip(names, states, strict=True) if each is state]
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
