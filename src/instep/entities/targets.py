"""Build the targets that a project declares."""

from __future__ import annotations

from pydantic import SecretStr

from instep.project import Project
from instep.project.targets import (
    ClickHouseTarget,
    LanceTarget,
    MilvusTarget,
    OpenSearchTarget,
    PostgresTarget,
    QdrantTarget,
)
from instep.targets.document_target import DocumentTarget
from instep.targets.table_target import TableTarget


def document_target(project: Project, name: str) -> DocumentTarget:
    declared = project.resolved_target(name)
    if isinstance(declared, LanceTarget):
        from instep.targets.lance import LanceTarget as Lance

        return Lance(declared.uri, storage_options=declared.storage())
    if isinstance(declared, QdrantTarget):
        from instep.targets.qdrant.target import QdrantTarget as Qdrant

        return Qdrant(declared.uri, _clear(declared.api_key))
    if isinstance(declared, MilvusTarget):
        from instep.targets.milvus.target import MilvusTarget as Milvus

        return Milvus(declared.uri, _clear(declared.token), declared.partition_prefix)
    if isinstance(declared, OpenSearchTarget):
        from instep.targets.opensearch.target import OpenSearchTarget as OpenSearch

        return OpenSearch(
            declared.uri,
            declared.user,
            _clear(declared.password),
            _clear(declared.api_key),
            declared.max_payload_bytes,
            declared.max_requests,
        )
    assert isinstance(declared, PostgresTarget), "others take no documents, which the project has been checked for"
    from instep.targets.postgres.documents import PostgresDocuments

    return PostgresDocuments(declared.uri, declared.schema_)


def table_target(project: Project, name: str) -> TableTarget:
    declared = project.resolved_target(name)
    if isinstance(declared, LanceTarget):
        from instep.targets.lance.tables import LanceTableTarget

        return LanceTableTarget(declared.uri, storage_options=declared.storage())
    if isinstance(declared, ClickHouseTarget):
        from instep.targets.clickhouse import ClickHouseTarget as ClickHouse

        return ClickHouse(declared.uri, staging=declared.staging or "")
    if isinstance(declared, OpenSearchTarget):
        from instep.targets.opensearch.tables import OpenSearchTables

        return OpenSearchTables(
            declared.uri,
            declared.user,
            _clear(declared.password),
            _clear(declared.api_key),
            declared.max_payload_bytes,
            declared.max_requests,
        )
    assert isinstance(declared, PostgresTarget), "others take no tables, which the project has been checked for"
    from instep.targets.postgres.target import PostgresTarget as Postgres

    return Postgres(declared.uri, schema=declared.schema_)


def _clear(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
