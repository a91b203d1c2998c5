"""The component: assets of a project's entities, their checks, and a sensor for what others build."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import dagster as dg
from dagster.components.resolved.context import ResolutionContext

import instep
from instep.project.documents import DocumentEntity
from instep_dagster.following import materialized_elsewhere
from instep_dagster.runs import checked, materialized


def _beside_the_file(context: ResolutionContext, project: str) -> Path:
    return context.resolve_source_relative_path(project)


class InstepProject(dg.Component, dg.Resolvable, dg.Model):
    """An asset of each entity of a project of Instep, partitioned by its namespaces. To materialize it is to bring its
    index in step with its source, as `instep run` does.
    """

    #: Its file or folder; relative to the file that says it.
    project: Annotated[Path, dg.Resolver(_beside_the_file, model_field_type=str)]
    #: Entities; by default all.
    entities: Sequence[str] | None = None
    #: The beginning of the assets' keys; by default the project's name.
    key_prefix: Sequence[str] | None = None
    group_name: str | None = None
    #: How often a step is tried again after what may pass, such as a target that is away.
    retries: int = 0
    retry_seconds: float = 30
    #: Documents or rows that failed do not fail the step.
    allow_failures: bool = False
    #: Check of each index of documents that it holds what it should: what `instep diff` does.
    check: bool = False
    #: Sensor that tells Dagster what workers, or a command, built outside of it.
    follow: bool = False

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        project = instep.load(self.project)
        declared = project.project.entities
        names = [name for each in self.entities or project.project.own_names for name in _named(project, each)]
        documents = [name for name in names if isinstance(declared[name], DocumentEntity)]
        assets = [self._asset(project, name) for name in names]
        checks = [self._check(project, name) for name in documents if self.check]
        sensors = [self._sensor(project, names)] if self.follow else []
        return dg.Definitions(assets=assets, asset_checks=checks, sensors=sensors)

    def _key(self, project: instep.Instep, entity: str) -> dg.AssetKey:
        return dg.AssetKey([*(self.key_prefix or [project.project.name]), entity])

    def _asset(self, project: instep.Instep, entity: str) -> dg.AssetsDefinition:
        declared = project.project.entities[entity]

        @dg.asset(
            key=self._key(project, entity),
            deps=[self._key(project, each) for each in declared.depends_on],
            partitions_def=_partitions(project, entity),
            group_name=self.group_name,
            retry_policy=dg.RetryPolicy(max_retries=self.retries, delay=self.retry_seconds) if self.retries else None,
            kinds={"instep"},
            description=f"{entity} of the project {project.project.name}, kept in step with its source by Instep.",
        )
        def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
            scope = f"@{context.partition_key}" if context.has_partition_key else ""
            return materialized(instep.load(self.project), f"{entity}{scope}", allow_failures=self.allow_failures)

        return asset

    def _check(self, project: instep.Instep, entity: str) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=self._key(project, entity), name="holds_what_it_should")
        def check() -> dg.AssetCheckResult:
            """Compare what the target really holds with source and ledger."""
            return checked(instep.load(self.project), entity)

        return check

    def _sensor(self, project: instep.Instep, names: Sequence[str]) -> dg.SensorDefinition:
        keys = {name: self._key(project, name) for name in names}

        @dg.sensor(
            name=re.sub(r"\W", "_", f"{project.project.name}_built_elsewhere", flags=re.ASCII),
            target=list(keys.values()),
            description=f"What was built of {project.project.name} outside of Dagster, by Instep's event log.",
        )
        def built_elsewhere(context: dg.SensorEvaluationContext) -> dg.SensorResult:
            return materialized_elsewhere(context, instep.load(self.project), keys)

        return built_elsewhere


def _named(project: instep.Instep, name: str) -> Iterator[str]:
    """The entities of this name: several for one with several targets."""
    found = project.project.named(name)
    if not found:
        raise instep.UserError(
            f"no entity is named {name!r}", hint=f"Declared: {', '.join(project.project.own_names)}."
        )
    yield from found


def _partitions(project: instep.Instep, entity: str) -> dg.PartitionsDefinition[str] | None:
    """Its namespaces: those that are declared, or, if none is, those that are added in Dagster."""
    if not project.project.entities[entity].namespaced:
        return None
    if declared := project.project.scopes:
        return dg.StaticPartitionsDefinition(list(map(str, declared)))
    return dg.DynamicPartitionsDefinition(name=f"{project.project.name}_namespaces")
