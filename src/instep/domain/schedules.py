"""Schedules: the times at which an index is to be brought up to date, by a cron expression. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

#: Minute, hour, day of the month, month, day of the week.
_FIELDS: Final = 5


class ScheduleError(ValueError):
    """The text is no cron expression, or the zone is not known."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Ticks by a cron expression of five fields (crontab(5), as Debian's cron reads it) in a time zone of the IANA
    database. A tick that daylight saving skips comes when the clock has gone on, and one that it repeats comes once.
    """

    cron: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if len(self.cron.split()) != _FIELDS:
            raise ScheduleError("must have five fields: minute, hour, day of the month, month, day of the week")
        try:
            ZoneInfo(self.zone)
        except (ValueError, OSError, KeyError) as error:
            raise ScheduleError("is not a time zone such as UTC or Europe/Berlin") from error
        try:
            next(self._ticks(0))
        except CronSimError as error:
            raise ScheduleError(f"is not a cron expression: {str(error).lower()}") from error
        except StopIteration as error:
            raise ScheduleError("names a time that never comes") from error

    def latest(self, now: int) -> int:
        """The last tick, now included (ms since 1970)."""
        tick = _milliseconds(next(self._ticks(now + 60_000, back=True)))
        # On its way back the clock passes over ticks of an hour that comes twice.
        while (later := self.next(tick)) <= now:
            tick = later
        return tick

    def next(self, now: int) -> int:
        """The next tick, later than now (ms since 1970)."""
        return next(tick for tick in map(_milliseconds, self._ticks(now)) if tick > now)

    def _ticks(self, at: int, *, back: bool = False) -> CronSim:
        zone = ZoneInfo(self.zone)
        moment = datetime.fromtimestamp(at // 1000, zone).replace(second=0)
        return CronSim(self.cron, moment, reverse=back)


def _milliseconds(tick: datetime) -> int:
    return int(tick.timestamp()) * 1000
