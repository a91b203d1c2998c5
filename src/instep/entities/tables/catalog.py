"""Catalog of a project's tables: columns are read from the sources, once each, when needed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from instep.domain.columns import TIMESTAMP, Column, TypeName
from instep.domain.graph import GraphEntity, GraphError, GraphTable, graph_tables, node_keys
from instep.errors import UserError
from instep.project.graph import edges_of, node_of, row_columns
from instep.project.tables import TableEntity
from instep.sources.tables.table_source import Sessions, TableSource

#: Types that a flag may be stored as.
_FLAGS = (TypeName.BOOL, TypeName.INT32, TypeName.INT64)


@dataclass(frozen=True)
class Catalog:
    """The declared table entities, by name, with their sources."""

    entities: Mapping[str, TableEntity]
    sources: Mapping[str, TableSource]
    spark: Sessions
    _known: dict[str, tuple[Column, ...]] = field(default_factory=dict)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Columns of an entity's source. Raises `UserError` when a declared column is missing or has the wrong type."""
        if name not in self._known:
            found = self.sources[name].columns(self.spark)
            _demand_columns(name, self.entities[name], found, self.sources[name].text)
            self._known[name] = found
        return self._known[name]

    def tables(self, name: str) -> tuple[GraphTable, ...]:
        """The tables that an entity is written to. Sources of entities at the ends of its edges are asked for their
        keys.
        """
        entity = self.entities[name]
        labels = {end.label for edge in entity.edges for end in (edge.start, edge.end)}
        named = [other for other in self.entities if other == name or self._label(other) in labels]
        graphs = {other: self._graph(other) for other in named}
        try:
            return graph_tables(graphs[name], node_keys(graphs.values()))
        except GraphError as error:
            raise UserError(str(error), hint="Look at `node` and `edges` of the entities, and `key`.") from error

    def _label(self, name: str) -> str | None:
        entity = self.entities[name]
        if entity.node is not None:
            return entity.node.label
        return None if entity.edges else name

    def _graph(self, name: str) -> GraphEntity:
        entity, columns = self.entities[name], self.columns(name)
        node = node_of(name, entity, [each.name for each in columns])
        return GraphEntity(name, columns, entity.key, node, edges_of(entity), entity.scope)


def _demand_columns(name: str, entity: TableEntity, columns: tuple[Column, ...], source: str) -> None:
    types = {each.name: each.type for each in columns}
    for column in row_columns(entity).named:
        if column not in types:
            near = difflib.get_close_matches(column, types, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(types) or 'none'}."
            raise UserError(f"{name}: {source} has no column {column!r}", hint=hint)
    if entity.watermark and types[entity.watermark] != TIMESTAMP:
        raise UserError(
            f"{name}: the watermark {entity.watermark!r} is {types[entity.watermark]}, and has to be a timestamp",
            hint="Cast it in `sql`, or leave `watermark` out: then all rows are read whenever the table has changed.",
        )
    if entity.deleted and types[entity.deleted].name not in _FLAGS:
        raise UserError(
            f"{name}: {entity.deleted!r} is {types[entity.deleted]}, and has to be a flag",
            hint="Make it a boolean in `sql`.",
        )
