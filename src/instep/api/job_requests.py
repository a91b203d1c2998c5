"""Answers to requests for jobs, and the worker that does them."""

from __future__ import annotations

from collections.abc import Sequence

from instep.api.models.requests import Asked
from instep.api.models.wants import Want
from instep.api.worker_process import OwnWorker
from instep.app import Instep
from instep.domain.refs import GLOBAL, PartitionRef
from instep.entities.partitions import all_upstream_refs
from instep.requests import job_requests


def asked(instep: Instep, found: job_requests.Asked, worker: OwnWorker | None, *, threads: int | None = None) -> Asked:
    """`worker` is started for them and what they are made from; None: it is left to others."""
    ours = worker is not None and worker.start(names(instep, found.refs), threads=threads)
    return Asked(
        wants=[Want.model_validate(each.as_dict()) for each in found.wants],
        job=next(iter(found.jobs), None),
        worker=ours,
    )


def names(instep: Instep, refs: Sequence[PartitionRef]) -> set[str]:
    """What a worker is to look after for these: entities, and partitions in namespaces that nobody has declared."""
    project = instep.project
    declared = [ref for ref in refs if ref.entity in project.entities]
    wanted = [*declared, *all_upstream_refs(project, declared)]
    known = {GLOBAL, *project.scopes}
    return {ref.entity if ref.scope in known else str(ref) for ref in wanted}


def asked_again(instep: Instep, found: job_requests.Asked | None, worker: OwnWorker) -> Asked:
    """Nothing is started where nothing failed."""
    return Asked(wants=[], job=None, worker=False) if found is None else asked(instep, found, worker)
