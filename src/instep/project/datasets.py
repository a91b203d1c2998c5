"""Sources and targets of a project as datasets, by OpenLineage's naming. Secrets are no part of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from instep.domain.open_lineage import Dataset
from instep.domain.refs import own_name
from instep.project.addresses import is_url
from instep.project.documents import DocumentEntity
from instep.project.entities import Entity
from instep.project.models import Project
from instep.project.sources import (
    ClickHouseSource,
    DeltaSource,
    FeedSource,
    FilesSource,
    IcebergSource,
    KafkaSource,
    PythonSource,
    Source,
    SparkSource,
)
from instep.project.tables import TableEntity
from instep.project.targets import MilvusTarget, OpenSearchTarget, PostgresTarget, QdrantTarget, Target
from instep.servers.address import server_address

Fields = Sequence[tuple[str, str]]

#: Columns of chunks for readers, beside declared ones.
_CHUNK: Final = (
    *(("chunk_id", "string"), ("document_id", "string"), ("source_uri", "string"), ("chunk_index", "int32")),
    *(("title", "string"), ("text", "string"), ("vector", "float32[]")),
)
_PORTS: Final = {"clickhouse": 8123, "qdrant": 6333, "milvus": 19530, "opensearch": 9200}
#: Databases whose tables OpenLineage has a name for: scheme of the address, of the namespace, port.
_DATABASES: Final = {"postgresql": ("postgres", 5432), "mysql": ("mysql", 3306), "mariadb": ("mysql", 3306)}
#: Stores in whose URLs the user is a container, and no secret.
_CONTAINERS: Final = ("abfs", "abfss", "wasb", "wasbs")
_PASSWORD: Final = re.compile(r":[^@]*(?=@)")


@dataclass(frozen=True)
class ProjectDatasets:
    """Implements `domain.open_lineage.Datasets`. `columns` gives those of a table, if they are known."""

    project: Project
    columns: Callable[[str], Fields] = lambda _entity: ()

    def inputs(self, entity: str) -> list[Dataset]:
        """The source first, then the tables whose rows are joined to it."""
        declared = self.project.entities.get(entity)
        if declared is None:
            return []
        found = list(_of_source(self.project.resolved_source(entity)))
        if isinstance(declared, TableEntity):
            return [each._replace(fields=self.columns(entity)) for each in found]
        joined = declared.document.with_.values() if declared.document else ()
        others = (named for each in joined for named in _of_source(self.project.resolved(each.source)))
        return list(dict.fromkeys([*found, *others]))

    def outputs(self, entity: str, generation: str) -> list[Dataset]:
        """The entity's own rows first, then its edges."""
        declared = self.project.entities.get(entity)
        if declared is None:
            return []
        target = self.project.resolved_target(self.project.target_of(entity))
        ending = f"@{generation}" if generation else ""
        name = own_name(entity)
        edges = declared.edges if isinstance(declared, TableEntity) else ()
        names = [name, *(f"{name}__{each.kind}" for each in edges)]
        own, *others = (_of_target(target, f"{each}{ending}") for each in names)
        return [own._replace(fields=self._fields(entity, declared)), *others]

    def _fields(self, entity: str, declared: Entity) -> Fields:
        if isinstance(declared, DocumentEntity):
            return [*_CHUNK, *((name, str(each.type)) for name, each in declared.columns.items())]
        properties = declared.node and declared.node.properties
        if not properties:
            return self.columns(entity)
        types = dict(self.columns(entity))
        names = {name: name for name in declared.key} | {column: name for name, column in properties.items()}
        return [(name, types[column]) for column, name in names.items() if column in types]


def _of_source(source: Source) -> Iterator[Dataset]:
    match source:
        case FilesSource() | FeedSource():
            yield from map(_of_path, source.path)
        case DeltaSource():
            yield from map(_of_path, source.path)
        case IcebergSource():
            yield Dataset("iceberg", source.table)
        case KafkaSource():
            yield Dataset(f"kafka://{source.servers[0]}", source.topic)
        case PythonSource():
            yield Dataset("python", source.class_ or source.list or "")
        case ClickHouseSource():
            yield _in_clickhouse(source.uri, source.table)
        case SparkSource() if source.path:
            yield from map(_of_path, source.path)
        case SparkSource() if source.format.lower() == "jdbc":
            options = {name.lower(): value for name, value in source.reader_options().items()}
            yield from _of_jdbc(options["url"], source.table or options.get("dbtable", ""))
        case SparkSource() if source.table:
            yield Dataset("spark", source.table)


def _of_jdbc(url: str, table: str) -> Iterator[Dataset]:
    """The table, if it is in a database whose tables have names there; of a query no text is repeated."""
    try:
        address = urlsplit(url.removeprefix("jdbc:"))
        kind, port = _DATABASES[address.scheme]
        host = f"{kind}://{address.hostname}:{address.port or port}"
    except (ValueError, KeyError):
        return
    if address.hostname and re.fullmatch(r"[\w$]+(\.[\w$]+)*", table):
        schema = "public." if kind == "postgres" and "." not in table else ""
        yield Dataset(host, f"{unquote(address.path).strip('/')}.{schema}{table}")


def _of_target(target: Target, name: str) -> Dataset:
    """A table, a collection or an index: the name by which readers know it."""
    if isinstance(target, PostgresTarget):
        address = server_address(target.uri)
        return Dataset(
            f"postgres://{address.host or 'localhost'}:{address.port or 5432}",
            f"{address.database}.{target.schema_}.{name}",
        )
    if target.type == "clickhouse":
        return _in_clickhouse(target.uri, name)
    if isinstance(target, QdrantTarget | MilvusTarget | OpenSearchTarget) and is_url(target.uri):
        return Dataset(_server(target.type, urlsplit(target.uri)), name)
    place = _of_path(target.uri)
    return Dataset(place.namespace, f"{place.name.rstrip('/')}/{name}")


def _in_clickhouse(uri: str, table: str) -> Dataset:
    if not is_url(uri):
        return Dataset("file", f"{uri}/{table}")
    address = urlsplit(uri)
    database = unquote(address.path).strip("/") or "default"
    return Dataset(_server("clickhouse", address), table if "." in table else f"{database}.{table}")


def _server(kind: str, address: SplitResult) -> str:
    return f"{kind}://{address.hostname}:{address.port or _PORTS[kind]}"


def _of_path(path: str) -> Dataset:
    """A folder, or a URL without user, password and query."""
    if not is_url(path):
        return Dataset("file", path)
    address = urlsplit(path)
    scheme = address.scheme.lower().replace("s3a", "s3").replace("s3n", "s3")
    if scheme == "file":
        return Dataset("file", unquote(address.path))
    authority = address.netloc
    authority = _PASSWORD.sub("", authority) if scheme in _CONTAINERS else authority.rpartition("@")[2]
    return Dataset(f"{scheme}://{authority}", unquote(address.path).strip("/") or "/")
