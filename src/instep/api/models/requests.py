"""A request for a job, as the seed of distributed reindexing has it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from instep.api.models.base import WHOLE, Answer, Body
from instep.api.models.wants import Want
from instep.domain.planning import SLICE_ROWS_MAX
from instep.domain.settings import LARGEST_PAYLOAD, LEAST_PAYLOAD, LEAST_SLICE_ROWS, MOST_REQUESTS

MOST_THREADS = 64
_MEGABYTES = r"^([1-9][0-9]?|100) ?MB$"


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
    """What is null is as the project says."""

    entities: list[str] = Field(
        default=[], max_length=1_000, description="Entities, or partitions of them; none: all of the project."
    )
    recreateIndex: Annotated[  # noqa: N815 - the seed's name
        bool, Field(description="Build anew, beside what is served, and serve that when it is whole.")
    ] = False
    allowEmpty: Annotated[  # noqa: N815 - as the others are named
        bool, Field(description="What was indexed may become empty, because its source is.")
    ] = False
    batchSize: Annotated[  # noqa: N815 - the seed's name
        Annotated[int, Field(ge=LEAST_SLICE_ROWS, le=SLICE_ROWS_MAX), WHOLE] | None,
        Field(description="Rows of a slice of this job."),
    ] = None
    consumerThreads: Annotated[  # noqa: N815 - the seed's name
        Annotated[int, Field(ge=1, le=MOST_THREADS), WHOLE] | None,
        Field(description="Threads of the worker that this server starts."),
    ] = None
    payLoadSize: Annotated[  # noqa: N815 - the seed's name
        _Payload | None,
        BeforeValidator(_bytes, json_schema_input_type=_Payload | Annotated[str, Field(pattern=_MEGABYTES)] | None),
        Field(description="Bytes of one bulk request to OpenSearch at most; a text such as `10MB` does too."),
    ] = None
    maxConcurrentRequests: Annotated[  # noqa: N815 - the seed's name
        Annotated[int, Field(ge=1, le=MOST_REQUESTS), WHOLE] | None,
        Field(description="Bulk requests of one task to OpenSearch in flight at most."),
    ] = None
    useDistributedIndexing: Annotated[  # noqa: N815 - the seed's name
        bool, Field(description="Leave it to the workers that are there; else this server starts one of its own.")
    ] = False


class Asked(Answer):
    """What became of a request: the wants it made, and the job that works on them, if one does already. `worker`:
    whether this server has a worker of its own at it.
    """

    wants: list[Want]
    job: str | None
    worker: bool
