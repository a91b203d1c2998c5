"""Wire table entities: declarations become sources, targets and setups."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from instep.domain.columns import TIMESTAMP, Column, TypeName
from instep.domain.fingerprint import ROWS, TARGET, digest
from instep.domain.graph import GraphEntity, GraphError, GraphTable, graph_tables, node_keys
from instep.domain.manifest import DeleteGuard
from instep.domain.refs import PartitionRef, Scope
from instep.entities.lakes import lake_rows
from instep.entities.partitions import upstream_refs
from instep.entities.table_places import place_of
from instep.entities.tables.adapters import Slicing
from instep.entities.tables.change_queue import EntityQueue
from instep.entities.tables.setup import TableSetup
from instep.errors import UserError
from instep.pipeline.code_fingerprint import loaded_fingerprint
from instep.pipeline.loading import load_transform
from instep.pipeline.revision import revision_of
from instep.project import Project
from instep.project.load import declared_at
from instep.project.sources import ClickHouseSource, LakeSource, SparkSource
from instep.project.tables import TableEntity, edges_of, node_of, row_columns, used_columns
from instep.queues.open import open_queue
from instep.sources.tables.table_source import NamedTransform, Sessions, TableSource
from instep.targets.table_target import Mappable, TableTarget

#: Types that a flag may be stored as.
_FLAGS = (TypeName.BOOL, TypeName.INT32, TypeName.INT64)


@dataclass(frozen=True)
class Catalog:
    """The declared table entities, by name, with their sources."""

    entities: Mapping[str, TableEntity]
    sources: Mapping[str, TableSource]
    spark: Sessions
    #: Columns that were asked for last, by this or an earlier catalog.
    seen: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    _known: dict[str, tuple[Column, ...]] = field(default_factory=dict)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Columns of an entity's source. Raises `UserError` when a declared column is missing or has the wrong type."""
        if name not in self._known:
            found = self.sources[name].columns(self.spark)
            _demand_columns(name, self.entities[name], found, self.sources[name].text)
            self._known[name] = self.seen[name] = found
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
            raise UserError(str(error), hint="Check `node` and `edges` of the entities, and `key`.") from error

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


@dataclass(frozen=True)
class TableEntities:
    """The table entities of a project, wired on demand. `target` returns a target by its name."""

    project: Project
    spark: Sessions
    target: Callable[[str], TableTarget]
    seen: dict[str, tuple[Column, ...]] = field(default_factory=dict)

    def catalog(self) -> Catalog:
        entities = {name: each for name, each in self.project.entities.items() if isinstance(each, TableEntity)}
        return Catalog(entities, {name: table_source(self.project, name) for name in entities}, self.spark, self.seen)

    def setup(self, name: str, scope: Scope, catalog: Catalog) -> TableSetup:
        """One entity in one scope. Makes no query to a source."""
        entity, source = catalog.entities[name], catalog.sources[name]
        target = self.target(self.project.target_of(name)).within(scope.path)
        if entity.mapping and isinstance(target, Mappable):
            place = declared_at(self.project, "entities", name, "mapping")
            target = target.mapped(entity.mapping.model_dump(mode="json", exclude_defaults=True), place)
        return TableSetup(
            ref=PartitionRef(name, scope),
            source=source,
            source_text=source.text,
            local_sources=self.project.local_sources(name),
            target=target,
            mapping=entity.mapping is not None,
            target_name=self.project.target_of(name),
            buckets=1,
            priority=entity.priority,
            needs_spark=entity.needs_spark,
            fingerprints=cache(
                partial(_fingerprint, entity, source, self.project.target_location(self.project.target_of(name)))
            ),
            ttl=entity.ttl,
            revision=lambda: revision_of(self.project.root),
            depends_on=upstream_refs(self.project, PartitionRef(name, scope)),
            rebuild_with_upstream=entity.rebuild_with_upstream,
            spark=self.spark,
            rows=row_columns(entity),
            slicing=Slicing(
                None if entity.slices == "auto" else entity.slices,
                entity.cuts == "even",
                entity.slice_rows,
                entity.work_factor,
            ),
            lag=entity.watermark_lag,
            reconcile=entity.reconcile,
            batch_rows=entity.batch_rows,
            guard=DeleteGuard(entity.deletes.share, entity.deletes.floor, entity.deletes.window),
            columns=partial(catalog.columns, name),
            tables=partial(catalog.tables, name),
            queue=self._queue(entity),
            needed=self.project.promotion_ratio,
            declared=self.project.scopes,
        )

    def _queue(self, entity: TableEntity) -> EntityQueue | None:
        if entity.changes is None:
            return None
        name = entity.changes.queue
        return EntityQueue(name, self.project.queues[name].keys.kind, partial(open_queue, self.project, name))


def table_source(project: Project, name: str) -> TableSource:
    entity = project.entities[name]
    assert isinstance(entity, TableEntity), "only tables have table sources"
    declared = project.resolved_source(name)
    transform = NamedTransform(partial(load_transform, entity.transform)) if entity.transform else None
    if isinstance(declared, SparkSource):
        from instep.sources.tables.spark_tables import SparkTable

        return SparkTable(
            format=declared.format,
            path=declared.path or (),
            table=declared.table,
            options=declared.reader_options(),
            sql=declared.sql,
            transform=transform,
            transform_name=entity.transform or "",
        )
    if isinstance(declared, LakeSource):
        from instep.sources.tables.lake_table import LakeTable

        return LakeTable(lake_rows(declared), used=used_columns(entity))
    from instep.sources.tables.clickhouse import ClickHouseTable

    assert isinstance(declared, ClickHouseSource), "there is no other"
    return ClickHouseTable(declared.uri, declared.table, sql=declared.sql, transform=transform)


def _fingerprint(entity: TableEntity, source: TableSource, location: str) -> Mapping[str, str]:
    """Fingerprint of everything that decides a row's content, but its columns: these are read only if there is work.
    And the location of the target.
    """
    declared = entity.model_dump(mode="json")
    parts = {
        "source": [entity.source.type, *place_of(entity.source, source.text), getattr(entity.source, "sql", None)],
        "key": [declared[name] for name in ("key", "scope", "watermark", "deleted")],
        "graph": [declared["node"], declared["edges"]],
    }
    made = {part: digest(value) for part, value in parts.items()} | {TARGET: location}
    if entity.transform:
        made["transform"] = loaded_fingerprint(entity.transform, load_transform(entity.transform))
    if entity.mapping:
        made["mapping"] = digest(declared["mapping"])
    if entity.changes:
        made["changes"] = digest(entity.changes.queue)
    elif entity.watermark is None and not isinstance(entity.source, LakeSource):
        made[ROWS] = source.state() or ""
    return made
