"""The OpenAPI document, exact about errors: what stands before every route may answer too."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from instep.api.problems import Fault, Problem, responses

#: Of every route: no host, no token, another site's page, a body that is too large, a host that is not ours,
#: something unexpected, the ledger away.
_ALWAYS: Final = (400, 401, 403, 413, 421, 500, 503)
_TEMPLATE: Final = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # How FastAPI has its document extended.


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for model in (Problem, Fault):
        found = model.model_json_schema(ref_template=_TEMPLATE)
        found.pop("$defs", None)
        schemas[model.__name__] = found
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for operations in made["paths"].values():
        for method, operation in operations.items():
            found = operation["responses"]
            invalid = (422,) if "422" in found else ()
            for status, said in responses(*_ALWAYS, *invalid).items():
                found[str(status)] = said
            operation["responses"] = dict(sorted(found.items()))
            # Reads are open on a loopback address: there the token may be left out.
            operation["security"] = [{"token": []}] if method == "post" else [{"token": []}, {}]
    return made
