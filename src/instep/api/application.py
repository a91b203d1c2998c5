"""The application of `instep serve`: routes, progress, metrics, traces, and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import Headers
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from instep import __version__, web
from instep.api import (
    docs,
    failures,
    health,
    jobs,
    metrics,
    partitions,
    problems,
    progress,
    project,
    queues,
    search,
    wants,
)
from instep.api.dependencies import Server, demand_known_parameters
from instep.api.middleware import Access, Guard
from instep.api.problems import Fault, Problem, responses
from instep.api.worker_process import OwnWorker
from instep.app import Instep
from instep.project import Project
from instep.telemetry import traces
from instep.telemetry.context import in_trace, received

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


#: Requests that wait for ledger, sources and targets at once; others queue for them.
THREADS: Final = 16

ROUTERS: Final = tuple(each.router for each in (project, jobs, failures, wants, partitions, queues, search))

#: What is served beside `/api`. Each adds its routes, and to `server.background` what runs beside them.
BESIDE: Final[tuple[Callable[[FastAPI, Server], None], ...]] = (progress.mount, metrics.mount, health.mount, docs.mount)


def create_app(instep: Instep, *, token: str, loopback: bool, worker: Sequence[str] | None = None) -> FastAPI:
    """The API of a project under `/api`, and its page at `/`.

    `token` is required for changes, and for reads too unless only this machine reaches the server (`loopback`).
    `worker` is the command that starts a worker of this project for requests; without one, they are left to workers
    that were started elsewhere.
    """
    own = OwnWorker(worker)
    server = Server(instep, Access(token, loopback, readers_of(instep.project)), own, [own.running])

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        async with AsyncExitStack() as stack:
            for each in server.background:
                await stack.enter_async_context(each())
            yield

    app = FastAPI(
        title="Instep",
        version=__version__,
        description=f"The project {instep.project.name}: its indexes, its jobs, and requests for more.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # They would load their scripts from elsewhere: `docs.py` has a page without.
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.server = server
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router, prefix="/api", dependencies=[Depends(demand_known_parameters)])
    for mount in BESIDE:
        mount(app, server)
    traces.enabled()  # An error in the settings of traces shows now, not at the first request.
    app.add_middleware(Traced)
    install(app)
    # Last: it takes every path that is left.
    app.mount("/", Page(directory=Path(web.__file__).parent, html=True), name="page")
    app.add_middleware(Guard, access=server.access)
    return app


def readers_of(project: Project) -> dict[str, tuple[str, ...]]:
    """Principals by the tokens that stand for them."""
    return {each.token.get_secret_value(): each.principals for each in project.api.tokens}


class Page(StaticFiles):
    """The page: files of `instep.web` as they are, without its Python."""

    def lookup_path(self, path: str) -> tuple[str, object]:  # type: ignore[override]  # os.stat_result or None
        if path.endswith(".py") or "__pycache__" in path:
            return "", None
        return super().lookup_path(path)


class Traced:
    """ASGI middleware: the work of a request belongs to the trace of its client (`traceparent`)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        said = {"traceparent": headers.get("traceparent", ""), "tracestate": ",".join(headers.getlist("tracestate"))}
        with in_trace(received(said)):
            await self._app(scope, receive, send)
