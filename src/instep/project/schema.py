"""The JSON Schema of `instep.yaml`: for editors, for the reference page, and for error messages."""

from __future__ import annotations

import ast
import inspect
import itertools
from typing import Any

from instep.project import models


def json_schema() -> dict[str, Any]:
    """JSON Schema of `instep.yaml`, for editors."""
    schema = models.Project.model_json_schema()
    docs = _attribute_docs()
    for name, part in {**schema["$defs"], "Project": schema}.items():
        for key, value in part.get("properties", {}).items():
            value["description"] = docs[name, key]
            value.pop("title", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "instep.yaml"}


def _attribute_docs() -> dict[tuple[str, str], str]:
    """Texts below the fields of `models`. (pydantic can read them too, but does so at every import.)"""
    found: dict[tuple[str, str], str] = {}
    for part in ast.parse(inspect.getsource(models)).body:
        if isinstance(part, ast.ClassDef):
            for field, doc in itertools.pairwise(part.body):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(doc, ast.Expr)
                    and isinstance(doc.value, ast.Constant)
                ):
                    found[part.name, field.target.id] = inspect.cleandoc(str(doc.value.value)).replace("\n", " ")
    return found
