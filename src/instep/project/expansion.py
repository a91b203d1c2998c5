"""Entities with several targets (`targets: [main, pg]`): one for each of them, each with a life of its own.

`Document` becomes `Document__main` and `Document__pg`: letters, digits and underscores alone, so that these names are
references, keys on the bus and names of files like any other. No declared entity is called so, because its own name has
no two underscores in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from instep.domain.refs import entity_in, is_entity_name
from instep.project.documents import DocumentEntity
from instep.project.fields import problem

if TYPE_CHECKING:
    from instep.project.entities import Entity

Path: TypeAlias = tuple[str | int, ...]


def named_targets(name: str, entity: Entity) -> Iterator[tuple[Path, str]]:
    """The targets that an entity says, each with the place where it does."""
    if isinstance(entity, DocumentEntity) and entity.targets is not None:
        for index, each in enumerate(entity.targets):
            yield (name, "targets", index), each
    elif entity.target is not None:
        yield (name, "target"), entity.target


def expanded(entities: Mapping[str, Entity]) -> dict[str, Entity]:
    """Each with one target. Who depends on one that has several depends on all of them."""
    names = {name: _names(name, entity) for name, entity in entities.items()}
    found: dict[str, Entity] = {}
    for name, entity in entities.items():
        above = tuple(each for dependency in entity.depends_on for each in names[dependency])
        chosen = [target for _, target in named_targets(name, entity)]
        for each, target in zip(names[name], chosen, strict=True):
            found[each] = entity.model_copy(update={"target": target, "depends_on": above})
    return found


def _names(name: str, entity: Entity) -> Sequence[str]:
    if not isinstance(entity, DocumentEntity) or entity.targets is None:
        return (name,)
    found: list[str] = []
    for index, target in enumerate(entity.targets):
        path = (name, "targets", index)
        if target in entity.targets[:index]:
            raise problem("twice", "is named twice", path=path)
        found.append(entity_in(name, target))
        if not is_entity_name(found[-1]):
            message = "is one of several: its name must be letters, digits, underscores, at most 100 with the entity's"
            raise problem("target", message, path=path)
    return found
