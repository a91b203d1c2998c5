"""Requests: make everything in a scope fresh as of a watermark. There are two kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from instep.domain.refs import GLOBAL, PartitionRef, RefError, Scope

#: No request is larger than this, on no bus.
MAX_BYTES: Final = 1_024
MAX_PATH: Final = 150
MAX_WATERMARK: Final = 2**63 - 1


class RequestError(ValueError):
    """An invalid request; says which field is wrong, and how."""


class Kind(StrEnum):
    """The scopes that an entity has; the value is the type of a request."""

    GLOBAL = "global"
    NAMESPACE = "namespace"

    @classmethod
    def of(cls, scope: Scope) -> Kind:
        return cls.GLOBAL if scope.is_global else cls.NAMESPACE


@dataclass(frozen=True, slots=True)
class GlobalRequest:
    """A request that all global entities be fresh as of `watermark`, in microseconds since 1970-01-01 UTC."""

    kind: ClassVar[Kind] = Kind.GLOBAL

    watermark: int

    def __post_init__(self) -> None:
        _demand_watermark(self.watermark)

    @property
    def scope(self) -> Scope:
        return GLOBAL


@dataclass(frozen=True, slots=True)
class NamespaceRequest:
    """A request that all namespaced entities be fresh in one namespace, given by its traversal path (`42/9970/`)."""

    kind: ClassVar[Kind] = Kind.NAMESPACE

    path: str
    watermark: int

    def __post_init__(self) -> None:
        _demand_watermark(self.watermark)
        object.__setattr__(self, "path", _namespace(self.path).path)

    @property
    def scope(self) -> Scope:
        return Scope(self.path)


Request = GlobalRequest | NamespaceRequest


# Subjects: as NATS has them, tokens between dots.


def subject_of(scope: Scope) -> str:
    """`request.global`, `request.namespace.42.9970`."""
    return f"request.{dotted(scope)}"


def dotted(scope: Scope) -> str:
    """`global`, `namespace.42.9970`."""
    return "global" if scope.is_global else f"namespace.{str(scope).replace('/', '.')}"


def scope_of_dotted(text: str) -> Scope:
    """The scope of which this is `dotted`. Raises `RequestError` for anything else."""
    kind, _, path = text.partition(".")
    try:
        scope = Scope.parse(path.replace(".", "/")) if kind == "namespace" else Scope.parse(text)
    except RefError as error:
        raise RequestError(f"no scope has the subject {text[:200]!r}") from error
    if dotted(scope) != text:
        raise RequestError(f"no scope has the subject {text[:200]!r}")
    return scope


# As JSON.


def encode(request: Request) -> bytes:
    fields: dict[str, Any] = {"type": request.kind.value}
    if isinstance(request, NamespaceRequest):
        fields["path"] = request.path
    return json.dumps(fields | {"watermark": request.watermark}, separators=(",", ":")).encode()


def decode(data: bytes) -> Request:
    """Decode a request. Raises `RequestError` for whatever `encode` would not have made (its spaces, and their order,
    aside).
    """
    if len(data) > MAX_BYTES:
        raise RequestError(f"a request has at most {MAX_BYTES} bytes, not {len(data)}")
    try:
        fields = json.loads(data, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError("a request must be JSON in UTF-8") from error
    if not isinstance(fields, dict):
        raise RequestError("a request must be a JSON object")
    kind = fields.get("type")
    if kind == Kind.GLOBAL:
        return GlobalRequest(**_only(fields, "watermark"))
    if kind == Kind.NAMESPACE:
        return NamespaceRequest(**_only(fields, "path", "watermark"))
    raise RequestError("type: must be 'global' or 'namespace'")


def _only(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        if name not in fields:
            raise RequestError(f"{name}: is missing")
    for name in fields:
        if name not in ("type", *names):
            raise RequestError(f"{name[:40]}: is not a field of a {fields['type']} request")
    return {name: fields[name] for name in names}


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise RequestError("a request must not name a field twice")
    return fields


def _demand_watermark(watermark: object) -> None:
    if not isinstance(watermark, int) or isinstance(watermark, bool) or not 0 <= watermark <= MAX_WATERMARK:
        raise RequestError(f"watermark: must be a whole number from 0 to {MAX_WATERMARK}")


def _namespace(path: object) -> Scope:
    if not isinstance(path, str) or len(path) > MAX_PATH:
        raise RequestError(f"path: must be a traversal path of at most {MAX_PATH} characters")
    try:
        scope = Scope.parse(path)
    except RefError:
        scope = GLOBAL
    if scope.is_global:
        raise RequestError("path: must be a traversal path such as 42/9970/")
    return scope


@dataclass(frozen=True, slots=True)
class Group:
    """At most `limit` partitions of these kinds of scope are in work, that is, leased."""

    name: str
    limit: int
    kinds: frozenset[Kind]

    def has(self, ref: PartitionRef) -> bool:
        return Kind.of(ref.scope) in self.kinds
