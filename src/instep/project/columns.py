"""Declared columns of documents: names, types, and where the values come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from instep.domain.document_columns import (
    BUILT_IN,
    CHUNK_FACTS,
    FACTS,
    DeclaredColumn,
    DocumentColumn,
    DocumentColumnType,
    Origin,
)
from instep.project.fields import Model, Text, problem
from instep.project.sources import FeedSource, FilesSource, KafkaSource, PythonSource

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MOST: Final = 50
_MOST_COLUMNS: Final = 64

#: What rows of an index, rows on their way and hits of a search call something else.
RESERVED: Final = frozenset(
    {
        *(each.name for each in BUILT_IN),
        *("document_id", "document_hash", "source_version", "chunk_id", "chunk_hash", "chunk_index", "text", "vector"),
        *("slice_id", "source_size", "bucket", "end_of_document", "deleted", "unchanged", "vanished"),
        *("failure_stage", "failure_reason", "locator", "entity", "score", "instance", "version", "ref"),
    }
)
#: What PostgreSQL calls columns of its own (https://www.postgresql.org/docs/current/ddl-system-columns.html), and words
#: of filters, which Milvus takes for a column's name nowhere. Refused for every target: an index may move to another.
_WORDS: Final = frozenset(
    {
        *("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"),
        *("and", "or", "not", "in", "like", "is", "null", "true", "false", "between", "contains", "exists"),
        *("interval", "iso"),
    }
)


class Column(Model):
    """A column of documents, for filtering searches."""

    type: DocumentColumnType
    """Type of the values: `string`, `int`, `float`, `bool`, `timestamp`, `date`, `string[]` or `int[]`."""
    from_: Text | None = Field(default=None, alias="from")
    """Origin of the values: `front_matter` (or `front_matter:key`) of Markdown, `path:` with a regular expression whose
    group is the value, `file:size`, `file:modified` or `file:extension`, `field:name` of a feed's lines, `column:name`
    of a table, `chunk:page`, `chunk:line` or `chunk:headings`, or `transform`. If left out: the field or column of the
    same name; for files, what the transform adds, or front matter."""
    on_wrong: Literal["fail"] | None = "fail"
    """Action for a document with a value of another type: `fail` makes the document a failure, `null` ignores the
    value."""


def _short(value: Any) -> Any:
    """`team: string` is `team: {type: string}`."""
    if isinstance(value, str):
        if value not in set(DocumentColumnType):
            message = "is not one of the allowed values"
            raise problem("type", message, allowed=list(map(str, DocumentColumnType)))
        return {"type": value}
    kind = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind not in set(DocumentColumnType):
        message = "is not one of the allowed values"
        raise problem("type", message, path=("type",), allowed=list(map(str, DocumentColumnType)))
    return value


_Declared: TypeAlias = Annotated[
    Column,
    BeforeValidator(_short),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(map(str, DocumentColumnType))},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["type"],
                    "properties": {
                        "type": {"enum": list(map(str, DocumentColumnType))},
                        "from": {"type": "string", "minLength": 1},
                        "on_wrong": {"enum": ["fail", None]},
                    },
                },
            ]
        }
    ),
]
DeclaredColumns: TypeAlias = dict[str, _Declared]


class WithColumns(Protocol):
    """An entity of documents, as far as its columns depend on it."""

    @property
    def columns(self) -> Mapping[str, Column]: ...
    @property
    def readers(self) -> str | None: ...
    @property
    def source(self) -> object: ...
    @property
    def transform(self) -> str | None: ...


def check_columns(entity: WithColumns) -> None:
    """Check names and origins. Raises a validation error."""
    seen: dict[str, str] = {}
    if len(entity.columns) > _MOST_COLUMNS:
        raise problem("columns", f"must be at most {_MOST_COLUMNS}", path=("columns",))
    for name, column in entity.columns.items():
        path = ("columns", name)
        if not _NAME.fullmatch(name) or len(name) > _MOST or name.endswith("_"):
            message = f"a column's name is letters, digits and underscores, starting with a letter, at most {_MOST}"
            raise problem("column_name", message, path=path)
        if name.lower() in RESERVED or name.lower().startswith("instep_"):
            raise problem("reserved", "is a name that Instep itself uses: give the column another name", path=path)
        if name.lower() in _WORDS:
            message = "is a reserved word of filters or of PostgreSQL: give the column another name, and set `from:`"
            raise problem("reserved", message, path=path)
        if name.lower() in seen:
            raise problem("column_name", f"differs from {seen[name.lower()]} in case only", path=path)
        seen[name.lower()] = name
        _origin(entity, name, column)
    lists = [
        each.name
        for each in declared_columns(entity)
        if each.column.type is DocumentColumnType.STRINGS and each.origin is not Origin.CHUNK
    ]
    if entity.readers is not None and entity.readers not in lists:
        message = "is not one of its columns of the type string[]"
        raise problem("readers", message, path=("readers",), allowed=lists)


def declared_columns(entity: WithColumns) -> Sequence[DeclaredColumn]:
    """In one order, however they are declared."""
    return [
        DeclaredColumn(
            DocumentColumn(name, column.type),
            *_origin(entity, name, column),
            # Readers that cannot be told are none: else those stay who could read it before.
            lenient=column.on_wrong is None or name == entity.readers,
        )
        for name, column in sorted(entity.columns.items())
    ]


def _origin(entity: WithColumns, name: str, column: Column) -> tuple[Origin, str]:
    said = column.from_
    if said is None:
        return _default(entity), name
    kind, _, of = said.partition(":")
    allowed = _origins(entity)
    path = ("columns", name, "from")
    if kind not in allowed:
        raise problem("from", "is not one of the allowed values", path=path, allowed=[_FORMS[each] for each in allowed])
    match kind:
        case "path":
            _check_pattern(of, name, path)
        case "file" if of not in FACTS:
            message = "is not a fact of a file"
            raise problem("from", message, path=path, allowed=[f"file:{each}" for each in FACTS])
        case "chunk":
            _check_chunk_fact(of, column.type, path)
        case "transform" if of:
            raise problem("from", "a transform adds the column under its own name: write `transform` alone", path=path)
    return _ORIGINS[kind], of or name


def _check_chunk_fact(of: str, kind: DocumentColumnType, path: tuple[str, ...]) -> None:
    if of not in CHUNK_FACTS:
        message = "is not a fact of a chunk"
        raise problem("from", message, path=path, allowed=[f"chunk:{each}" for each in CHUNK_FACTS])
    if kind is not CHUNK_FACTS[of]:
        raise problem("type", f"chunk:{of} has another type", path=(*path[:-1], "type"), allowed=[CHUNK_FACTS[of]])


_ORIGINS: Final[Mapping[str, Origin]] = {
    "front_matter": Origin.FRONT_MATTER,
    "path": Origin.PATH,
    "file": Origin.FILE,
    "field": Origin.SOURCE,
    "column": Origin.SOURCE,
    "chunk": Origin.CHUNK,
    "transform": Origin.TRANSFORM,
}
_FORMS: Final[Mapping[str, str]] = {
    "front_matter": "front_matter:key",
    "path": "path:regex",
    "file": "file:size|modified|extension",
    "field": "field:name",
    "column": "column:name",
    "chunk": "chunk:page|line|headings",
    "transform": "transform",
}


def _origins(entity: WithColumns) -> list[str]:
    if isinstance(entity.source, FilesSource):
        own = ["front_matter", "path", "file"]
    elif isinstance(entity.source, FeedSource | KafkaSource | PythonSource):
        own = ["field", "path"]
    else:
        own = ["column", "path"]
    return [*own, "chunk", *(["transform"] if entity.transform else [])]


def _default(entity: WithColumns) -> Origin:
    if not isinstance(entity.source, FilesSource):
        return Origin.SOURCE
    return Origin.TRANSFORM if entity.transform else Origin.FRONT_MATTER


def _check_pattern(text: str, name: str, path: tuple[str, ...]) -> None:
    try:
        found = re.compile(text)
    except re.error as error:
        raise problem("from", f"is not a regular expression: {error}", path=path) from None
    if not found.groups:
        message = "has no group: put the value in parentheses, such as path:([^/]+)/"
        raise problem("from", message, path=path)
    if found.groupindex and name not in found.groupindex:
        raise problem("from", "has named groups, but none with the column's name", path=path)
