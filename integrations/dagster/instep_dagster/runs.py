"""Runs of Instep as steps of Dagster: materializations, and failures in Instep's own words."""

from __future__ import annotations

import sys

import dagster as dg

from instep import Instep, InstepError
from instep.cli.log_progress import LogProgress
from instep.orchestrators import Outcome, may_pass, outcomes


def materialized(project: Instep, partition: str, *, allow_failures: bool) -> dg.MaterializeResult[None]:
    """Bring one partition in step. Raises `Failure`, which is retried only if the same may go well later."""
    try:
        done = outcomes(project, [partition], progress=LogProgress(sys.stdout))
    except InstepError as error:
        raise dg.Failure(str(error), allow_retries=may_pass(error)) from None
    *upstream, own = done  # What it needed, and was not there, comes first.
    for each in (*upstream, own):
        if not each.well(allow_failures=allow_failures):
            raise dg.Failure(each.reason, metadata=_metadata(each), allow_retries=each.may_pass)
    return dg.MaterializeResult(metadata=_metadata(own))


def checked(project: Instep, entity: str) -> dg.AssetCheckResult:
    """Compare target, ledger and source. What cannot be compared is not well."""
    (found,) = project.diff([entity])
    kinds = {kind: each.documents for kind, each in (found.found or {}).items()}
    text = found.problem or ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number) or "the same"
    return dg.AssetCheckResult(passed=found.differs is False, description=text, metadata=kinds)


def _metadata(done: Outcome) -> dict[str, dg.MetadataValue]:
    result, status, counts = done.result, done.status, done.result.counts
    found: dict[str, dg.MetadataValue | None] = {
        "dagster/row_count": None if status.rows is None else dg.MetadataValue.int(status.rows),
        "state": dg.MetadataValue.text(result.state_name),
        "action": dg.MetadataValue.text(str(result.kind)),
        "instance": dg.MetadataValue.text(status.instance) if status.instance else None,
        "job": dg.MetadataValue.text(result.job_id) if result.job_id else None,
        "complete_up_to": None if status.watermark is None else dg.MetadataValue.timestamp(status.watermark / 1_000),
        "written": dg.MetadataValue.int(counts.written),
        "deleted": dg.MetadataValue.int(counts.deleted),
        "failed": dg.MetadataValue.int(counts.failed),
        "unchanged": dg.MetadataValue.int(result.unchanged),
        "rows_written": dg.MetadataValue.int(counts.rows_written),
        "seconds": dg.MetadataValue.float(round(result.seconds, 3)),
    }
    return {name: value for name, value in found.items() if value is not None}
