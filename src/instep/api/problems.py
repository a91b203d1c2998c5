"""Errors as `application/problem+json` (RFC 9457): what is wrong, and what can be done about it; no traceback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from instep.domain.filters import FilterError
from instep.domain.texts import cleaned
from instep.errors import Away, Conflict, Fenced, InstepError, Missing, Transient, Unknown, UserError

MEDIA_TYPE: Final = "application/problem+json"

#: Seconds after which what was away may be there again.
_RETRY_SECONDS: Final = 5


class Fault(BaseModel):
    """One wrong value of a request, and why."""

    at: str
    message: str


class Problem(BaseModel):
    """The reason why a request failed. `kind` names an error of Instep; `hint` says what to do; `position` is the
    character at which a filter is wrong, from 1.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    kind: str | None = None
    hint: str | None = None
    position: int | None = None
    errors: list[Fault] | None = None


def answer(
    status: int,
    detail: str,
    *,
    kind: str | None = None,
    hint: str | None = None,
    position: int | None = None,
    errors: Sequence[Fault] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    found = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        kind=kind,
        hint=hint,
        position=position,
        errors=list(errors) if errors is not None else None,
    )
    return JSONResponse(found.model_dump(exclude_none=True), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer all errors of routes in this form."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(InstepError, _own)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route may answer with, for its documentation."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {each: {"description": HTTPStatus(each).phrase, "content": content} for each in sorted(statuses)}


def status_of(error: InstepError) -> int:
    """The HTTP status of an error of Instep. What else is wrong with the request itself has been found before."""
    if isinstance(error, FilterError):
        return 400
    if isinstance(error, Missing):
        return 404
    if isinstance(error, Transient | Unknown | Away):
        return 503
    if isinstance(error, UserError | Conflict | Fenced):
        return 409
    return 500


async def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return answer(error.status_code, str(error.detail), headers=error.headers)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = [Fault(at=_place(each["loc"]), message=each["msg"]) for each in error.errors()]
    shown = "; ".join(f"{each.at}: {each.message}" for each in faults[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return answer(422, f"{shown}{more}", kind="Invalid", errors=faults)


async def _own(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InstepError)
    status = status_of(error)
    what, hint = (error.what, error.hint) if isinstance(error, UserError) else (str(error), None)
    headers = {"retry-after": str(_RETRY_SECONDS)} if status == 503 else None
    return answer(
        status,
        cleaned(what),
        kind=type(error).__name__,
        hint=cleaned(hint) if hint else None,
        position=error.position if isinstance(error, FilterError) else None,
        headers=headers,
    )


def _place(location: Sequence[int | str]) -> str:
    """`body.entities.0`."""
    return ".".join(map(str, location))
