"""Shared state of the routes of one server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin

from fastapi import Depends, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from starlette.requests import HTTPConnection

from instep.api.middleware import Access
from instep.api.worker_process import OwnWorker
from instep.app import Instep

#: The name of the API's users in the ledger.
BY = "api"


@dataclass(frozen=True, slots=True)
class Server:
    """`background`: what runs beside the routes for as long as the server does; each is entered when the server
    begins, and left, the last first, when it ends.
    """

    instep: Instep
    access: Access
    worker: OwnWorker
    background: list[Callable[[], AbstractAsyncContextManager[None]]] = field(default_factory=list)


def server_of(connection: HTTPConnection) -> Server:
    found = connection.app.state.server
    assert isinstance(found, Server)
    return found


def _instep_of(connection: HTTPConnection) -> Instep:
    return server_of(connection).instep


def _worker_of(connection: HTTPConnection) -> OwnWorker:
    return server_of(connection).worker


def _principals_of(connection: HTTPConnection) -> tuple[str, ...]:
    return server_of(connection).access.principals(connection.headers.get("authorization"))


def demand_known_parameters(connection: HTTPConnection) -> None:
    """Refuse a parameter that the route does not have, or that is there twice and is no list: passed over, a filter
    would be none.
    """
    route = connection.scope["route"]
    fields = [each for each in get_flat_params(route.dependant) if isinstance(each.field_info, params.Query)]
    known = {each.alias for each in fields}
    lists = {each.alias for each in fields if _is_list(each.field_info.annotation)}
    given = Counter(name for name, _ in connection.query_params.multi_items())
    wrong = [
        {"loc": ("query", name), "msg": f"there is no such parameter; allowed: {', '.join(sorted(known)) or 'none'}"}
        for name in given
        if name not in known
    ]
    wrong += [
        {"loc": ("query", name), "msg": "it may be given once"}
        for name, count in given.items()
        if count > 1 and name in known - lists
    ]
    if wrong:
        raise RequestValidationError(wrong)


def _is_list(annotation: Any) -> bool:
    return any(get_origin(each) is list for each in (annotation, *get_args(annotation)))


#: The principals that the token of a request stands for; none without such a token.
AskingPrincipals = Annotated[tuple[str, ...], Depends(_principals_of)]

#: The worker that this server may start.
ServerWorker = Annotated[OwnWorker, Depends(_worker_of)]

#: The project, as the parameter of a route. Routes that ask it are plain functions: they run in a pool of threads.
ProjectInstep = Annotated[Instep, Depends(_instep_of)]
