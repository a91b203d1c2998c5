"""Materializations of what was built outside of Dagster, by Instep's event log."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from instep import Instep
from instep.orchestrators import Built, built_after, newest_event

#: The newest materializations of a partition, among which one of the same job is looked for.
_LOOKED_AT = 20


def materialized_elsewhere(
    context: dg.SensorEvaluationContext, project: Instep, keys: Mapping[str, dg.AssetKey]
) -> dg.SensorResult:
    """What was built since the last look, as far as no run of Dagster is still at it: that would tell it itself. The
    first look only notes where the log ends.
    """
    newest = newest_event(project)
    if context.cursor is None:
        return dg.SensorResult(cursor=str(newest))
    before = int(context.cursor)
    if before > newest:
        context.log.warning("Instep's event log is another one than it was: it is read from its beginning.")
        before = 0
    built, after = built_after(project, before)
    served = {(str(each.ref), each.instance): each.rows for each in project.status()} if built else {}
    last = {each.ref: each for each in built}
    told = []
    for each in built:
        key = keys.get(each.ref.entity)
        if key is None:
            continue
        partition = None if each.ref.scope.is_global else str(each.ref.scope)
        those = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition else None)
        if _under_way(context.instance, those):
            after = each.sequence - 1
            break
        if not _known(context.instance, those, each.job):
            # How many rows there were after an earlier job is not kept.
            rows = served.get((str(each.ref), each.instance)) if last[each.ref] is each else None
            told.append(dg.AssetMaterialization(key, metadata=_metadata(each, rows), partition=partition))
    return dg.SensorResult(asset_events=told, cursor=str(after))


def _metadata(built: Built, rows: int | None) -> dict[str, dg.MetadataValue]:
    counts = built.counts
    found: dict[str, dg.MetadataValue] = {
        "instance": dg.MetadataValue.text(built.instance),
        "job": dg.MetadataValue.text(built.job),
        "complete_up_to": dg.MetadataValue.timestamp(built.complete_up_to / 1_000),
        "written": dg.MetadataValue.int(counts.written),
        "deleted": dg.MetadataValue.int(counts.deleted),
        "failed": dg.MetadataValue.int(counts.failed),
        "rows_written": dg.MetadataValue.int(counts.rows_written),
    }
    return found if rows is None else found | {"dagster/row_count": dg.MetadataValue.int(rows)}


def _under_way(instance: dg.DagsterInstance, those: dg.AssetRecordsFilter) -> bool:
    """Whether the newest run of Dagster that is to make these materializations has not ended."""
    planned = instance.fetch_planned_materializations(those, limit=1).records
    run = instance.get_run_by_id(planned[0].event_log_entry.run_id) if planned else None
    return run is not None and not run.is_finished


def _known(instance: dg.DagsterInstance, those: dg.AssetRecordsFilter, job: str) -> bool:
    """Whether Dagster has a materialization of this job: its own run made it, or an earlier look told it."""
    found = instance.fetch_materializations(those, limit=_LOOKED_AT).records
    made = [each.asset_materialization for each in found]
    return any(each is not None and each.metadata.get("job") == dg.MetadataValue.text(job) for each in made)
