"""Base classes of settings, and their kinds of values: sizes, numbers, texts, lists; and the errors of wrong ones.

Messages never repeat a value: it may be a secret. A report of an error shows the value, if it
may be shown.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from instep.domain.globs import GlobError, demand_glob
from instep.domain.refs import RefError, Scope
from instep.domain.texts import DURATION_PATTERN, parse_duration

_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")
_BYTES_SCHEMA = r"^\d+(\.\d+)? ?([kKmMgGtT]i?)?[bB]?$"
_NAMED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*\Z")
#: Of an entry point.
_ENTRY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_NO_TIME = re.compile(r"0+ ?(ms|min|s|m|h|d|w)\Z")
_BYTE_UNITS = {
    **{"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
}


def problem(kind: str, message: str, **context: Any) -> PydanticCustomError:
    """A validation error. `path` in the context leads from the validated value to the culprit;
    `allowed` lists what may stand there.
    """
    return PydanticCustomError(kind, message, context)


def parse_bytes(value: Any) -> Any:
    """`256MB` → 256,000,000 and `256MiB` → 268,435,456; whole numbers are bytes already."""
    if not isinstance(value, str):
        return value
    match = _BYTES.match(value)
    unit = _BYTE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise problem("byte_size", "must be a size in bytes such as 512KB, 256MB, 1GiB or 1048576")
    return int(float(match[1]) * unit)


def _duration(value: Any) -> Any:
    """`30d` → milliseconds. A number says nothing without its unit."""
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise problem("duration", str(error)) from error


def _pause(value: Any) -> Any:
    """A duration that may be none: `0s`."""
    return 0 if isinstance(value, str) and _NO_TIME.match(value.strip()) else _duration(value)


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise problem("number", "must be a number")
    return value


def _as_text(value: Any) -> Any:
    """Numbers and booleans as Spark and object stores write them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _namespace(value: Any) -> Any:
    """A traversal path in its normal form. One number need not be in quotes."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise problem("text", "must be text (put it in quotes)")
    try:
        scope = Scope.parse(text)
    except RefError as error:
        raise problem("namespace", "must be a traversal path such as 42/9970") from error
    if scope.is_global:
        raise problem("namespace", "must be a traversal path such as 42/9970, not `global`")
    return str(scope)


def _apart(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        for other in values[:index]:
            if value == other:
                raise problem("twice", "is named twice", path=(index,))
            if f"{value}/".startswith(f"{other}/") or f"{other}/".startswith(f"{value}/"):
                message = "one namespace is inside another: its rows would be indexed twice"
                raise problem("nested", message, path=(index,))
    return values


def _names(kind: str) -> AfterValidator:
    def named(value: str) -> str:
        if not (_NAMED.match(value) or _ENTRY.match(value)):
            message = f"must have the form package.module:{kind}, or be the name that an installed package gives it"
            raise problem(kind.lower(), message)
        return value

    return AfterValidator(named)


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def http_url(value: str) -> str:
    """The value, if a host can be asked at it. Raises a validation error."""
    if not value.lower().startswith(("http://", "https://")):
        raise problem("url", "must start with http:// or https://")
    try:
        _ = urlsplit(value).port
    except ValueError:
        raise problem("url", "has no valid host or port") from None
    return value


def no_empty_text(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        if not value:
            raise problem("empty", "must not be empty", path=(index,))
    return values


def sound_globs(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        try:
            demand_glob(value)
        except GlobError as error:
            raise problem("glob", f"is not a glob: {error.hint[0].lower()}{error.hint[1:]}", path=(index,)) from None
    return values


def _different(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(no_empty_text(values)):
        if value in values[:index]:
            raise problem("twice", "is named twice", path=(index,))
    return values


_NUMBER = BeforeValidator(_not_bool)
Whole = Annotated[int, _NUMBER]
Real = Annotated[float, _NUMBER]
Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    _NUMBER,
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": _BYTES_SCHEMA},
            ]
        }
    ),
]
#: Milliseconds, written as a duration.
Duration = Annotated[int, BeforeValidator(_duration), WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN})]
#: The same, or `0s`.
Pause = Annotated[int, BeforeValidator(_pause), WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN})]
Text = Annotated[str, Field(min_length=1)]
TextValue = Annotated[str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
SecretText = Annotated[SecretStr, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
OneOrMore = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    Field(min_length=1),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
    ),
]
Globs = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Namespaces = Annotated[
    tuple[Annotated[str, BeforeValidator(_namespace), WithJsonSchema({"type": ["string", "integer"]})], ...],
    AfterValidator(_apart),
]
#: `package.module:name`, or the name of an entry point; see `pipeline.loading`.
FunctionName = Annotated[str, _names("function")]
ClassName = Annotated[str, _names("Class")]
#: A column, or several different ones.
Columns = Annotated[OneOrMore, AfterValidator(_different)]
#: The same, or none.
AnyColumns = Annotated[Globs, AfterValidator(_different)]


def typed(*kinds: str) -> BeforeValidator:
    """A mapping must say its `type`, also while there is only one: more will come."""

    def has_type(value: Any) -> Any:
        if isinstance(value, dict):
            if "type" not in value:
                raise problem("missing", "is missing", path=("type",), allowed=kinds)
            if value["type"] not in kinds:
                raise problem("type", "is not one of the allowed values", path=("type",), allowed=kinds)
        return value

    return BeforeValidator(has_type)


class Model(BaseModel):
    """Frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


def _type_required(schema: dict[str, Any]) -> None:
    schema["required"] = ["type", *schema.get("required", [])]


class Variant(Model):
    """One of several kinds, told apart by `type`."""

    model_config = ConfigDict(json_schema_extra=_type_required)
