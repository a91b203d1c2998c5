"""Status keys of the simulated world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.bus.bus import StatusEntry, check_revision, entry_of
from instep.domain import status


class SimStatusKeys:
    """Implements `bus.StatusKeys`."""

    def __init__(self) -> None:
        #: By key its value as text, and its revision; no value for what was deleted.
        self.rows: dict[str, tuple[str | None, int]] = {}

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        status.demand_key(key)
        return self._set(key, status.encode(value), revision)

    def get(self, key: str) -> StatusEntry | None:
        status.demand_key(key)
        text, revision = self.rows.get(key, (None, 0))
        return None if text is None else entry_of(key, text, revision)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        status.demand_key(key)
        if revision is not None or self.rows.get(key, (None, 0))[0] is not None:
            self._set(key, None, revision)

    def under(self, prefix: str) -> list[StatusEntry]:
        status.demand_prefix(prefix)
        found = [(key, *row) for key, row in self.rows.items() if key == prefix or key.startswith(f"{prefix}.")]
        return [entry_of(key, text, revision) for key, text, revision in sorted(found) if text is not None]

    def _set(self, key: str, text: str | None, wanted: int | None) -> int:
        before, revision = self.rows.get(key, (None, 0))
        check_revision(key, 0 if before is None else revision, wanted)
        self.rows[key] = (text, revision + 1)
        return revision + 1
