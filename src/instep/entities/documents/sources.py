"""Build the document source of an entity from its declaration."""

from __future__ import annotations

from instep.domain.fingerprint import IN_PROJECT, NAMES, digest
from instep.domain.refs import own_name
from instep.domain.row_documents import DocumentColumns
from instep.entities.documents.limits import limits_of
from instep.pipeline.documents.limits import MOST_TIMES
from instep.project import ClickHouseSource, DocumentEntity, FeedSource, FilesSource, Project, RowDocument, SparkSource
from instep.project.addresses import is_relative
from instep.sources import files
from instep.sources.document_source import DocumentSource
from instep.sources.feed import feed_source
from instep.sources.tables.row_documents import RowDocuments
from instep.sources.tables.row_table import RowTable
from instep.sources.tables.table_source import Sessions, TableSource


def document_source(project: Project, name: str, spark: Sessions) -> DocumentSource:
    entity, declared = project.entities[name], project.resolved_source(name)
    assert isinstance(entity, DocumentEntity), "asked for documents"
    if isinstance(declared, FilesSource):
        paths = project.document_paths(name)
        return files.FilesSource(paths, declared.include, declared.exclude, declared.storage(), str(project.root))
    if isinstance(declared, FeedSource):
        most = limits_of(entity).max_document_bytes * MOST_TIMES  # A line that is not read has no known document.
        return feed_source(
            own_name(name),
            project.document_paths(name),
            declared.storage(),
            max_line=most,
            project=str(project.root),
        )
    assert entity.document is not None, "what makes an entity of a table one of documents"
    columns = _columns(entity.document)
    return RowDocuments(own_name(name), columns, *_tables(declared, columns, spark))


def source_text(entity: DocumentEntity, source: DocumentSource) -> str:
    """The location as it is declared, for display."""
    if isinstance(source, RowDocuments):
        return source.text
    return ", ".join(getattr(entity.source, "path", None) or ())


def source_fingerprint(entity: DocumentEntity) -> dict[str, str]:
    """Fingerprint of everything besides the version that decides a document's content: the columns read of a row; for
    files, how they are named if not by absolute path.
    """
    if isinstance(entity.source, FilesSource):
        return {NAMES: IN_PROJECT} if any(map(is_relative, entity.source.path)) else {}
    if entity.document is None or not isinstance(entity.source, SparkSource | ClickHouseSource):
        return {}
    return {"document": digest([entity.document.text, entity.document.title, entity.source.sql])}


def _columns(declared: RowDocument) -> DocumentColumns:
    return DocumentColumns(declared.key, declared.text, declared.title, declared.version, declared.deleted)


def _tables(
    declared: SparkSource | ClickHouseSource, columns: DocumentColumns, spark: Sessions
) -> tuple[RowTable, TableSource]:
    """A table as read by this process, and as read by Spark."""
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
