"""`/docs`: the API to read and to try, by Swagger UI. Its files come with a package: no other host is asked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.responses import FileResponse

from instep import web
from instep.api.dependencies import Server
from instep.errors import Missing

#: What the page asks for besides the files of `instep.web`.
_FILES: Final = ("swagger-ui-bundle.js", "swagger-ui.css")


def mount(app: FastAPI, _server: Server) -> None:
    page = Path(web.__file__).parent / "docs.html"

    @app.get("/docs", include_in_schema=False)
    def read_docs() -> FileResponse:
        _folder()
        return FileResponse(page)

    @app.get("/docs/{name}", include_in_schema=False)
    def read_file(name: str) -> FileResponse:
        if name not in _FILES:
            raise Missing(f"there is no file {name!r} of /docs")
        return FileResponse(_folder() / name)


def _folder() -> Path:
    found = find_spec("fastapi_swagger")
    if found is None or found.origin is None:
        raise Missing("the page of the API needs the package fastapi-swagger", hint="pip install 'instep[serve]'")
    return Path(found.origin).parent / "resources"
