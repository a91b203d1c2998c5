"""Build the document source of an entity from its declaration, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from instep.domain.document_columns import DeclaredColumn, DocumentColumnType, Origin
from instep.domain.fingerprint import IN_PROJECT, NAMES, digest
from instep.domain.jobs import JobPart
from instep.domain.refs import own_name
from instep.domain.rows import ChildColumns, DocumentColumns
from instep.domain.texts import amount
from instep.entities.lakes import lake_rows
from instep.entities.table_places import place_of
from instep.ledger.ledger import Ledger
from instep.pipeline.documents.chunk import MOST_TIMES, Limits, Oversize
from instep.pipeline.loading import full_name
from instep.project import (
    ClickHouseSource,
    DocumentEntity,
    FeedSource,
    FilesSource,
    JoinedRows,
    KafkaSource,
    LakeSource,
    Project,
    PythonSource,
    RowDocument,
    Source,
    SparkSource,
)
from instep.project.addresses import is_relative
from instep.project.columns import declared_columns
from instep.project.documents import KreuzbergParse
from instep.project.secrets import plain_options
from instep.sources import files
from instep.sources.document_source import DocumentSource
from instep.sources.tables.joined_documents import JoinedDocuments
from instep.sources.tables.row_documents import Member, RowDocuments, RowTable
from instep.sources.tables.table_source import Sessions, TableSource
from instep.sources.topic import TopicSource

if TYPE_CHECKING:
    from instep.pipeline.documents.functions import OwnFunction
    from instep.sources.feed_lines import LineFormat
    from instep.sources.s3_inventory import S3Inventory
    from instep.sources.sqs_events import SqsQueue

#: Larger than any document, in bytes.
ANY_SIZE = 2**62
#: Number of documents that a warning names.
_NAMED = 5


def limits_of(entity: DocumentEntity) -> Limits:
    declared = entity.limits
    return Limits(
        declared.max_document_bytes, declared.max_line_bytes, declared.max_chunks, Oversize(declared.on_oversize)
    )


def oversized_notes(limits: Limits, part: JobPart, ledger: Ledger) -> list[str]:
    """A warning about documents over a limit that are indexed because the declaration says so."""
    if limits.on_oversize is not Oversize.WARN:
        return []
    most = limits.max_document_bytes
    number, largest = ledger.documents.oversized(part.instance, size=most, chunks=limits.max_chunks, limit=_NAMED)
    if not number:
        return []
    named = [f"{each.uri} ({each.size:,} bytes, {amount(each.chunks, 'chunk')})" for each in largest]
    others = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    verb = "is" if number == 1 else "are"
    return [f"warning: {amount(number, 'document')} over the limits {verb} indexed: {', '.join(named)}{others}"]


def empty_notes(part: JobPart, ledger: Ledger) -> list[str]:
    """Note, after a build, the number of documents without chunks, which no search can find."""
    if not part.fresh:
        return []
    documents, _, _ = ledger.documents.totals(part.instance)
    filled, _ = ledger.documents.oversized(part.instance, size=ANY_SIZE, chunks=0, limit=0)
    if filled == documents:
        return []
    return [
        f"{documents - filled:,} of {amount(documents, 'document')} have no text (white space, or front matter alone): "
        "nothing of them is indexed, and they count as the same"
    ]


def _included(entity: DocumentEntity, declared: FilesSource) -> tuple[str, ...]:
    """The globs of files; unless they are declared, those of all formats that are parsed."""
    if isinstance(entity.parse, KreuzbergParse) and "include" not in declared.model_fields_set:
        from instep.pipeline.documents.formats import INCLUDED

        return (*declared.include, *INCLUDED)
    return declared.include


def document_source(project: Project, name: str, spark: Sessions) -> DocumentSource:
    entity, declared = project.entities[name], project.resolved_source(name)
    assert isinstance(entity, DocumentEntity), "asked for documents"
    if isinstance(declared, FilesSource):
        paths = project.document_paths(name)
        return files.FilesSource(
            paths,
            _included(entity, declared),
            declared.exclude,
            declared.storage(),
            str(project.root),
            _inventory(declared),
        )
    if isinstance(declared, FeedSource):
        from instep.sources.feed import feed_source

        most = limits_of(entity).max_document_bytes * MOST_TIMES  # A line that is not read has no known document.
        return feed_source(
            own_name(name),
            project.document_paths(name),
            declared.storage(),
            max_line=most,
            project=str(project.root),
            fields=[each.of for each in _from_source(entity)],
            lines=_lines(entity),
        )
    if isinstance(declared, KafkaSource):
        return _topic_source(name, entity, declared)
    if isinstance(declared, PythonSource):
        from instep.pipeline.documents.function_source import FunctionSource

        return FunctionSource(own_name(name), *_listing_and_reading(declared))
    assert entity.document is not None, "what makes an entity of a table one of documents"
    columns = _columns(entity.document, _from_source(entity))
    table, frames = _tables(declared, columns, spark)
    if not entity.document.with_:
        return RowDocuments(own_name(name), columns, table, frames)
    children = [_child(each, joined) for each, joined in entity.document.with_.items()]
    sources = [project.resolved(each.source) for each in entity.document.with_.values()]
    tables = [
        Member(*_tables(each, child.columns, spark), child.columns)
        for child, each in zip(children, sources, strict=True)
    ]
    most = limits_of(entity).ceiling
    return JoinedDocuments(own_name(name), columns, table, frames, tuple(children), tuple(tables), most)


def _inventory(declared: FilesSource) -> S3Inventory | None:
    if declared.inventory is None:
        return None
    from instep.sources.s3_inventory import S3Inventory

    return S3Inventory(declared.inventory, declared.storage())


def queue_of(entity: DocumentEntity) -> SqsQueue | None:
    """The queue that tells what changes in the source, if one is declared."""
    declared = entity.source
    if not isinstance(declared, FilesSource) or declared.events is None:
        return None
    from instep.sources.sqs_events import SqsQueue

    return SqsQueue(declared.events.url, declared.storage())


def _topic_source(name: str, entity: DocumentEntity, declared: KafkaSource) -> TopicSource:
    from instep.sources.feed_lines import JsonLines
    from instep.sources.kafka import KafkaTopic

    return TopicSource(
        own_name(name),
        KafkaTopic(",".join(declared.servers), declared.topic, tuple(sorted(declared.settings().items()))),
        _lines(entity) or JsonLines(),
        limits_of(entity).max_document_bytes * MOST_TIMES,
        tuple(each.of for each in _from_source(entity)),
    )


def _listing_and_reading(declared: PythonSource) -> tuple[OwnFunction, OwnFunction]:
    """The user's functions that list and read documents. They are imported when they are called: most commands read no
    source.
    """
    from instep.pipeline.documents.functions import OwnFunction, OwnMethod

    names = [full_name(each, "source") for each in declared.functions]
    if declared.class_ is None:
        listing, reading = names
        return OwnFunction(listing, ""), OwnFunction(reading, "")
    (name,), options = names, tuple(declared.given().items())
    return OwnMethod(name, "", "list", options), OwnMethod(name, "", "read", options)


def _from_source(entity: DocumentEntity) -> list[DeclaredColumn]:
    """The columns whose values the source itself gives."""
    return [each for each in declared_columns(entity) if each.origin is Origin.SOURCE]


def _lines(entity: DocumentEntity) -> LineFormat | None:
    """The format of a feed's lines, if it is not Instep's own."""
    declared = entity.document
    if declared is None:
        return None
    from instep.sources.debezium import DebeziumLines

    columns = _from_source(entity)
    of_numbers = (DocumentColumnType.INT, DocumentColumnType.FLOAT)
    numbers = frozenset(each.of for each in columns if each.column.type in of_numbers)
    lists = frozenset(each.of for each in columns if each.column.type.listed)
    return DebeziumLines(declared.key, declared.text, declared.title, numbers, lists)


def source_text(entity: DocumentEntity, source: DocumentSource) -> str:
    """The location as it is declared, for display."""
    if isinstance(source, RowDocuments):
        return source.text
    if isinstance(source, TopicSource):
        return source.topic.text
    if isinstance(entity.source, PythonSource):
        return entity.source.list or entity.source.class_ or ""
    return ", ".join(getattr(entity.source, "path", None) or ())


def source_fingerprint(entity: DocumentEntity, source: DocumentSource) -> dict[str, str]:
    """Fingerprint of everything besides the version that decides a document's content: the place of a table or feed,
    and the columns read of its rows; the function that reads, or the class with its options but for secrets; for files,
    how they are named if not by absolute path.
    """
    declared, rows = entity.source, entity.document
    if isinstance(declared, FilesSource):
        return {NAMES: IN_PROJECT} if any(map(is_relative, declared.path)) else {}
    if isinstance(declared, KafkaSource):
        return {"document": digest([declared.topic, rows and [rows.key, rows.text, rows.title]])}
    if isinstance(declared, PythonSource):
        from instep.pipeline.documents.functions import OwnFunction

        by_class, read = declared.class_, declared.read
        own = OwnFunction.of(by_class, "source.class") if by_class else OwnFunction.of(read or "", "source.read")
        options = plain_options(declared.given())
        return {"document": own.code} | ({"source": digest(options)} if options else {})
    if isinstance(declared, FeedSource):
        from instep.sources.feed import places_of

        made = {"source": digest([declared.type, *places_of(declared.path)])}
        return made | ({"document": digest([rows.key, rows.text, rows.title])} if rows else {})
    assert rows is not None, "what makes an entity of a table one of documents"
    assert isinstance(source, RowDocuments), "the rows of tables"
    return _table_fingerprint(rows, [declared, *(each.source for each in rows.with_.values())], source)


def _table_fingerprint(rows: RowDocument, declared: Sequence[Source], source: RowDocuments) -> dict[str, str]:
    """Versions tell whether a row has changed since it was read from the same table, by the same columns."""
    columns: list[object] = [rows.key, rows.text, rows.title, rows.version]
    if isinstance(declared[0], LakeSource):
        columns.append(rows.deleted)  # Where versions of the table tell what has changed, no row is looked at again.
    for name, each in rows.with_.items():
        columns.append([name, each.key, each.order, each.text, each.heading, each.version])
    places = [
        [each.type, *place_of(each, member.table.text), None if isinstance(each, LakeSource) else each.sql]
        for each, member in zip(declared, source.members, strict=True)
        if isinstance(each, SparkSource | ClickHouseSource | LakeSource)
    ]
    return {"source": digest(places), "document": digest(columns)}


def _columns(declared: RowDocument, columns: Sequence[DeclaredColumn]) -> DocumentColumns:
    named = (declared.key, declared.text, declared.title, declared.version, declared.deleted)
    return DocumentColumns(*named, columns=tuple(columns))


def _child(name: str, declared: JoinedRows) -> ChildColumns:
    key = (*declared.key, *declared.order)
    columns = DocumentColumns(key, declared.text, version=declared.version, deleted=declared.deleted)
    return ChildColumns(name, columns, len(declared.key), declared.heading)


def _tables(declared: Source, columns: DocumentColumns, spark: Sessions) -> tuple[RowTable, TableSource | None]:
    """A table as read by this process, and as read by Spark (None: by the same code, in its tasks)."""
    if isinstance(declared, LakeSource):
        return lake_rows(declared), None
    assert isinstance(declared, SparkSource | ClickHouseSource), "a table"
    if isinstance(declared, ClickHouseSource):
        from instep.sources.tables.clickhouse import ClickHouseTable
        from instep.sources.tables.clickhouse_rows import ClickHouseRows

        found = ClickHouseTable(declared.uri, declared.table, sql=declared.sql)
        return ClickHouseRows(found), found.narrowed(columns.named)
    from instep.sources.tables.parquet_rows import ParquetRows
    from instep.sources.tables.spark_rows import SparkRows
    from instep.sources.tables.spark_tables import SparkTable

    table = SparkTable(declared.format, declared.path or (), declared.table, declared.reader_options(), declared.sql)
    return (ParquetRows(declared.path or ()) if declared.plain else SparkRows(table, spark)), table
