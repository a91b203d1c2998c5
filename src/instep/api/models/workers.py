"""Workers."""

from __future__ import annotations

from instep.answers.jobs import Pulse
from instep.api.models.base import Answer


class Worker(Answer):
    """A worker and what it does; `slices` in work, the oldest since `busy_since`."""

    id: str
    kind: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    pulse: Pulse
    jobs: list[str]
    refs: list[str]
    slices: int
    busy_since: int | None
    seen_at: int
