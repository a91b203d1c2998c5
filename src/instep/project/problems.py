"""Turns validation errors into lines that say where, what was found and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from instep.errors import UserError
from instep.project.documents import DocumentEntity
from instep.project.entities import DOCUMENT, TABLE, kind_of
from instep.project.schema import json_schema
from instep.project.tables import TableEntity
from instep.project.yaml import Document, Path

_SECRET_KEYS = frozenset(
    {
        *("api_key", "storage_options", "options", "ledger", "bus", "uri", "token", "on", "state", "openlineage"),
        *("password", "catalog", "config"),
    }
)

#: What pydantic puts into the location of an error, and no file has.
_MARKERS = frozenset({"[key]", DOCUMENT, TABLE})

#: What pydantic's own error types mean in our words; `{}` takes values of the error's context.
_WORDS = {
    "missing": "is missing",
    "string_type": "must be text (put it in quotes)",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "dict_type": "must be a mapping (lines of `key: value`)",
    "model_type": "must be a mapping (lines of `key: value`)",
    "model_attributes_type": "must be a mapping (lines of `key: value`)",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "literal_error": "is not one of the allowed values",
    "union_tag_invalid": "is not one of the allowed values",
}


#: Keys of entities that take names: what has such a name, and the section that declares it.
_NAMES = {
    "target": ("a target", "targets"),
    "targets": ("a target", "targets"),
    "depends_on": ("an entity", "entities"),
    "changes.queue": ("a queue", "queues"),
    "readers": ("a column", "columns"),
}

#: Keys of former versions, by section.
_REMOVED = {
    ("handlers", "ack_wait"): "is no longer used: the heartbeats of workers tell whether they live; leave it out",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a project file."""

    line: int
    path: str
    message: str
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidProject(UserError):
    """A project file that cannot be used; `problems` lists everything found, in order of lines."""

    def __init__(self, file: str, problems: Sequence[Problem], hint: str | None = None) -> None:
        first, *others = problems
        what = "\n".join([str(first), *(f"{file}:{each.line}: {each}" for each in others)])
        super().__init__(what, where=f"{file}:{first.line}", hint=hint)
        self.file = file
        self.problems = tuple(problems)


def problems_of(error: ValidationError, document: Document) -> list[Problem]:
    """The problems of a validation, in order of lines."""
    found = [each for detail in error.errors(include_url=False) for each in _problems(detail, document)]
    return sorted(found, key=lambda each: each.line)


def argument_problem(error: ValidationError) -> str:
    """The problems of arguments that stand in no file, in one sentence: `limit must be at most 100`."""
    return "; ".join(map(_argument_text, error.errors(include_url=False)))


def _argument_text(detail: ErrorDetails) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    message = _WORDS.get(detail["type"], detail["msg"]).format(**context)
    allowed = _allowed(context)
    return f"{_dotted(detail['loc'])} {message}" + (f"; allowed: {', '.join(allowed)}" if allowed else "")


def _problems(detail: ErrorDetails, document: Document) -> Iterator[Problem]:
    context: dict[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    path = (*_path_in(document.data, detail["loc"]), *context.get("path", ()))
    if kind == "too_short" and _value(document, path):
        return  # Its elements have problems of their own, and are not counted.
    if isinstance(_value(document, path[:-1]), str):
        path = path[:-1]  # One text stands for a list of one.
    if kind == "extra_forbidden" or detail["loc"][-1:] == ("[key]",):
        yield _unknown_key(path, document)
        return
    if kind.startswith("union_tag"):
        path = (*path, str(context.get("discriminator", "type")).strip("'"))
    message = _WORDS[kind].format(**context) if kind in _WORDS else _own_words(detail, document, path)
    if isinstance(_value(document, path), dict | list):
        message = message.removesuffix(" (put it in quotes)")
    if "beside" in context:
        message += f" (line {_line_of(document, context['beside'])})"
    allowed = _allowed(context)
    if kind in {"string_type", "tuple_type"} and (wanted := _names_wanted(kind, path, document)):
        message, allowed = wanted
    found = None if "beside" in context else _found(document, path)
    if found is not None:
        message += f"; found {found}"
    if allowed:
        message += f"; allowed: {', '.join(allowed)}"
        message += _nearest(_plain_value(document, path), allowed)
    yield Problem(_line_of(document, path), _dotted(path), message, allowed)


def _names_wanted(kind: str, path: Path, document: Document) -> tuple[str, tuple[str, ...]] | None:
    """The message about a mapping (or a list) where a key takes the name (or names) of what is declared elsewhere, and
    the names that are declared. None for other keys and values.
    """
    section, *steps = (each for each in path if isinstance(each, str))
    wanted = _NAMES.get(".".join(steps[1:])) if section == "entities" else None
    if wanted is None or not isinstance(_value(document, path), dict | list):
        return None
    what, declared = wanted
    form = "a list of names, each" if kind == "tuple_type" else "the name"
    holder = document.data["entities"][steps[0]] if declared == "columns" else document.data
    there = holder.get(declared)
    names = tuple(there) if isinstance(there, dict) else ()
    return f"must be {form} of {what} that is declared under `{declared}`", names


def _unknown_key(path: Path, document: Document) -> Problem:
    allowed = keys_allowed(path[:-1], document.data)
    removed = _REMOVED.get((str(path[0]), str(path[-1]))) if len(path) == 3 else None
    message = removed or _of_the_other_kind(path, document.data) or f"unknown key{_nearest(path[-1], allowed)}"
    message += f"; allowed: {', '.join(allowed)}"
    return Problem(_line_of(document, path), _dotted(path), message, allowed)


def _of_the_other_kind(path: Path, data: Any) -> str | None:
    """The message about a setting that tables have and documents have not, or the other way round."""
    if len(path) != 3 or path[0] != "entities":
        return None
    if kind_of(data["entities"][path[1]]) == TABLE:
        if path[2] not in DocumentEntity.model_fields:
            return None
        return "is for documents, and the source is a table: `document` makes documents of its rows"
    return "is for tables, and this is an entity of documents" if path[2] in TableEntity.model_fields else None


def keys_allowed(path: Path, data: Any) -> tuple[str, ...]:
    """Keys of the mapping at `path`, from the JSON Schema; `data` tells which `type` it has."""
    schema = json_schema()
    node: dict[str, Any] = schema
    for step in (*path, None):
        node = _resolved(node, schema, data)
        if step is not None:
            properties = node.get("properties", {})
            node = properties[step] if step in properties else node[_INNER[node["type"]]]
            data = data[step]
    return tuple(node["properties"]) if "properties" in node else tuple(node["propertyNames"]["enum"])


_INNER = {"object": "additionalProperties", "array": "items"}


def _resolved(node: dict[str, Any], schema: dict[str, Any], data: Any) -> dict[str, Any]:
    """The part of the schema that tells of `data`, where there are several kinds."""
    if "discriminator" in node:
        node = {"$ref": node["discriminator"]["mapping"][data["type"]]}
    elif "oneOf" in node:
        kind = TableEntity if kind_of(data) == TABLE else DocumentEntity
        node = {"$ref": f"#/$defs/{kind.__name__}"}
    elif "anyOf" in node:  # Of a text and a mapping that it stands for, the mapping has keys.
        node = next(each for each in _kinds(node) if "$ref" in each or each.get("type") == "object")
    return schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _kinds(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The kinds of values that a part of the schema allows."""
    for each in node["anyOf"]:
        yield from _kinds(each) if "anyOf" in each else (each,)


def _own_words(detail: ErrorDetails, document: Document, path: Path) -> str:
    """Our validators' messages repeat no value; pydantic's might, so they are for plain values only."""
    ours = "_" not in detail["type"] or detail["type"] in {"byte_size", "target_name", "entity_name", "queue_name"}
    shown = ours or not (_is_secret(path) or any(path[: len(each)] == each for each in document.written))
    return detail["msg"] if shown else "is not valid"


def _allowed(context: dict[str, Any]) -> tuple[str, ...]:
    """Allowed values; pydantic gives them as text: `'a', 'b' or 'c'`."""
    if "allowed" in context:
        return tuple(context["allowed"])
    text = context.get("expected_tags") or (context.get("expected") if "expected" in context else "") or ""
    return tuple(part.strip().strip("'") for part in str(text).replace(" or ", ", ").split(",") if part.strip())


def _nearest(value: Any, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.6) if isinstance(value, str) else []
    return f" (did you mean {near[0]}?)" if near else ""


def _path_in(data: Any, location: Sequence[str | int]) -> Path:
    """The location without what pydantic puts in between: union tags, and `[key]`."""
    path: list[str | int] = []
    for position, step in enumerate(location):
        inner = _ABSENT if step in _MARKERS else _step_into(data, step)
        if inner is _ABSENT:
            tag = isinstance(data, dict) and data.get("type") == step
            if step in _MARKERS or tag or position < len(location) - 1:
                continue
        path.append(step)
        data = inner
    return tuple(path)


_ABSENT = object()


def _step_into(data: Any, step: str | int) -> Any:
    try:
        return data[step]
    except (KeyError, IndexError, TypeError):
        return _ABSENT


def _is_secret(path: Path) -> bool:
    return not _SECRET_KEYS.isdisjoint(path)


def _value(document: Document, path: Path) -> Any:
    value = document.data
    for step in path:
        value = _step_into(value, step)
    return value


def _plain_value(document: Document, path: Path) -> Any:
    return None if _is_secret(path) or path in document.written else _value(document, path)


def _found(document: Document, path: Path) -> str | None:
    """The value in the file, if it may be shown; None when there is none."""
    value = _value(document, path)
    if value is _ABSENT:
        return None
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if _is_secret(path):
        return "(not shown)"
    if path in document.written:
        return document.written[path]
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}…{text[0]}"


def _line_of(document: Document, path: Path) -> int:
    while path not in document.lines:
        path = path[:-1]
    return document.lines[path]


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text
