"""Which partitions a project has, as users name them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from instep.domain.refs import PartitionRef, RefError
from instep.errors import UserError


def declared_ref(text: str, entities: Collection[str]) -> PartitionRef:
    """`Document` and `Document@global` are the same. Raises `UserError` for what the project does not declare."""
    try:
        ref = PartitionRef.parse(text)
    except RefError as error:
        raise UserError(str(error), hint=_declared(entities)) from error
    if ref.entity not in entities:
        raise UserError(f"no entity is named {ref.entity!r}", hint=_declared(entities))
    if not ref.scope.is_global:
        raise UserError(
            f"{ref} is not indexed by itself", hint=f"{ref.entity} is indexed as a whole: {ref.entity}@global."
        )
    return ref


def declared_refs(texts: Iterable[str], entities: Collection[str]) -> list[PartitionRef]:
    """Each once, in the order given."""
    return list(dict.fromkeys(declared_ref(text, entities) for text in texts))


def _declared(entities: Collection[str]) -> str:
    return f"Declared: {', '.join(entities)}."
