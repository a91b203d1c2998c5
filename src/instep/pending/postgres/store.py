"""A pending queue in PostgreSQL, kept by triggers of statements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from instep.domain.pending import KeyRange, QueueSpec
from instep.pending.port import Ask, Backfilled, Comparison, Observation, Offer, QueueCounts


class PostgresPending:
    def __init__(self, uri: str, schema: str, spec: QueueSpec) -> None:
        self.spec = spec

    def statements(self) -> tuple[str, ...]:
        raise NotImplementedError

    def create(self) -> None:
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError

    def exists(self) -> bool:
        raise NotImplementedError

    def bounds(self) -> KeyRange | None:
        raise NotImplementedError

    def backfill(self, keys: KeyRange) -> Backfilled:
        raise NotImplementedError

    def backfill_statements(self, keys: KeyRange) -> tuple[str, ...]:
        raise NotImplementedError

    def read(self, ask: Ask) -> list[Offer]:
        raise NotImplementedError

    def anti_join(self, ask: Ask) -> list[int]:
        raise NotImplementedError

    def read_statement(self, ask: Ask) -> str:
        raise NotImplementedError

    def anti_join_statement(self, ask: Ask) -> str:
        raise NotImplementedError

    def confirm(self, keys: Collection[int]) -> set[int]:
        raise NotImplementedError

    def withdraw(self, offers: Sequence[Offer]) -> None:
        raise NotImplementedError

    def offer(self, keys: Collection[int]) -> None:
        raise NotImplementedError

    def acknowledge(self, keys: Collection[int]) -> None:
        raise NotImplementedError

    def reopen(self, keys: Collection[int]) -> None:
        raise NotImplementedError

    def compare(self, keys: KeyRange) -> Comparison:
        raise NotImplementedError

    def counts(self) -> QueueCounts:
        raise NotImplementedError

    def clean(self) -> int:
        raise NotImplementedError

    def remember(self, name: str, value: str) -> None:
        raise NotImplementedError

    def recall(self) -> dict[str, str]:
        raise NotImplementedError

    def observe(self, since: datetime) -> list[Observation]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
