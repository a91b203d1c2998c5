"""Pending queues."""

from __future__ import annotations

from typing import Any, Literal

from instep.api.models.base import Answer
from instep.queues.states import Phase


class Held(Answer):
    """Keys in one state: how many, how many of them others may have now, and since when the oldest is."""

    keys: int
    due: int
    since: int | None


class QueueStatus(Answer):
    """How far a queue is on its way, and what is in it."""

    name: str
    on: str
    phase: Phase
    reads: Literal["queue", "anti-join"]
    backfill: dict[str, Any] | None
    verify: dict[str, Any] | None
    offered: int | None
    withdrawn: int | None
    garbage: int | None
    bytes: int | None
    oldest_key: int | None
    oldest: str | None
    leased: Held
    retrying: Held
    parked: Held
    now: int
