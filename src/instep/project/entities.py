"""Entities of a project together: the kind of each, and checks of names, labels, `depends_on` and queues.

Entities with several targets (`targets: [main, pg]`): one for each of them, each with a life of its own.

`Document` becomes `Document__main` and `Document__pg`: letters, digits and underscores alone, so that these names are
references, keys on the bus and names of files like any other. No declared entity is called so, because its own name has
no two underscores in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Discriminator, Tag

from instep.domain.graph import MAX_NAME, is_table_name
from instep.domain.refs import entity_in, is_entity_name, is_own_name
from instep.project.documents import DocumentEntity
from instep.project.fields import problem
from instep.project.queues import Queue
from instep.project.sources import TableSource
from instep.project.tables import TableEntity
from instep.project.targets import DOCUMENT_TARGETS, MAX_DIMENSIONS_IN, TABLE_TARGETS, Target, in_process

Path: TypeAlias = tuple[str | int, ...]


def named_targets(name: str, entity: Entity) -> Iterator[tuple[Path, str]]:
    """The targets that an entity says, each with the place where it does."""
    if isinstance(entity, DocumentEntity) and entity.targets is not None:
        for index, each in enumerate(entity.targets):
            yield (name, "targets", index), each
    elif entity.target is not None:
        yield (name, "target"), entity.target


def expanded(entities: Mapping[str, Entity]) -> dict[str, Entity]:
    """Entities with one target each. A dependency on one with several targets is one on all of them."""
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
            message = (
                "cannot be one of several targets: its name must be letters, digits and underscores, at most 100 with "
                "the entity's"
            )
            raise problem("target", message, path=path)
    return found


#: Tags of the two kinds: no key of a file is called so.
DOCUMENT: Final = "[document]"
TABLE: Final = "[table]"

_DOCUMENT_TYPES: Final = ("files", "feed")
_TABLE_TYPES: Final = ("spark", "clickhouse")
_TABLE_KEYS: Final = frozenset(TableEntity.model_fields) - frozenset(DocumentEntity.model_fields)

Entity: TypeAlias = DocumentEntity | TableEntity


def kind_of(declared: Any) -> str:
    """`DOCUMENT` or `TABLE`: of a table documents are made if `document` says how. If the type of the source is not
    known, the other keys tell.
    """
    if not isinstance(declared, Mapping):
        return TABLE if isinstance(declared, TableEntity) else DOCUMENT
    if "document" in declared:
        return DOCUMENT
    source = declared.get("source")
    kind = source.get("type") if isinstance(source, Mapping) else getattr(source, "type", None)
    if kind in _TABLE_TYPES:
        return TABLE
    return TABLE if kind not in _DOCUMENT_TYPES and not _TABLE_KEYS.isdisjoint(declared) else DOCUMENT


DeclaredEntity: TypeAlias = Annotated[
    Annotated[DocumentEntity, Tag(DOCUMENT)] | Annotated[TableEntity, Tag(TABLE)], Discriminator(kind_of)
]


def check_names(entities: Mapping[str, Entity]) -> None:
    seen: dict[str, str] = {}
    for name, entity in entities.items():
        if not is_entity_name(name):
            message = "an entity's name is letters, digits and underscores, starting with a letter, at most 100"
            raise problem("entity_name", message, path=(name,))
        if not is_own_name(name):
            # `User__FOLLOWS` is the table of an edge of `User`, and `User__1f0c2a7e` one of its physical indexes.
            message = "an entity's name has no two underscores in a row, and none at the end"
            raise problem("entity_name", message, path=(name,))
        if isinstance(entity, TableEntity) and not is_table_name(name):
            # It is the label of its node if that has no other.
            raise problem("entity_name", f"a table's name has at most {MAX_NAME} letters", path=(name,))
        if name.lower() in seen:
            # They share folders and tables, which may not tell the case apart.
            raise problem("entity_name", f"differs from {seen[name.lower()]} in case only", path=(name,))
        seen[name.lower()] = name


def check_engine(entities: Mapping[str, Entity], engine: str | None) -> None:
    for name, entity in entities.items():
        if engine != "inline":
            return
        if isinstance(entity, TableEntity) and entity.needs_spark:
            raise problem("conflict", "a table needs Spark, and `engine` is inline", path=(name, "source"))
        if entity.transform:
            raise problem("conflict", "a transform needs Spark, and `engine` is inline", path=(name, "transform"))
        if entity.needs_spark:
            message = "only unchanged Parquet files can be read without Spark, and `engine` is inline"
            raise problem("conflict", message, path=(name, "source"))


def check_graph(entities: Mapping[str, Entity]) -> None:
    """Check that one entity makes the nodes of a label, and that edges lead to existing labels."""
    labels: dict[str, str] = {}
    for name, path, label in _labels(entities):
        if label.lower() in labels:
            message = f"the entity {labels[label.lower()]} makes the nodes of this label already"
            raise problem("label", message, path=path)
        labels[label.lower()] = name
    known = tuple(label for _, _, label in _labels(entities))
    for name, entity in entities.items():
        for index, edge in enumerate(entity.edges if isinstance(entity, TableEntity) else ()):
            for side, end in (("from", edge.start), ("to", edge.end)):
                if end.label not in known:
                    at = (name, "edges", index, side, "label")
                    raise problem("label", "no entity makes nodes of this label", path=at, allowed=known)


def _labels(entities: Mapping[str, Entity]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Entities with a node, the path to its label, and the label."""
    for name, entity in entities.items():
        if isinstance(entity, TableEntity):
            if entity.node is not None:
                yield name, (name, "node", "label"), entity.node.label
            elif not entity.edges:
                yield name, (name,), name


def with_target(name: str, entity: Entity, targets: Mapping[str, Target]) -> Entity:
    """The entity with the name of its target, or of several, which take what it is made of."""
    fitting = [each for each, target in targets.items() if _takes(target, entity)]
    if not list(named_targets(name, entity)):
        if len(targets) > 1:
            message = "must name a target, because the project has several"
            raise problem("target", message, path=(name, "target"), allowed=fitting)
        entity = entity.model_copy(update={"target": next(iter(targets))})
    for path, found in named_targets(name, entity):
        if found not in targets:
            raise problem("target", "no such target", path=path, allowed=fitting)
        if found not in fitting:
            message = f"{_takers(entity)}, and this one is of the type {targets[found].type}"
            raise problem("target", message, path=path, allowed=fitting)
        if isinstance(entity, TableEntity) and entity.mapping and targets[found].type != "opensearch":
            message = f"is for a target of the type opensearch, and {found} is of the type {targets[found].type}"
            raise problem("mapping", message, path=(name, "mapping"))
    return entity


def check_dimensions(entities: Mapping[str, Entity], targets: Mapping[str, Target]) -> None:
    """Check that vectors are not longer than their target takes."""
    for name, entity in entities.items():
        if not isinstance(entity, DocumentEntity):
            continue
        for _, target in named_targets(name, entity):
            most = MAX_DIMENSIONS_IN.get(targets[target].type)
            if most is not None and entity.embed.dimensions > most:
                message = f"the target {target} ({targets[target].type}) takes vectors of at most {most:,} dimensions"
                raise problem("dimensions", message, path=(name, "embed", "dimensions"))


def check_processes(entities: Mapping[str, Entity], targets: Mapping[str, Target], engine: str | None) -> None:
    """Check that Spark, whose tasks are processes of their own, is not given targets that only one process can use."""
    chosen = [(name, entity, *found) for name, entity in entities.items() for found in named_targets(name, entity)]
    for name, entity, path, target in chosen:
        if not in_process(targets[target]):
            continue
        alone = f"the target {target} is one in this process, which tasks of Spark cannot reach: name a server"
        if entity.transform:
            raise problem("conflict", f"a transform needs Spark, and {alone}", path=(name, "transform"))
        if isinstance(entity, DocumentEntity) and entity.needs_spark:
            raise problem("conflict", f"the source needs Spark, and {alone}", path=(name, "source"))
        if engine == "spark":
            raise problem("conflict", f"`engine` is spark, and {alone}", path=path)


def _takes(target: Target, entity: Entity) -> bool:
    return target.type in (TABLE_TARGETS if isinstance(entity, TableEntity) else DOCUMENT_TARGETS)


def _takers(entity: Entity) -> str:
    tables = isinstance(entity, TableEntity)
    *most, last = TABLE_TARGETS if tables else DOCUMENT_TARGETS
    return f"{'tables' if tables else 'documents'} need a target of the type {', '.join(most)} or {last}"


def check_dependencies(entities: Mapping[str, Entity]) -> None:
    """Check dependencies. Raises a validation error for a name that is not declared or cannot be waited for, or for the
    first circle in the order of the file.

    A partition waits for the same namespace of an entity that is indexed by namespaces, and for the one partition of a
    global entity. A global entity cannot wait for namespaces.
    """
    for name, entity in entities.items():
        for index, each in enumerate(entity.depends_on):
            if each not in entities:
                raise problem("no_entity", "no such entity", path=(name, "depends_on", index), allowed=list(entities))
            if entities[each].namespaced and not entity.namespaced:
                message = (
                    "a global entity cannot wait for one that is indexed by namespaces: not all namespaces are known"
                )
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


def check_changes(entities: Mapping[str, Entity], queues: Mapping[str, Queue]) -> None:
    taken: dict[str, str] = {}
    for name, entity in entities.items():
        if not isinstance(entity, TableEntity) or entity.changes is None:
            continue
        wanted, path = entity.changes.queue, (name, "changes", "queue")
        if wanted not in queues:
            raise problem("queue", "no such queue", path=path, allowed=list(queues))
        if wanted in taken:
            message = f"{taken[wanted]} uses this queue already, and a queue gives each key once: declare another queue"
            raise problem("queue", message, path=path)
        taken[wanted] = name
        _check_rows(name, entity, wanted, queues[wanted])


def _check_rows(name: str, entity: TableEntity, wanted: str, queue: Queue) -> None:
    if entity.key != (queue.key,):
        message = f"must be {queue.key} alone, which is the key of the queue {wanted}"
        raise problem("key", message, path=(name, "key"))
    assert isinstance(entity.source, TableSource), "others have no queue"
    table = entity.source.table
    # The place may be another one, such as a replica.
    if table and _own(table) != _own(queue.source.table):
        message = f"must be {queue.source.table}, the table of the queue {wanted}; or declare another queue"
        raise problem("table", message, path=(name, "source", "table"))


def _own(table: str) -> str:
    """A table's name without database and schema, which one of the two may say and the other not."""
    return table.rpartition(".")[2].strip('`"').lower()
