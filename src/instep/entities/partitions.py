"""Partitions of a project, by the names that users give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from instep.domain.refs import GLOBAL, PartitionRef, RefError, Scope, nested
from instep.domain.texts import names_in, unknown_name
from instep.errors import Missing, UserError
from instep.project import Project


def declared_ref(text: str, project: Project) -> PartitionRef:
    """Parse a reference: `Document` and `Document@global` are the same. Raises `UserError` if the project does not
    declare it.
    """
    found = declared_refs([text], project)
    if len(found) > 1:
        raise UserError(f"{text!r} is {len(found):,} partitions", hint=f"Name one of them, such as {found[0]}.")
    return found[0]


def declared_refs(texts: Iterable[str], project: Project) -> list[PartitionRef]:
    """The references of these names, each once, in the order given. An entity with namespaces means its partitions in
    all that are declared; one with several targets means its partitions in all of them.
    """
    return list(dict.fromkeys(ref for text in names_in(texts) for ref in _named(text, project)))


def apart(refs: Sequence[PartitionRef], project: Project) -> Sequence[PartitionRef]:
    """The references themselves. Raises `UserError` if the namespace of one contains that of another or a declared one,
    or lies in it: rows would be shared.
    """
    if found := nested([*(ref.scope for ref in refs), *project.scopes]):
        outer, inner = found
        declared = [each for each in found if each in project.scopes]
        raise UserError(
            f"namespace {inner} lies in namespace {outer}: their rows would be the same",
            hint=f"The project declares {declared[0]}: name that." if declared else "Name either, not both.",
        )
    return refs


def demand_declared(ref: PartitionRef, project: Project) -> None:
    """Check that the project can have the partition. Raises `UserError` if it declares no such entity with such a
    scope, or if the namespace shares rows with a declared one.
    """
    entity = project.entities.get(ref.entity)
    if entity is None or entity.namespaced is ref.scope.is_global:
        raise UserError(f"the project declares no partition {ref}", hint=_declared(project))
    apart([ref], project)


class QueuesAlone(UserError):
    """A command about entities in a project that has none: wrong use (EX_USAGE of sysexits.h)."""

    exit_code = 64

    def __init__(self, queues: Iterable[str]) -> None:
        first, *others = queues
        super().__init__(
            f"there are no entities in this project, only queues: {', '.join([first, *others])}",
            hint=f"Queues are used by `instep queue …`, such as: instep queue status {first}",
        )


def all_refs(project: Project) -> list[PartitionRef]:
    """The partitions of all entities, in the declared namespaces."""
    return [ref for name in project.entities for ref in _partitions(name, project)]


def demanded_refs(project: Project) -> list[PartitionRef]:
    """All partitions of the project. Raises `QueuesAlone` for a project without entities."""
    if not project.entities:
        raise QueuesAlone(project.queues)
    return all_refs(project)


def wanted_refs(texts: Sequence[str], namespaces: Sequence[Scope], project: Project) -> list[PartitionRef]:
    """The partitions that a want names: those of `texts`, or of all entities if there are none. With `namespaces`, the
    partitions of these entities there, whether the namespaces are declared or not; entities without a scope are none.
    """
    return list(apart(_wanted(texts, namespaces, project), project))


def _wanted(texts: Sequence[str], namespaces: Sequence[Scope], project: Project) -> list[PartitionRef]:
    if not namespaces:
        found = declared_refs(texts, project) if texts else demanded_refs(project)
        if not found:
            raise UserError(
                "no namespace is declared", hint="Name one, such as --namespace 42/9970, or list them in `namespaces:`."
            )
        return found
    if not project.entities:
        raise QueuesAlone(project.queues)
    names = [name for text in texts for name in _namespaced(text, project)]
    names = names or [name for name, each in project.entities.items() if each.namespaced]
    if not names:
        raise UserError("no entity has a `scope`: there are no namespaces", hint="Leave --namespace out.")
    return [PartitionRef(name, scope) for name in dict.fromkeys(names) for scope in dict.fromkeys(namespaces)]


def _namespaced(text: str, project: Project) -> Sequence[str]:
    """The entities that are meant by a name beside --namespace."""
    names = project.named(text)
    if not names and "@" in text:
        raise UserError(f"{text} names a namespace itself", hint="Leave --namespace out, or name the entity alone.")
    if not names:
        raise _unknown(text, project)
    if not project.entities[names[0]].namespaced:
        raise UserError(f"{text} has no `scope`: it is in no namespace", hint="Leave --namespace out.")
    return names


def upstream_refs(project: Project, ref: PartitionRef) -> tuple[PartitionRef, ...]:
    """The upstream of a partition: the same namespace of an entity with namespaces, the whole of others."""
    return tuple(
        PartitionRef(each, ref.scope if project.entities[each].namespaced else GLOBAL)
        for each in dict.fromkeys(project.entities[ref.entity].depends_on)
    )


def all_upstream_refs(project: Project, refs: Iterable[PartitionRef]) -> list[PartitionRef]:
    """The upstream of these, direct or not, without themselves: the nearest first."""
    asked = list(refs)
    found, pending = dict.fromkeys(asked), list(asked)
    while pending:
        above = [ref for ref in upstream_refs(project, pending.pop(0)) if ref not in found]
        found |= dict.fromkeys(above)
        pending += above
    return [ref for ref in found if ref not in asked]


def _named(text: str, project: Project) -> Sequence[PartitionRef]:
    try:
        ref = PartitionRef.parse(text)
    except RefError as error:
        raise Missing(str(error), hint=_declared(project)) from error
    names = project.named(ref.entity)
    if not names:
        raise _unknown(ref.entity, project)
    namespaced = project.entities[names[0]].namespaced
    if not ref.scope.is_global and not namespaced:
        raise UserError(
            f"{ref} is not indexed by itself", hint=f"{ref.entity} is indexed as a whole: {ref.entity}@global."
        )
    if not namespaced or not ref.scope.is_global:
        return [PartitionRef(name, ref.scope) for name in names]
    if "@" in text:
        raise UserError(
            f"{ref.entity} is not indexed as a whole", hint=f"Name a namespace, such as {ref.entity}@42/9970."
        )
    found = _partitions(ref.entity, project)
    if not found:
        raise UserError(
            f"{ref.entity} is indexed by namespaces, and none is declared",
            hint=f"List them in `namespaces:`, or name one, such as {ref.entity}@42/9970.",
        )
    return found


def _partitions(name: str, project: Project) -> list[PartitionRef]:
    scopes = project.scopes if project.entities[name].namespaced else (GLOBAL,)
    return [PartitionRef(name, scope) for scope in scopes]


def _unknown(name: str, project: Project) -> Missing:
    what, hint = unknown_name("entity", name, project.own_names)
    return Missing(what, hint=hint)


def _declared(project: Project) -> str:
    return f"Declared: {', '.join(project.own_names)}."
