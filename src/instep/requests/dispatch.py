"""Dispatch: publish requests, which handlers anywhere take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.bus.bus import Bus
from instep.domain.refs import GLOBAL, Scope
from instep.domain.requests import Kind, Request, RequestError, request_of
from instep.errors import UserError
from instep.telemetry import traces


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A request, and the entities whose handlers it is for. `watermark` is in milliseconds."""

    scope: Scope
    watermark: int
    entities: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        return {"scope": str(self.scope), "watermark": self.watermark, "entities": list(self.entities)}


def scopes_to_ask(
    kinds: Mapping[str, Kind], declared: Sequence[Scope], *, named: Sequence[Scope] = (), globals_too: bool = False
) -> list[Scope]:
    """What is named; without that, `global` and all declared namespaces, as far as there are entities for them.

    Raises `UserError` for a scope that no entity is for, and when nothing is left.
    """
    has = set(kinds.values())
    if named and Kind.NAMESPACE not in has:
        raise UserError("no entity has a `scope`: there are no namespaces", hint="Leave --namespace out.")
    if globals_too and Kind.GLOBAL not in has:
        raise UserError("every entity has a `scope`: none is global", hint="Leave --global out.")
    if named or globals_too:
        return [*([GLOBAL] if globals_too else []), *dict.fromkeys(named)]
    found = [*([GLOBAL] if Kind.GLOBAL in has else []), *(declared if Kind.NAMESPACE in has else [])]
    if not found:
        raise UserError(
            "no namespace is declared", hint="Name one, such as --namespace 42/9970, or list them in `namespaces:`."
        )
    return found


def dispatch(
    bus: Bus, kinds: Mapping[str, Kind], scopes: Sequence[Scope], *, watermark: int, now: int
) -> list[Dispatched]:
    """Ask that these scopes be fresh as of a watermark (ms), which may not be later than now: nothing that is asked
    after it would be newer.
    """
    if watermark > now:
        raise UserError("the watermark is in the future", hint="Leave --watermark out to ask for everything up to now.")
    with traces.span("request", scopes=", ".join(map(str, scopes[:20]))):
        bus.publish(*[_request(scope, watermark) for scope in scopes])
    return [
        Dispatched(scope, watermark, [name for name, kind in kinds.items() if kind is Kind.of(scope)])
        for scope in scopes
    ]


def _request(scope: Scope, watermark: int) -> Request:
    try:
        return request_of(scope, watermark * 1_000)
    except RequestError as error:
        raise UserError(f"namespace {scope} cannot be asked for: {error}") from error
