"""Check `depends_on` between entities: the names exist, and there is no circle.

A partition waits for the same namespace of an entity that is indexed by namespaces, and for the one partition of a
global entity. A global entity cannot wait for namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instep.project.fields import problem

if TYPE_CHECKING:
    from instep.project.entities import Entity


def check_dependencies(entities: Mapping[str, Entity]) -> None:
    """Raises a validation error for a name that is not declared or cannot be waited for, or for the first circle in
    the order of the file."""
    for name, entity in entities.items():
        for index, each in enumerate(entity.depends_on):
            if each not in entities:
                raise problem("no_entity", "no such entity", path=(name, "depends_on", index), allowed=list(entities))
            if entities[each].namespaced and not entity.namespaced:
                message = "a global entity cannot wait for one that is indexed by namespaces: these are not all known"
                raise problem("scopes", message, path=(name, "depends_on", index))
    circle = _circle(entities)
    if circle is not None:
        first, second = circle[:2]
        path = (first, "depends_on", entities[first].depends_on.index(second))
        raise problem("circle", f"entities cannot wait for each other: {' → '.join(circle)}", path=path)


def _circle(entities: Mapping[str, Entity]) -> list[str] | None:
    """Names that lead back to the first of them, which is also the last; None if there are none such."""
    done: set[str] = set()
    for start in entities:
        # Without recursion: a long chain is no reason to fail.
        path, branches = [start], [iter(entities[start].depends_on)]
        while path:
            following = next(branches[-1], None)
            if following is None:
                done.add(path.pop())
                branches.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                path.append(following)
                branches.append(iter(entities[following].depends_on))
    return None
