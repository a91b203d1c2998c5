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
    """A run that would delete more than this stops and asks for `--allow-deletes`. What was deleted lately counts."""

    share: Real = Field(default=0.2, ge=0, le=1)
    """Share of what is indexed (documents, or rows), from 0 to 1."""
    floor: Whole = Field(default=100, ge=0)
    """So many may be deleted whatever their share, unless they are all that there is."""
    window: Duration = LOSS_WINDOW
    """So long what was deleted unasked counts with what is to be deleted next."""


class EntitySchedule(Model):
    """The times at which workers bring the entity up to date."""

    cron: Text
    """Minute, hour, day of the month, month and day of the week, as in a crontab."""
    zone: Text = "UTC"
    """The time zone of these, such as `Europe/Berlin`."""

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
    """The source."""
    target: str | None = None
    """Name of a target; may be left out when the project has one."""
    transform: str | None = None
    """`package.module:function`, from a DataFrame of rows to another."""
    slice_rows: Whole = Field(default=SLICE_ROWS_DEFAULT, ge=SLICE_ROWS_MIN, le=SLICE_ROWS_MAX)
    """Rows (of a table, or chunks) in a slice, the unit of claimed work."""
    work_factor: Real = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    """The work that one row is; slices of costly entities hold fewer rows."""
    priority: Whole = Field(default=40, ge=0, le=1000)
    """Entities of higher priority go first."""
    depends_on: tuple[str, ...] = ()
    """Entities that this one is made from: it is built when they are there."""
    rebuild_with_upstream: bool = False
    """It is built anew when one of these was. Else it stays as it is."""
    ttl: Duration | None = None
    """Time to live of what was built, such as `30d`: after that it is rebuilt; without end when left out."""
    schedule: Annotated[EntitySchedule, BeforeValidator(_short), WithJsonSchema(_SCHEDULE_SCHEMA)] | None = None
    """The times at which `instep worker` brings it up to date: a cron expression such as `*/5 * * * *`, in UTC or with
    a `zone`."""
    deletes: Deletes = Deletes()
    """The number of documents or rows that one run may delete unasked."""

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
