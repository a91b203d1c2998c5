"""Base classes of all settings."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _type_required(schema: dict[str, Any]) -> None:
    schema["required"] = ["type", *schema.get("required", [])]


class Variant(Model):
    """One of several kinds, told apart by `type`."""

    model_config = ConfigDict(json_schema_extra=_type_required)
