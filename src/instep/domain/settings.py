"""Settings that a request gives to its job: stored with the want for planning, and with the job for its workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from instep.domain.planning import SLICE_ROWS_MAX

#: A slice of fewer rows costs more to claim than to run.
LEAST_SLICE_ROWS = 100
LEAST_PAYLOAD, LARGEST_PAYLOAD = 100_000, 100 << 20
MOST_REQUESTS = 100
MOST_BATCH_ROWS = 50_000


class JobSettings(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of a job; None: as the project says. `slice_rows`: rows of a slice. `payload_bytes`, `batch_rows`: of
    one bulk request at most, `requests`: how many of one task may be in flight, at a target that takes such.
    `retry_failures`: what has failed is tried again, changed or not. `allow_empty`: what was indexed may become empty,
    because its source is.
    """

    slice_rows: Annotated[int, Meta(ge=LEAST_SLICE_ROWS, le=SLICE_ROWS_MAX)] | None = None
    payload_bytes: Annotated[int, Meta(ge=LEAST_PAYLOAD, le=LARGEST_PAYLOAD)] | None = None
    requests: Annotated[int, Meta(ge=1, le=MOST_REQUESTS)] | None = None
    batch_rows: Annotated[int, Meta(ge=1, le=MOST_BATCH_ROWS)] | None = None
    retry_failures: bool = False
    allow_empty: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The settings that are not None."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


NO_SETTINGS = JobSettings()


def together(settings: Iterable[JobSettings | None]) -> JobSettings:
    """Combine the settings of several requests for one job: the first one that sets a value wins."""
    found = [each for each in settings if each is not None]

    def first(name: str) -> int | None:
        return next((value for each in found if (value := getattr(each, name)) is not None), None)

    return JobSettings(
        first("slice_rows"),
        first("payload_bytes"),
        first("requests"),
        first("batch_rows"),
        retry_failures=any(each.retry_failures for each in found),
        allow_empty=any(each.allow_empty for each in found),
    )


def allows_empty(configuration: Mapping[str, Any], ref: str) -> bool:
    """Whether a person has said of a job that what it builds of this partition may be empty."""
    return bool(configuration.get("allow_empty")) or settings_in(configuration, ref).allow_empty


def settings_in(configuration: Mapping[str, Any], ref: str) -> JobSettings:
    """The settings of a partition in a job's configuration. What cannot be read was written by another Instep, and says
    nothing.
    """
    try:
        return msgspec.convert(configuration["settings"][ref], JobSettings)
    except (LookupError, TypeError, msgspec.ValidationError):
        return NO_SETTINGS
