"""Tables of a graph: the declared node and edges of an entity, as the tables that a target needs.

One table holds the entity's nodes, and one per kind its edges. All are keyed by the key of the source's row, and the
ends of an edge are values in it. So removing an edge needs no lookup: when a foreign key changes, the row replaces its
edge; when one becomes null, the edge is deleted; when a row is deleted, so is everything with its key.

An edge by foreign key has the row itself for one end, and the node that its columns name for the other. An edge by join
table has both ends in columns; its table is an entity of its own, keyed by the join row's key. It needs no node: its
own table then holds only the keys of its rows.

End columns are named after the key of the node they lead to: `from_id`, `to_id`. They have its type, or that of the
column they come from if that is wider, so that the two can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from instep.domain.columns import STRING, Column, ColumnType, widens

#: PostgreSQL cuts names that are longer, and calls two equal then.
MAX_NAME = 63

#: Targets keep records of their own in a table of this kind.
_RESERVED_KIND = "instep"

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}\Z")


def is_table_name(name: str) -> bool:
    """Whether labels, properties and columns of tables may be called so."""
    return bool(_NAME.match(name))


def is_kind_name(name: str) -> bool:
    """Whether a kind of edges may be called so: it is part of the name of a table."""
    return is_table_name(name) and "__" not in name and name.lower() != _RESERVED_KIND


class GraphError(ValueError):
    """A declaration that no tables can be made of; says what to change."""


@dataclass(frozen=True, slots=True)
class Node:
    """`properties` by their names: the source's column for each."""

    label: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class End:
    """The node that an edge leads to: its label, and the source's columns that hold its key. Without columns it is the
    row itself.
    """

    label: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    kind: str
    start: End
    end: End


@dataclass(frozen=True, slots=True)
class GraphEntity:
    """The declaration of an entity of the graph. `columns` are the source's; `key` and `scope` are some of them."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    node: Node | None = None
    edges: tuple[Edge, ...] = ()
    scope: str | None = None

    def type_of(self, column: str) -> ColumnType:
        for each in self.columns:
            if each.name == column:
                return each.type
        raise GraphError(f"{self.name}: the source has no column {column!r}")

    def named(self, column: str) -> str:
        """The name in the tables of a column of the source: that of the first property that is made of it."""
        properties = self.node.properties if self.node else {}
        name = next((name for name, source in properties.items() if source == column), column)
        if not is_table_name(name):
            raise GraphError(f"{self.name}: column {column!r} cannot be called so in a table: make it a property")
        return name


NodeKeys: TypeAlias = Mapping[str, tuple[Column, ...]]


@dataclass(frozen=True, slots=True)
class GraphTable:
    """A table beside what every row has (`_ref`, `_instance`, `_version`, `_deleted`). `kind` is empty for the nodes.

    `sources` says which column of the source each of its columns is. `start` and `end` are the columns with the keys
    of an edge's nodes.
    """

    kind: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    scope: str | None
    sources: Mapping[str, str]
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()

    def deleted(self, row: Mapping[str, Any], *, deleted: bool) -> bool:
        """Whether a row (of this table's columns) is written as deleted: because the source's is, or because the edge
        has no end. As in SQL, one null is enough in a key of several columns.
        """
        return deleted or any(row[column] is None for column in (*self.start, *self.end))


def node_keys(entities: Iterable[GraphEntity]) -> NodeKeys:
    """The key of every label, under the names that it has in its table. One entity makes the nodes of a label."""
    found: dict[str, tuple[Column, ...]] = {}
    for entity in entities:
        if entity.node is None:
            continue
        label = entity.node.label
        _demand_name(entity, "label", label)
        if label.lower() in {other.lower() for other in found}:
            raise GraphError(f"{entity.name}: another entity makes the nodes {label!r} already")
        found[label] = tuple(Column(entity.named(column), entity.type_of(column)) for column in _key(entity))
    return found


def graph_tables(entity: GraphEntity, nodes: NodeKeys) -> tuple[GraphTable, ...]:
    """The entity's own table, and one for each kind of its edges. `nodes` are the keys of all labels (`node_keys`)."""
    if entity.node is None and not entity.edges:
        raise GraphError(f"{entity.name}: declare a node, or edges")
    own = _table(entity, "", _properties(entity))
    kinds = [edge.kind.lower() for edge in entity.edges]
    for edge in entity.edges:
        _demand_name(entity, "kind", edge.kind)
        if not is_kind_name(edge.kind):
            raise GraphError(f"{entity.name}: {edge.kind!r} cannot be a kind of edge: '__' and 'instep' are taken")
        if kinds.count(edge.kind.lower()) > 1:
            raise GraphError(f"{entity.name}: two kinds of edges are called {edge.kind!r}: a kind has one table")
    return (own, *(_edge_table(entity, edge, nodes) for edge in entity.edges))


def _edge_table(entity: GraphEntity, edge: Edge, nodes: NodeKeys) -> GraphTable:
    if not edge.start.columns and not edge.end.columns:
        raise GraphError(f"{entity.name}: edge {edge.kind!r} leads from the row to itself: name columns for one end")
    start = _end(entity, edge, edge.start, nodes, "from")
    end = _end(entity, edge, edge.end, nodes, "to")
    names = [tuple(column.name for column, _ in each) for each in (start, end)]
    return replace(_table(entity, edge.kind, (*start, *end)), start=names[0], end=names[1])


def _end(entity: GraphEntity, edge: Edge, end: End, nodes: NodeKeys, side: str) -> list[tuple[Column, str]]:
    """Columns of one end, each with the source's column that it is."""
    what = f"{entity.name}: edge {edge.kind!r}"
    key = nodes.get(end.label)
    if key is None:
        raise GraphError(f"{what} leads to {end.label!r}, and no entity declares such a node")
    if not end.columns and (entity.node is None or entity.node.label != end.label):
        raise GraphError(f"{what}: the row is not a {end.label!r}: name the columns that hold its key")
    columns = end.columns or entity.key
    if len(columns) != len(key):
        raise GraphError(f"{what}: the key of {end.label!r} is ({_listed(key)}), not {len(columns)} columns")
    found: list[tuple[Column, str]] = []
    for source, of_key in zip(columns, key, strict=True):
        kind = entity.type_of(source)
        wider = kind if widens(of_key.type, kind) else of_key.type
        if kind != wider and not widens(kind, wider):
            raise GraphError(f"{what}: {source!r} is {kind}, and {of_key.name!r} of {end.label!r} is {of_key.type}")
        if not wider.keys:
            raise GraphError(f"{what}: {source!r} is {kind}, which cannot be a key")
        found.append((Column(f"{side}_{of_key.name}", wider), source))
    return found


def _table(entity: GraphEntity, kind: str, others: Iterable[tuple[Column, str]]) -> GraphTable:
    """Key and scope, and the other columns, each with the source's that it is."""
    columns = [(Column(entity.named(source), entity.type_of(source)), source) for source in _key(entity)]
    key = tuple(column.name for column, _ in columns)
    scope = None
    if entity.scope is not None:
        scope = entity.named(entity.scope)
        if entity.type_of(entity.scope) != STRING:
            raise GraphError(f"{entity.name}: its scope {entity.scope!r} is not a column of text")
        columns.append((Column(scope, STRING), entity.scope))
    # Key and scope may be properties too; that is one column.
    distinct = dict.fromkeys([*columns, *others])
    _demand_distinct(entity, kind, [column.name for column, _ in distinct])
    sources = {column.name: source for column, source in distinct}
    return GraphTable(kind, tuple(column for column, _ in distinct), key, scope, sources)


def _properties(entity: GraphEntity) -> list[tuple[Column, str]]:
    properties = entity.node.properties if entity.node else {}
    for name in properties:
        _demand_name(entity, "property", name)
    return [(Column(name, entity.type_of(source)), source) for name, source in properties.items()]


def _key(entity: GraphEntity) -> tuple[str, ...]:
    if not entity.key or len(set(entity.key)) != len(entity.key):
        raise GraphError(f"{entity.name}: it needs a key of one or more different columns")
    for column in entity.key:
        if not entity.type_of(column).keys:
            raise GraphError(f"{entity.name}: {column!r} is {entity.type_of(column)}, which cannot be in a key")
    return entity.key


def _demand_name(entity: GraphEntity, what: str, name: str) -> None:
    if not is_table_name(name):
        raise GraphError(
            f"{entity.name}: {name!r} cannot be a {what}: use letters, digits and '_', "
            f"starting with a letter, at most {MAX_NAME}"
        )


def _demand_distinct(entity: GraphEntity, kind: str, names: Iterable[str]) -> None:
    """Spark tells names apart by more than their case only when it is asked to."""
    seen: dict[str, str] = {}
    for name in names:
        if other := seen.get(name.lower()):
            where = f"edge {kind!r}" if kind else "its node"
            raise GraphError(f"{entity.name}: {where} has {other!r} and {name!r}: name them apart")
        seen[name.lower()] = name


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(map(str, columns))
