"""Entities made of tables: which columns say what a row is, and the nodes and edges that rows become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from instep.domain import graph
from instep.domain.graph import MAX_NAME, is_kind_name, is_table_name
from instep.domain.planning import MAX_SLICES_PER_ENTITY
from instep.domain.rows import RowColumns
from instep.project.entity import Deletes, EntityBase
from instep.project.fields import AnyColumns, Columns, Duration, Model, Pause, Text, Whole, problem
from instep.project.sources import DeclaredRows, LakeSource

MAX_BATCH_ROWS = 1_000_000

_NAME_RULE = f"letters, digits and underscores, starting with a letter, at most {MAX_NAME}"


def _slices(value: Any) -> Any:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    whole = isinstance(number, int) and not isinstance(number, bool)
    if value != "auto" and not (whole and 1 <= number <= MAX_SLICES_PER_ENTITY):
        raise problem("slices", f"must be `auto`, or a number from 1 to {MAX_SLICES_PER_ENTITY}")
    return number


def _by_name(value: Any) -> Any:
    """A list of columns is short for a mapping, in which each has its own name."""
    if not isinstance(value, list | tuple):
        return value
    for index, each in enumerate(value):
        if not isinstance(each, str):
            raise problem("text", "must be text (put it in quotes)", path=(index,))
        if not is_table_name(each):
            message = f"cannot be a property: {_NAME_RULE}; write `property: column` to give it another name"
            raise problem("name", message, path=(index,))
        if each in value[:index]:
            raise problem("twice", "is named twice", path=(index,))
    return {each: each for each in value}


Path: TypeAlias = tuple[str | int, ...]
Slices = Annotated[
    Literal["auto"] | int,
    BeforeValidator(_slices),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_SLICES_PER_ENTITY}]}),
]
Properties = Annotated[
    Mapping[str, Text],
    BeforeValidator(_by_name),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string", "minLength": 1}},
                {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
            ]
        }
    ),
]


class Node(Model):
    """Nodes that the rows of a table become in the graph."""

    label: str
    """Label of the nodes. Each label belongs to one entity of the project."""
    properties: Properties | None = None
    """Columns that become properties, as a list or as `property: column`. All columns if left out."""

    @field_validator("label")
    @classmethod
    def _plain_label(cls, value: str) -> str:
        if not is_table_name(value):
            raise problem("label", f"a label is {_NAME_RULE}")
        return value

    @field_validator("properties")
    @classmethod
    def _plain_properties(cls, value: Mapping[str, str] | None) -> Mapping[str, str] | None:
        seen: set[str] = set()
        for name in value or ():
            if not is_table_name(name):
                raise problem("name", f"the name of a property is {_NAME_RULE}", path=(name,))
            if name.lower() in seen:
                raise problem("name", "differs from another property in case only", path=(name,))
            seen.add(name.lower())
        return value


class End(Model):
    """One end of an edge."""

    label: Text
    """Label of the node at this end. Must be the label of an entity of this project."""
    columns: AnyColumns = ()
    """Columns that hold the node's key, in the order of the key. Without them, this end is the row itself."""


class Edge(Model):
    """A relation of a row: by a foreign key, or by a join table (both ends in columns)."""

    kind: str
    """Kind of the edge, such as `AUTHORED`. An entity has each kind only once."""
    start: End = Field(alias="from")
    """Node where the edge begins."""
    end: End = Field(alias="to")
    """Node where the edge ends."""

    @field_validator("kind")
    @classmethod
    def _plain_kind(cls, value: str) -> str:
        if not is_kind_name(value):
            raise problem("kind", f"a kind is {_NAME_RULE}, without two underscores in a row, and not `instep`")
        return value

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if not self.start.columns and not self.end.columns:
            raise problem("ends", "leads from the row to itself: name `columns` for one end")
        return self


class IndexMapping(Model):
    """Settings of an index of OpenSearch or Elasticsearch, in addition to those that Instep makes by itself."""

    properties: dict[str, dict[str, Any]] = Field(default={})
    """Fields by column, such as `title: {type: text, analyzer: german}`. A field of another type than Instep's is used
    as it is; otherwise its settings override Instep's own."""
    analysis: dict[str, Any] = Field(default={})
    """Analysers, filters and tokenizers that the fields use."""
    settings: dict[str, Any] = Field(default={})
    """Settings of the index, such as `number_of_shards: 3`."""


class Changes(Model):
    """Source of changes, instead of the watermark."""

    queue: Text
    """Name of a pending queue under `queues`. A run indexes the pending keys, and acknowledges them."""


class TableEntity(EntityBase):
    """Rows of a table: their source, the columns that identify them and show changes, and what they become in the
    index."""

    source: DeclaredRows
    """Source of the rows."""
    key: Columns
    """Column or columns that identify a row. Never null."""
    scope: Text | None = None
    """Column with the traversal path (`42/9970/`) of the row's namespace. Without it, the entity is global."""
    watermark: Text | None = None
    """Column with the time of a row's last change. Without it, all rows are read whenever the table has changed."""
    watermark_lag: Pause = Field(default=300_000, json_schema_extra={"default": "5m"})
    """Maximum delay of a row: how far its watermark may be below the greatest one that a run has seen. Set it to more
    than your longest transaction takes, plus the difference of clocks. `instep reconcile` finds rows that come later.
    """
    reconcile: Duration | None = None
    """Time after which a run compares all keys with the index, as `instep reconcile` does, and repairs differences,
    such as `7d`. Never if left out."""
    deleted: Text | None = None
    """Column that is true for deleted rows."""
    changes: Changes | None = None
    """Source of changes, instead of the watermark."""
    order: AnyColumns = ()
    """Columns by which the source is sorted. The scope and the key if left out."""
    slices: Slices = "auto"
    """Number of slices of a first run, and of a window with many changed rows: `auto` (as many as the rows need), or a
    maximum."""
    cuts: Literal["balanced", "even"] = "balanced"
    """Way of cutting slices: `balanced` (the same number of rows in each), or `even` (the same range of the key in
    each)."""
    batch_rows: Whole = Field(default=50_000, ge=1, le=MAX_BATCH_ROWS)
    """Maximum number of rows in an Arrow batch that a task works on at once."""
    transform: str | None = None
    """`package.module:function`, from a DataFrame of the source's rows to another."""
    node: Node | None = None
    """Node that a row becomes in the graph. Without `node` and `edges`: a node named like the entity, with all columns.
    """
    edges: tuple[Edge, ...] = ()
    """Relations of a row. With `edges` and without `node`, the table is a join table."""
    mapping: IndexMapping | None = None
    """Fields, analysers and settings of the index. Only for targets of the type `opensearch`."""
    deletes: Deletes = Deletes()
    """Limits on what a run may delete, or a rebuild may lose, without `--allow-deletes`."""

    @property
    def namespaced(self) -> bool:
        return self.scope is not None

    @property
    def needs_spark(self) -> bool:
        """Whether no other engine can read it."""
        return not isinstance(self.source, LakeSource)

    @model_validator(mode="after")
    def _versions_fit(self) -> Self:
        if isinstance(self.source, LakeSource):
            for name in ("watermark", "changes"):
                if getattr(self, name) is not None:
                    message = f"is not needed: the versions of {self.source.type} say what has changed"
                    raise problem("conflict", message, path=(name,))
            if self.transform is not None:
                message = (
                    f"needs a source that Spark reads, and {self.source.type} is read without Spark: use `type: spark`"
                )
                raise problem("conflict", message, path=("transform",))
        return self

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        if "watermark_lag" in self.model_fields_set and self.watermark_lag and self.watermark is None:
            raise problem("conflict", "needs a `watermark`", path=("watermark_lag",))
        if self.reconcile is not None and self.watermark is None:
            raise problem("conflict", "needs a `watermark`: without one each run reads all", path=("reconcile",))
        roles: dict[str, str] = {}
        for role in ("scope", "watermark", "deleted"):
            column = getattr(self, role)
            if column in roles:
                raise problem("twice", f"is the column of `{roles[column]}` already", path=(role,))
            if column is not None:
                roles[column] = role
        return self

    @model_validator(mode="after")
    def _changes_fit(self) -> Self:
        if self.changes and self.scope:
            message = "cannot be set together with `changes`: the keys of a queue have no namespaces"
            raise problem("conflict", message, path=("scope",))
        if self.changes and self.reconcile is not None:
            raise problem("conflict", "cannot be set together with `changes`", path=("reconcile",))
        if self.changes and "watermark_lag" in self.model_fields_set and self.watermark_lag:
            raise problem("conflict", "with `changes`, set `settle` of the queue instead", path=("watermark_lag",))
        return self

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        """Names in the tables differ by more than case, and a column takes that of the first property made of it."""
        properties = (self.node and self.node.properties) or {}
        columns: list[tuple[Path, str]] = [(("key", index), column) for index, column in enumerate(self.key)]
        columns += [(("scope",), self.scope)] if self.scope else []
        seen: dict[str, tuple[str, str]] = {}
        for path, column in columns:
            name = next((name for name, source in properties.items() if source == column), column)
            if not is_table_name(name):
                message = f"cannot name a column of a table, which is {_NAME_RULE}; give it another in `properties`"
                raise problem("name", message, path=path)
            if seen.setdefault(name.lower(), (name, column)) != (name, column):
                raise problem("name", "differs from another column in case only", path=path)
        for name, column in properties.items():
            if seen.setdefault(name.lower(), (name, column)) != (name, column):
                message = "has the name of another column of the key or the scope: give it another name"
                raise problem("name", message, path=("node", "properties", name))
        return self

    @model_validator(mode="after")
    def _edges_fit(self) -> Self:
        seen: set[str] = set()
        for index, edge in enumerate(self.edges):
            if edge.kind.lower() in seen:
                raise problem("kind", "another edge is of this kind: each has one table", path=("edges", index, "kind"))
            seen.add(edge.kind.lower())
            for side, end in (("from", edge.start), ("to", edge.end)):
                if not end.columns and (self.node is None or end.label != self.node.label):
                    message = "the row is no such node: name the `columns` that hold its key"
                    own = [self.node.label] if self.node else []
                    raise problem("ends", message, path=("edges", index, side, "label"), allowed=own)
        return self


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


def used_columns(entity: TableEntity) -> frozenset[str] | None:
    """The source's columns that are read for an entity; None for all of them."""
    node = entity.node
    if node.properties is None if node else not entity.edges:
        return None
    ends = (column for each in edges_of(entity) for end in (each.start, each.end) for column in end.columns)
    properties = (node.properties or {}).values() if node else ()
    return frozenset((*row_columns(entity).named, *properties, *ends))


def _end(end: End) -> graph.End:
    return graph.End(end.label, end.columns)
