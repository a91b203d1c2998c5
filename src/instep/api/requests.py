"""Requests for jobs over HTTP, the answer to one, and the worker that is started for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from instep.answers.answer import Answer
from instep.answers.wants import Want
from instep.api.worker_process import OwnWorker
from instep.app import Instep
from instep.domain.planning import SLICE_ROWS_MAX
from instep.domain.refs import GLOBAL, PartitionRef
from instep.domain.settings import LARGEST_PAYLOAD, LEAST_PAYLOAD, LEAST_SLICE_ROWS, MOST_BATCH_ROWS, MOST_REQUESTS
from instep.entities.partitions import all_upstream_refs
from instep.requests import job_requests

MOST_THREADS = 64
_MEGABYTES = r"^([1-9][0-9]?|100) ?MB$"


class Body(BaseModel):
    """The body of a request. A name that is not known is refused, and so is `"7"` where a number is to be."""

    model_config = ConfigDict(extra="forbid", strict=True)


#: From here on several whole numbers are one float, so that it does not say which was meant.
_EXACT = 2.0**53


def whole(value: object) -> object:
    """JSON knows one kind of numbers: 7.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value


#: Behind the bounds of a number.
WHOLE = BeforeValidator(whole)


def _bytes(value: object) -> object:
    """`10MB` as a number."""
    if not isinstance(value, str):
        return value
    found = re.match(_MEGABYTES, value)
    if found is None or value.endswith("\n"):
        raise ValueError(f"it is a number of bytes from {LEAST_PAYLOAD:,} to {LARGEST_PAYLOAD:,}, or 1MB to 100MB")
    return int(found[1]) << 20


_Payload = Annotated[int, Field(ge=LEAST_PAYLOAD, le=LARGEST_PAYLOAD), WHOLE]


class JobRequest(Body):
    """A request for a job. For values that are null, the project's settings are used."""

    entities: list[str] = Field(
        default=[], max_length=1_000, description="Entities, or partitions of them; none: all of the project."
    )
    recreateIndex: Annotated[  # noqa: N815 - the seed's name
        bool, Field(description="Rebuild, beside the served index, and serve that when it is whole.")
    ] = False
    allowEmpty: Annotated[  # noqa: N815 - as the others are named
        bool, Field(description="Let an index become empty if its source is empty.")
    ] = False
    batchSize: Annotated[  # noqa: N815 - the seed's name
        Annotated[int, Field(ge=1, le=MOST_BATCH_ROWS), WHOLE] | None,
        Field(description="Maximum number of rows in one bulk request to OpenSearch."),
    ] = None
    sliceRows: Annotated[  # noqa: N815 - as the others are named
        Annotated[int, Field(ge=LEAST_SLICE_ROWS, le=SLICE_ROWS_MAX), WHOLE] | None,
        Field(description="Rows of each slice of this job."),
    ] = None
    consumerThreads: Annotated[  # noqa: N815 - the seed's name
        Annotated[int, Field(ge=1, le=MOST_THREADS), WHOLE] | None,
        Field(description="Threads of the worker that this server starts."),
    ] = None
    payLoadSize: Annotated[  # noqa: N815 - the seed's name
        _Payload | None,
        BeforeValidator(_bytes, json_schema_input_type=_Payload | Annotated[str, Field(pattern=_MEGABYTES)] | None),
        Field(description="Maximum bytes of one bulk request to OpenSearch: a number, or a text such as `10MB`."),
    ] = None
    maxConcurrentRequests: Annotated[  # noqa: N815 - the seed's name
        Annotated[int, Field(ge=1, le=MOST_REQUESTS), WHOLE] | None,
        Field(description="Maximum number of bulk requests that one task sends to OpenSearch at once."),
    ] = None
    useDistributedIndexing: Annotated[  # noqa: N815 - the seed's name
        bool, Field(description="Leave the job to running workers; otherwise this server starts one of its own.")
    ] = False


class Asked(Answer):
    """Answer to a request: the wants that it made, and the job, if one already works on them. `worker`: whether this
    server has started a worker for it.
    """

    wants: tuple[Want, ...]
    job: str | None
    worker: bool


def asked(instep: Instep, found: job_requests.Asked, worker: OwnWorker | None, *, threads: int | None = None) -> Asked:
    """`worker` is started for them and what they are made from; None: it is left to others."""
    ours = worker is not None and worker.start(names(instep, found.refs), threads=threads)
    return Asked(
        wants=found.wants,
        job=next(iter(found.jobs), None),
        worker=ours,
    )


def names(instep: Instep, refs: Sequence[PartitionRef]) -> set[str]:
    """Names of these for a worker: entities, and partitions in namespaces that are not declared."""
    project = instep.project
    declared = [ref for ref in refs if ref.entity in project.entities]
    wanted = [*declared, *all_upstream_refs(project, declared)]
    known = {GLOBAL, *project.scopes}
    return {ref.entity if ref.scope in known else str(ref) for ref in wanted}


def asked_again(instep: Instep, found: job_requests.Asked | None, worker: OwnWorker) -> Asked:
    """The answer to a retry. No worker is started where nothing failed."""
    return Asked(wants=(), job=None, worker=False) if found is None else asked(instep, found, worker)
