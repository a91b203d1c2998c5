"""A trigger that waits in Airflow's triggerer until a want has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from instep import Want

#: States in which a want waits for nothing any more.
ENDED = ("Successful", "Failed", "UpstreamFailed", "Canceled")


class WantTrigger(BaseTrigger):
    """Looks at a want every `poll_interval` seconds, and fires with its state, reason and instances when it has ended.
    Ledgers that are away are waited for.
    """

    def __init__(self, project: str, want: str, poll_interval: float = 60.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's brings no types.
        self.project = project
        self.want = want
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "instep_airflow.triggers.WantTrigger",
            {"project": self.project, "want": self.want, "poll_interval": self.poll_interval},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from instep import Away, InstepError, Transient

        before = None
        while True:
            try:
                want = await asyncio.to_thread(self._look)
            except (Away, Transient) as error:
                self.log.warning("cannot look now, and will again: %s", error)
            except InstepError as error:
                yield TriggerEvent({"state": "Failed", "reason": str(error)})
                return
            else:
                if want is None:
                    yield TriggerEvent({"state": "Failed", "reason": f"the want {self.want} is not known any more"})
                    return
                if want.state in ENDED:
                    yield TriggerEvent(event_of(want))
                    return
                if want.state != before:
                    self.log.info("%s: %s", ", ".join(want.refs), want.state)
                before = want.state
            await asyncio.sleep(self.poll_interval)

    async def on_kill(self) -> None:
        """Nobody waits for it any more: builds that others share go on."""
        from instep import InstepError, load

        try:
            await asyncio.to_thread(load(self.project).cancel_want, self.want, by="airflow", why="its task was ended")
        except InstepError as error:
            self.log.warning("the want %s stays: %s", self.want, error)

    def _look(self) -> Want | None:
        from instep import load
        from instep.errors import Missing

        try:
            return load(self.project).want_of(self.want)
        except Missing:
            return None


def event_of(want: Want) -> dict[str, Any]:
    """All that the task has to know of a want that has ended."""
    marks = [each.watermark for each in want.found if each is not None and each.watermark is not None]
    return {
        "state": str(want.state),
        "reason": want.error,
        "want": want.id,
        "instances": dict(zip(want.refs, want.current, strict=True)),
        "complete_up_to": datetime.fromtimestamp(min(marks) / 1_000, UTC).isoformat() if marks else None,
    }
