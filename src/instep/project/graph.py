"""Convert a declared table and handler into values of the domain."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain import graph
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Group, Kind
from instep.domain.rows import RowColumns
from instep.project.models import Project
from instep.project.tables import End, TableEntity


def node_of(name: str, entity: TableEntity, columns: Sequence[str]) -> graph.Node | None:
    """The node that a row of the entity `name` becomes; None for a join table. `columns` are the source's."""
    every = {each: each for each in columns}
    if entity.node is None:
        return None if entity.edges else graph.Node(name, every)
    properties = every if entity.node.properties is None else entity.node.properties
    return graph.Node(entity.node.label, properties)


def edges_of(entity: TableEntity) -> tuple[graph.Edge, ...]:
    return tuple(graph.Edge(each.kind, _end(each.start), _end(each.end)) for each in entity.edges)


def row_columns(entity: TableEntity) -> RowColumns:
    return RowColumns(entity.key, entity.scope, entity.watermark, entity.deleted, entity.order)


def policy_of(project: Project, kind: Kind) -> Policy:
    """The policy of requests of this kind."""
    declared = project.handlers.get(kind.value)
    if declared is None:
        return Policy()
    return Policy(declared.max_attempts, declared.backoff, declared.ack_wait, declared.group or "", declared.limit or 0)


def group_of(project: Project, ref: PartitionRef) -> Group | None:
    """The concurrency group of a partition; None if it is in none."""
    declared = project.handlers.get(Kind.of(ref.scope).value)
    if declared is None or declared.group is None or declared.limit is None:
        return None
    kinds = frozenset(Kind(kind) for kind, each in project.handlers.items() if each.group == declared.group)
    return Group(declared.group, declared.limit, kinds)


def _end(end: End) -> graph.End:
    return graph.End(end.label, end.columns)
