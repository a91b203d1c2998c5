"""Settings that entities of documents and of tables share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from instep.domain.planning import SLICE_ROWS_DEFAULT, SLICE_ROWS_MAX, SLICE_ROWS_MIN
from instep.domain.promotion_rules import LOSS_WINDOW
from instep.domain.schedules import Schedule, ScheduleError
from instep.project.fields import Duration, Model, Real, Text, Whole, problem
from instep.project.sources import Source

_TRANSFORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*\Z")


class Deletes(Model):
    """Limits on what one run may delete, against deletion by mistake. A run that exceeds them stops and asks for
    `--allow-deletes`."""

    share: Real = Field(default=0.2, ge=0, le=1)
    """Maximum share of the indexed documents (or rows) that a run may delete, from 0 to 1."""
    floor: Whole = Field(default=100, ge=0)
    """Number of deletions from which `share` applies. Fewer are always allowed, unless they are all documents (or
    rows)."""
    window: Duration = LOSS_WINDOW
    """Time for which earlier deletions count together with those of a run, such as `6h`. `--allow-deletes` resets the
    count."""


class EntitySchedule(Model):
    """Times at which workers bring the entity up to date."""

    cron: Text
    """Minute, hour, day of the month, month and day of the week, as in a crontab."""
    zone: Text = "UTC"
    """Time zone of the expression, such as `Europe/Berlin`."""

    @model_validator(mode="after")
    def _sound(self) -> EntitySchedule:
        for cron, zone, name in (("* * * * *", self.zone, "zone"), (self.cron, "UTC", "cron")):
            try:
                Schedule(cron, zone)
            except ScheduleError as error:
                raise problem("schedule", str(error), path=(name,)) from error
        return self

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.cron, self.zone)


def _short(value: Any) -> Any:
    """`schedule: "0 3 * * *"` is `schedule: {cron: "0 3 * * *"}`."""
    if not isinstance(value, str | Mapping | EntitySchedule):
        raise problem("schedule", 'must be a cron expression in quotes, such as "*/5 * * * *"')
    return {"cron": value} if isinstance(value, str) else value


_SCHEDULE_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["cron"],
            "properties": {"cron": {"type": "string", "minLength": 1}, "zone": {"type": "string", "minLength": 1}},
        },
    ]
}


class EntityBase(Model):
    """A kind of thing that is indexed."""

    source: Source
    """Source to read."""
    target: str | None = None
    """Name of the target. May be left out if the project has only one."""
    transform: str | None = None
    """`package.module:function`, from a DataFrame of rows to another."""
    slice_rows: Whole = Field(default=SLICE_ROWS_DEFAULT, ge=SLICE_ROWS_MIN, le=SLICE_ROWS_MAX)
    """Number of rows (of a table, or chunks) in a slice, the unit of claimed work."""
    work_factor: Real = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    """Relative cost of a row. A slice holds `slice_rows` divided by this factor, but at least 1,000 and at most 50,000
    rows."""
    priority: Whole = Field(default=40, ge=0, le=1000)
    """Priority from 0 to 1000. Entities with a higher priority are indexed first."""
    depends_on: tuple[str, ...] = ()
    """Entities from which this one is made. It waits until they are built."""
    rebuild_with_upstream: bool = False
    """Whether to rebuild this entity when one in `depends_on` has been rebuilt. Otherwise it stays as it is."""
    ttl: Duration | None = None
    """Maximum age of a build, such as `30d`. An older build is rebuilt. No limit if left out."""
    schedule: Annotated[EntitySchedule, BeforeValidator(_short), WithJsonSchema(_SCHEDULE_SCHEMA)] | None = None
    """Times at which `instep worker` brings the entity up to date: a cron expression such as `*/5 * * * *`, in UTC or
    with a `zone`."""
    deletes: Deletes = Deletes()
    """Limits on what one run may delete without `--allow-deletes`."""

    @property
    def namespaced(self) -> bool:
        """Whether it has a partition for each namespace, instead of one."""
        return False

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the user's that it names."""
        return () if self.transform is None else (self.transform,)

    @field_validator("transform")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        if value is not None and not _TRANSFORM.match(value):
            raise problem("transform", "must have the form package.module:function")
        return value
