"""Build the targets that a project declares."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import SecretStr

from instep.domain.texts import without
from instep.errors import InstepError, UserError
from instep.own_faults import is_stop
from instep.pipeline.loading import full_name, load_class
from instep.project import Project
from instep.project.targets import (
    ClickHouseTarget,
    LanceTarget,
    MilvusTarget,
    OpenSearchTarget,
    PostgresTarget,
    PythonTarget,
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
    if isinstance(declared, PythonTarget):
        own: DocumentTarget = _own(project, declared, name, DocumentTarget, "documents")
        return own
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
    if isinstance(declared, PythonTarget):
        own: TableTarget = _own(project, declared, name, TableTarget, "tables")
        return own
    assert isinstance(declared, PostgresTarget), "others take no tables, which the project has been checked for"
    from instep.targets.postgres.target import PostgresTarget as Postgres

    return Postgres(declared.uri, schema=declared.schema_)


def own_targets(project: Project) -> list[str]:
    """Names of the targets whose class is named by the project."""
    return [name for name, each in project.targets.items() if isinstance(each, PythonTarget)]


def target_class(project: Project, name: str) -> type:
    """The class of one of these. Raises `UserError` if it cannot be imported."""
    declared, setting = project.targets[name], f"targets.{name}.class"
    assert isinstance(declared, PythonTarget), "one of `own_targets`"
    found: type = load_class(full_name(declared.class_, setting), setting)
    return found


def _own(project: Project, declared: PythonTarget, name: str, port: type, what: str) -> Any:
    """A target of the project's own class. Raises `UserError` if it cannot be made, or lacks something of the port."""
    where, options = f"targets.{name}", declared.given()
    made_by = target_class(project, name)
    try:
        inspect.signature(made_by).bind(declared.uri, **options)
    except (TypeError, ValueError) as error:
        hint = f"It is called as {made_by.__name__}(uri, {', '.join(f'{each}=…' for each in options)})."
        raise UserError(f"{declared.class_} does not take these options: {error}", where=where, hint=hint) from None
    try:
        made = made_by(declared.uri, **options)
    except InstepError:
        raise
    except BaseException as error:
        if is_stop(error):
            raise
        told = without(str(error), declared.uri, *options.values())
        raise UserError(f"{declared.class_} cannot be made: {type(error).__name__}: {told}", where=where) from None
    if lacking := sorted(each for each in dir(port) if not each.startswith("_") and not _has(made, each)):
        said = f"{declared.class_} is not a target of {what}: it lacks {', '.join(lacking)}"
        raise UserError(said, where=where, hint=f"It has to have all of instep.{port.__name__}.")
    return made


def _has(made: Any, name: str) -> bool:
    """Whether it has the attribute itself, and not as a protocol declares it."""
    if name in getattr(made, "__dict__", {}):
        return True
    home = next((each for each in type(made).__mro__ if name in vars(each)), None)
    return home is not None and not getattr(home, "_is_protocol", False)


def _clear(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
