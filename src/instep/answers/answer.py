"""Base of all answers: models that `--json`, HTTP and Python return alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema, to_jsonable_python

from instep.answers import shown
from instep.domain.refs import PartitionRef, Scope


class Answer(BaseModel):
    """Immutable. Can be made of an object that has attributes of the same names (`model_validate`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True, validate_by_name=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield from shown.in_line(shown.fields(self).items())

    def _repr_html_(self) -> str:
        return shown.pairs(shown.fields(self))


def _as_text(kind: type) -> GetPydanticSchema:
    text = core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema())
    schema = core_schema.is_instance_schema(kind, serialization=text)
    return GetPydanticSchema(lambda _source, _handler: schema)


#: References are objects in Python, and text in JSON.
Ref = Annotated[PartitionRef, _as_text(PartitionRef)]
ScopeText = Annotated[Scope, _as_text(Scope)]

#: For objects of the domain in fields that JSON does not show.
OBJECT = GetPydanticSchema(lambda _source, _handler: core_schema.any_schema())

#: The default of a field that Python has and JSON does not show.
HIDDEN: Any = Field(exclude=True)
#: The default of a field that JSON leaves out when it is None.
OPTIONAL: Any = Field(default=None, exclude_if=lambda value: value is None)


def as_json(value: Any) -> Any:
    """An answer, or what contains answers, as JSON has it."""
    return to_jsonable_python(value, by_alias=True, fallback=str)
