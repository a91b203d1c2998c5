"""Status of all namespaced entities in all namespaces, by their status keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from instep.bus.bus import StatusEntry, StatusKeys
from instep.domain.refs import RefError, Scope
from instep.domain.status import Matrix, StatusKey
from instep.domain.texts import cleaned
from instep.errors import InstepError


def status_matrix(
    keys: Callable[[], StatusKeys], entities: Sequence[str], namespaces: Sequence[Scope], *, only: bool
) -> Matrix:
    """Of these namespaces and, unless `only` they are asked for, of all that have keys of these entities.

    What cannot be read is Unknown: also all of it, when the bus is away.
    """
    prefix = str(StatusKey(namespaces[0], None)) if only and len(namespaces) == 1 else "status"
    try:
        listed = keys().under(prefix)
    except InstepError as error:
        return Matrix.unread(namespaces, entities, cleaned(str(error)))
    scopes = namespaces if only else sorted({*namespaces, *_namespaces(listed, entities)})
    return Matrix.of(listed, scopes, entities)


def _namespaces(listed: Iterable[StatusEntry], entities: Sequence[str]) -> set[Scope]:
    """Those that have a key of one of these entities, or one of the old format. Thousands are listed: each namespace
    is parsed once.
    """
    wanted, found = set(entities), set()
    for each in listed:
        prefix, _, last = each.key.rpartition(".")
        found.add(prefix if last in wanted else each.key if last.isdigit() else "")
    scopes = set()
    for prefix in found:
        _, _, dotted = prefix.partition(".")
        try:
            scopes.add(Scope.parse(dotted.replace(".", "/")))
        except RefError:
            continue
    return {scope for scope in scopes if not scope.is_global}


def matrix_dict(matrix: Matrix) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "state": str(matrix.whole),
        "entities": {entity: str(matrix.of_entity(entity)) for entity in matrix.entities},
        "namespaces": [
            {
                "namespace": str(scope),
                "state": str(matrix.of_scope(scope)),
                "entities": {entity: str(state) for entity, state in zip(matrix.entities, row, strict=True)},
            }
            for scope, row in matrix.rows.items()
        ],
        "notes": list(matrix.notes),
    }
