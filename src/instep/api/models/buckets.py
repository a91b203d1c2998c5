"""Buckets of documents."""

from __future__ import annotations

from instep.api.models.base import Answer


class Bucket(Answer):
    """What it holds; and of its changes how long they took, in ms: the mean of `slices`, the longest, and how long of
    that a worker worked on them. `pending` are planned, and not durable yet.
    """

    bucket: int
    documents: int
    rows: int
    bytes: int
    slices: int
    latency: int | None
    longest: int | None
    working: int | None
    pending: int
    pending_since: int | None


class Buckets(Answer):
    """All buckets of one generation of a partition."""

    ref: str
    generation: str
    instance: str
    buckets: list[Bucket]
    declared: int
    warnings: list[str]
    seen_at: int
