"""Status of all namespaced entities in all namespaces, by their status keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from instep.answers.answer import Answer, ScopeText
from instep.bus.bus import StatusEntry, StatusKeys
from instep.domain import status
from instep.domain.refs import RefError, Scope
from instep.domain.status import IndexState, StatusKey
from instep.domain.texts import cleaned
from instep.errors import InstepError


class NamespaceStatus(Answer):
    namespace: ScopeText
    state: IndexState
    entities: dict[str, IndexState]


class Matrix(Answer):
    """States of entities in namespaces. A state of several is the worst of them."""

    state: IndexState
    entities: dict[str, IndexState]
    namespaces: tuple[NamespaceStatus, ...]
    notes: tuple[str, ...]


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
        return _answer(status.Matrix.unread(namespaces, entities, cleaned(str(error))))
    scopes = namespaces if only else sorted({*namespaces, *_namespaces(listed, entities)})
    return _answer(status.Matrix.of(listed, scopes, entities))


def _namespaces(listed: Iterable[StatusEntry], entities: Sequence[str]) -> set[Scope]:
    """Namespaces with a key of one of these entities, or with one of the old format. Thousands are listed: each
    namespace is parsed once.
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


def _answer(found: status.Matrix) -> Matrix:
    return Matrix(
        state=found.whole,
        entities={entity: found.of_entity(entity) for entity in found.entities},
        namespaces=tuple(
            NamespaceStatus(
                namespace=scope, state=found.of_scope(scope), entities=dict(zip(found.entities, row, strict=True))
            )
            for scope, row in found.rows.items()
        ),
        notes=found.notes,
    )
