"""The page: files of `instep.web`, as they are."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

import instep.web


def mount(app: FastAPI) -> None:
    """At `/`, with its `index.html`."""
    folder = Path(instep.web.__file__).parent
    app.mount("/", _Page(directory=folder, html=True), name="page")


class _Page(StaticFiles):
    """Its Python is no part of it."""

    def lookup_path(self, path: str) -> tuple[str, object]:  # type: ignore[override]  # os.stat_result or None
        if path.endswith(".py") or "__pycache__" in path:
            return "", None
        return super().lookup_path(path)
