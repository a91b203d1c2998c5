"""Materializations of what was built outside of Dagster, by Instep's event log."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from instep import Instep
from instep.orchestrators import Built, built_after, newest_event

#: The newest materializations of an asset, among which one of the same job is looked for.
_LOOKED_AT = 20


def materialized_elsewhere(
    context: dg.SensorEvaluationContext, project: Instep, keys: Mapping[str, dg.AssetKey]
) -> dg.SensorResult:
    """What was built since the last look. The first look only notes where the log ends."""
    if context.cursor is None:
        return dg.SensorResult(cursor=str(newest_event(project)))
    built, place = built_after(project, int(context.cursor))
    served = {(str(each.ref), each.instance): each.rows for each in project.status()} if built else {}
    newest = {each.ref: each for each in built}
    told = []
    for each in built:
        key = keys.get(each.ref.entity)
        if key is None or _known(context.instance, key, each.job):
            continue
        # How many rows there were after an earlier job is not kept.
        rows = served.get((str(each.ref), each.instance)) if newest[each.ref] is each else None
        told.append(_materialization(key, each, rows))
    return dg.SensorResult(asset_events=told, cursor=str(place))


def _materialization(key: dg.AssetKey, built: Built, rows: int | None) -> dg.AssetMaterialization:
    counts = built.counts
    metadata: dict[str, dg.MetadataValue] = {
        "instance": dg.MetadataValue.text(built.instance),
        "job": dg.MetadataValue.text(built.job),
        "complete_up_to": dg.MetadataValue.timestamp(built.complete_up_to / 1_000),
        "written": dg.MetadataValue.int(counts.written),
        "deleted": dg.MetadataValue.int(counts.deleted),
        "failed": dg.MetadataValue.int(counts.failed),
        "rows_written": dg.MetadataValue.int(counts.rows_written),
    }
    if rows is not None:
        metadata["dagster/row_count"] = dg.MetadataValue.int(rows)
    partition = None if built.ref.scope.is_global else str(built.ref.scope)
    return dg.AssetMaterialization(key, metadata=metadata, partition=partition)


def _known(instance: dg.DagsterInstance, key: dg.AssetKey, job: str) -> bool:
    """Whether Dagster has a materialization of this job: its own run made it."""
    found = instance.fetch_materializations(key, limit=_LOOKED_AT).records
    told = [each.asset_materialization for each in found]
    return any(each is not None and each.metadata.get("job") == dg.MetadataValue.text(job) for each in told)
