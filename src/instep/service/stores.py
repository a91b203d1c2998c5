"""Targets that a project declares, as objects."""

from __future__ import annotations

from instep.errors import UserError
from instep.project import Project
from instep.project.targets import ClickHouseTarget, LanceTarget
from instep.targets.port import DocumentTarget
from instep.targets.tables import TableTarget


def document_target(project: Project, name: str) -> DocumentTarget:
    from instep.targets.lance import LanceTarget as Lance

    declared = project.resolved_target(name)
    if not isinstance(declared, LanceTarget):
        raise UserError(f"target {name!r} takes tables only", hint="Documents need a target of the type lance.")
    return Lance(declared.uri, storage_options=declared.storage())


def table_target(project: Project, name: str) -> TableTarget:
    declared = project.resolved_target(name)
    if isinstance(declared, LanceTarget):
        from instep.targets.lance.tables import LanceTableTarget

        return LanceTableTarget(declared.uri, storage_options=declared.storage())
    if isinstance(declared, ClickHouseTarget):
        from instep.targets.clickhouse import ClickHouseTarget as ClickHouse

        return ClickHouse(declared.uri, staging=declared.staging or "")
    from instep.targets.postgres import PostgresTarget as Postgres

    return Postgres(declared.uri, schema=declared.schema_)
