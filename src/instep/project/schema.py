"""The JSON Schema of `instep.yaml`: for editors, for the reference page, and for error messages."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from functools import cache
from typing import Any

from instep.project.fields import Model
from instep.project.models import Project


def json_schema() -> dict[str, Any]:
    """JSON Schema of `instep.yaml`, for editors."""
    schema = Project.model_json_schema()
    for name, part in {**schema["$defs"], "Project": schema}.items():
        properties = part.get("properties", {})
        docs = _setting_docs(_models()[name]) if properties else {}
        for key, value in properties.items():
            value["description"] = docs[key]
            value.pop("title", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "instep.yaml"}


@cache
def _models() -> dict[str, type[Model]]:
    """The models of settings, by their names."""
    found: dict[str, type[Model]] = {}
    pending: list[type[Model]] = [Model]
    while pending:
        for each in pending.pop().__subclasses__():
            found[each.__name__] = each
            pending.append(each)
    return found


def _setting_docs(model: type[Model]) -> dict[str, str]:
    """Texts of a model's settings, those that it inherits among them."""
    texts: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, Model):
            texts |= _attribute_docs(each.__module__).get(each.__name__, {})
    return {field.alias or name: texts[name] for name, field in model.model_fields.items() if name in texts}


@cache
def _attribute_docs(module: str) -> dict[str, dict[str, str]]:
    """Texts below the fields of each class. (pydantic can read them too, but does so at every import.)"""
    found: dict[str, dict[str, str]] = {}
    for part in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(part, ast.ClassDef):
            found[part.name] = {
                field.target.id: inspect.cleandoc(str(doc.value.value)).replace("\n", " ")
                for field, doc in itertools.pairwise(part.body)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(doc, ast.Expr)
                and isinstance(doc.value, ast.Constant)
            }
    return found
