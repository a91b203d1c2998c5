"""Values of answers as people read them: in one line of a prompt, and in tables of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import BaseModel

#: Longer texts are cut in a repr, and in a cell of a table.
_LINE: Final = 60
_CELL: Final = 240
#: So many elements of a list are shown.
_ELEMENTS: Final = 5


class _Plain(str):
    """A text that is shown as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def fields(answer: BaseModel) -> dict[str, Any]:
    """All that JSON shows, too."""
    found = type(answer).model_fields
    return {name: getattr(answer, name) for name, field in found.items() if not field.exclude}


def in_line(values: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    """Names and values, short, of those that say something."""
    for name, value in values:
        if not _empty(value):
            shown = _shown(name, value, _LINE)
            yield name, shown if isinstance(value, str) and not isinstance(value, Enum) else _Plain(shown)


def lines(items: Iterable[object]) -> str:
    """A list, one element on each line."""
    inside = "".join(f"  {each!r},\n" for each in items)
    return f"[\n{inside}]" if inside else "[]"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table in HTML; columns that say nothing are left out."""
    if not rows:
        return "<em>nothing</em>"
    names = [name for name in rows[0] if any(not _empty(row.get(name)) for row in rows)]
    return html(names, ([escape(_shown(name, row.get(name), _CELL)) for name in names] for row in rows))


def pairs(row: Mapping[str, Any]) -> str:
    """One row as a table in HTML, a line for each of its columns that says something."""
    found = ((name, value) for name, value in row.items() if not _empty(value))
    return html(["", ""], ([f"<b>{escape(name)}</b>", escape(_shown(name, value, _CELL))] for name, value in found))


def html(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names) if any(names) else ""
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _cells(row: Sequence[str]) -> str:
    return "".join(f'<td style="text-align: left">{cell}</td>' for cell in row)


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str | tuple | list | dict) and not value)


def _shown(name: str, value: object, longest: int) -> str:
    if isinstance(value, tuple | list):
        more = f", … ({len(value):,})" if len(value) > _ELEMENTS else ""
        return ", ".join(_shown(name, each, longest) for each in value[:_ELEMENTS]) + more
    if isinstance(value, dict):
        said = (f"{key}: {_shown(str(key), each, longest)}" for key, each in value.items() if not _empty(each))
        return _cut(", ".join(said), longest)
    return _cut(_one(name, value), longest)


def _one(name: str, value: object) -> str:
    match value:
        case None:
            return ""
        case int() if name == "watermark" or name.endswith("_at"):
            return f"{datetime.fromtimestamp(value / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
